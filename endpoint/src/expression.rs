//! DynamoDB's expressions, as far as the endpoint reads them: their tokens, the names of top-level
//! attributes in them, the clauses of an update, and the key condition of a query. It evaluates
//! none.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::item;
use crate::reply::{Failure, Members};

/// A word (a name, a keyword or a function), `#name`, `:value`, or any other sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token<'a> {
    text: &'a str,
    at: usize,
    /// The parentheses that are open after it.
    depth: i32,
    /// Whether it follows a dot.
    is_part: bool,
    /// Whether it is the name of a top-level attribute, or a placeholder for one.
    is_attribute: bool,
    /// In a `SET` clause: whether it belongs to what is read, and not to what is set.
    is_right: bool,
}

/// The members of requests that are expressions, without that word.
const EXPRESSIONS: [&str; 5] = ["Condition", "Update", "KeyCondition", "Filter", "Projection"];

const KEYWORDS: [&str; 9] = ["AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The tokens of an expression. What DynamoDB refuses is some sequence of signs.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut tokens, mut rest) = (Vec::<Token<'_>>::new(), text);
    let (mut depth, mut is_right) = (0, false);
    while let Some(first) = rest.chars().next() {
        let is_sign = !is_word(first) && first != '#' && first != ':';
        let body = &rest[first.len_utf8()..];
        let more = body.find(|c| is_sign || !is_word(c)).unwrap_or(body.len());
        let (token, after) = rest.split_at(first.len_utf8() + more);
        if !first.is_whitespace() {
            depth += i32::from(token == "(") - i32::from(token == ")");
            if depth == 0 && matches!(token, "=" | ",") {
                is_right = token == "=";
            }
            let is_function = after.trim_start().starts_with('(');
            let is_index = token.chars().all(|c| c.is_ascii_digit());
            let is_keyword = KEYWORDS.iter().any(|word| token.eq_ignore_ascii_case(word));
            let is_name = is_word(first) && !is_function && !is_index && !is_keyword;
            let is_part = tokens.last().is_some_and(|last| last.text == ".");
            let is_attribute = (is_name || first == '#') && !is_part;
            let at = text.len() - rest.len();
            tokens.push(Token { text: token, at, depth, is_part, is_attribute, is_right });
        }
        rest = after;
    }
    tokens
}

/// The names and values of a request's placeholders, and a prefix for ours.
#[derive(Debug, Clone)]
pub(crate) struct Placeholders {
    pub(crate) names: Members,
    pub(crate) values: Members,
    prefix: String,
}

impl Placeholders {
    pub(crate) fn of(body: &Members) -> Self {
        let names = item::map(body, "ExpressionAttributeNames");
        let values = item::map(body, "ExpressionAttributeValues");
        let is_free = |prefix: &String| {
            let begins = |key: &String| key.get(1..).is_some_and(|key| key.starts_with(prefix));
            !names.keys().chain(values.keys()).any(begins)
        };
        let prefix = (0..).map(|number| format!("sh{number}_")).find(is_free).unwrap_or_default();
        Self { names, values, prefix }
    }

    /// The attribute that a token names.
    fn resolve<'a>(&'a self, token: &'a str) -> &'a str {
        let named = token.starts_with('#').then(|| self.names.get(token)).flatten();
        named.and_then(Value::as_str).unwrap_or(token)
    }

    /// Our placeholder for a name.
    pub(crate) fn name(&mut self, name: &str) -> String {
        let existing = self.names.iter().find(|(placeholder, named)| {
            let is_ours = |rest: &str| rest.starts_with(&self.prefix);
            named.as_str() == Some(name) && placeholder.get(1..).is_some_and(is_ours)
        });
        if let Some((placeholder, _)) = existing {
            return placeholder.clone();
        }
        let placeholder = format!("#{}{}", self.prefix, self.names.len());
        self.names.insert(placeholder.clone(), Value::from(name));
        placeholder
    }

    /// Our placeholder for a value.
    pub(crate) fn value(&mut self, value: Value) -> String {
        let placeholder = format!(":{}{}", self.prefix, self.values.len());
        self.values.insert(placeholder.clone(), value);
        placeholder
    }

    pub(crate) fn exists(&mut self, name: &str) -> String {
        format!("attribute_exists({})", self.name(name))
    }

    pub(crate) fn absent(&mut self, name: &str) -> String {
        format!("attribute_not_exists({})", self.name(name))
    }

    /// An attribute and a value with a sign between them.
    pub(crate) fn compared(&mut self, name: &str, sign: &str, value: Value) -> String {
        format!("{} {sign} {}", self.name(name), self.value(value))
    }

    /// Writes the placeholders into a request. Those that only expressions of the client's request
    /// use are left out. DynamoDB refuses the others that no expression uses.
    pub(crate) fn into_body(mut self, body: &mut Members, of_client: &Members) {
        let used = placeholders(body);
        for placeholder in placeholders(of_client).iter().filter(|it| !used.contains(it)) {
            self.names.remove(placeholder);
            self.values.remove(placeholder);
        }
        for (member, map) in
            [("ExpressionAttributeNames", self.names), ("ExpressionAttributeValues", self.values)]
        {
            body.remove(member);
            if !map.is_empty() {
                body.insert(member.to_owned(), Value::Object(map));
            }
        }
    }
}

/// The placeholders in the expressions of a request.
pub(crate) fn placeholders(body: &Members) -> Vec<String> {
    let members = EXPRESSIONS.map(|kind| format!("{kind}Expression"));
    let texts = members.iter().filter_map(|member| item::text(body, member));
    let used = texts.flat_map(tokens).filter(|token| token.text.starts_with(['#', ':']));
    used.map(|token| token.text.to_owned()).collect()
}

/// Refuses an empty expression of a request, and the product's names in one. What is put into a
/// group must have its parentheses in pairs, or a part of it would stand outside.
pub(crate) fn check(
    body: &Members,
    member: &str,
    placeholders: &Placeholders,
) -> Result<(), Failure> {
    let text = item::text(body, member).unwrap_or_default();
    if text.is_empty() && body.contains_key(member) {
        let why = "The expression can not be empty;";
        return Err(Failure::validation(format!("Invalid {member}: {why}")));
    }
    let tokens = tokens(text);
    let is_closed = tokens.last().is_none_or(|last| last.depth == 0);
    if !is_closed || tokens.iter().any(|token| token.depth < 0) {
        let why = "Syntax error; a parenthesis has no partner";
        return Err(Failure::validation(format!("Invalid {member}: {why}")));
    }
    item::check_names(attributes(text, placeholders))
}

/// The top-level attributes that an expression names.
pub(crate) fn attributes<'a>(text: &'a str, placeholders: &'a Placeholders) -> Vec<&'a str> {
    attributes_where(text, placeholders, |_| true)
}

fn attributes_where<'a>(
    text: &'a str,
    placeholders: &'a Placeholders,
    is_wanted: impl Fn(&Token<'_>) -> bool,
) -> Vec<&'a str> {
    let wanted = tokens(text).into_iter().filter(|token| token.is_attribute && is_wanted(token));
    wanted.map(|token| placeholders.resolve(token.text)).collect()
}

/// Whether an expression names a part of one of these attributes.
pub(crate) fn names_a_part(text: &str, of: &[&str], placeholders: &Placeholders) -> bool {
    tokens(text).windows(2).any(|pair| {
        pair[0].is_attribute
            && of.contains(&placeholders.resolve(pair[0].text))
            && matches!(pair[1].text, "." | "[")
    })
}

/// An expression in which some top-level attributes have other names. `new_name` gets the name of
/// each, and whether an update reads it there.
pub(crate) fn renamed(
    text: &str,
    placeholders: &mut Placeholders,
    new_name: impl Fn(&str, bool) -> Option<&'static str>,
) -> String {
    let (mut new, mut end) = (String::new(), 0);
    for token in tokens(text).into_iter().filter(|token| token.is_attribute) {
        let named = placeholders.resolve(token.text);
        let Some(name) = new_name(named, token.is_right) else { continue };
        new.push_str(&text[end..token.at]);
        new.push_str(&placeholders.name(name));
        end = token.at + token.text.len();
    }
    new.push_str(&text[end..]);
    new
}

/// The condition in parentheses, unless it is one group already: DynamoDB refuses two pairs.
pub(crate) fn grouped(text: &str) -> String {
    let tokens = tokens(text);
    let closes = tokens.iter().position(|token| token.depth == 0);
    let is_group = tokens.first().is_some_and(|first| first.text == "(")
        && closes == tokens.len().checked_sub(1);
    if is_group { text.trim().to_owned() } else { format!("({text})") }
}

/// The clauses of an update expression by their keywords.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clauses(BTreeMap<&'static str, String>);

impl Clauses {
    /// Parses an update expression. `None` if DynamoDB refuses it: a clause is there twice, or
    /// there is something before the first one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let tokens = tokens(text);
        let keyword = |token: &Token<'_>| {
            let mut words = ["SET", "REMOVE", "ADD", "DELETE"].into_iter();
            words.find(|word| !token.is_part && token.text.eq_ignore_ascii_case(word))
        };
        let begins = tokens.iter().filter_map(|token| Some((keyword(token)?, token)));
        let begins: Vec<_> = begins.collect();
        if begins.first().map(|(_, token)| *token) != tokens.first() {
            return None;
        }
        let mut clauses = Self::default();
        for (index, (keyword, begin)) in begins.iter().enumerate() {
            let end = begins.get(index + 1).map_or(text.len(), |(_, next)| next.at);
            let body = text[begin.at + begin.text.len()..end].trim().to_owned();
            if clauses.0.insert(*keyword, body).is_some() {
                return None;
            }
        }
        Some(clauses)
    }

    /// Whether the update makes an item where there is none.
    pub(crate) fn creates(&self) -> bool {
        self.0.is_empty() || self.0.contains_key("SET") || self.0.contains_key("ADD")
    }

    pub(crate) fn text(&self) -> String {
        let clauses = self.0.iter().map(|(keyword, body)| format!("{keyword} {body}"));
        clauses.collect::<Vec<_>>().join(" ")
    }

    /// Adds a term to a clause.
    pub(crate) fn and(&mut self, keyword: &'static str, term: &str) {
        match self.0.get_mut(keyword) {
            Some(body) => *body += &format!(", {term}"),
            None => drop(self.0.insert(keyword, term.to_owned())),
        }
    }

    /// Gives a top-level attribute another name where the update reads it.
    pub(crate) fn rename_read(&mut self, of: &str, to: &'static str, names: &mut Placeholders) {
        if let Some(set) = self.0.get_mut("SET") {
            *set = renamed(set, names, |name, is_read| (is_read && name == of).then_some(to));
        }
    }

    /// The top-level attributes that the update reads.
    pub(crate) fn read<'a>(&'a self, placeholders: &'a Placeholders) -> Vec<&'a str> {
        let set = self.0.get("SET").map_or("", String::as_str);
        attributes_where(set, placeholders, |token| token.is_right)
    }

    /// The top-level attributes that it changes.
    pub(crate) fn changed<'a>(&'a self, placeholders: &'a Placeholders) -> Vec<&'a str> {
        let of = |body: &'a String| attributes_where(body, placeholders, |token| !token.is_right);
        self.0.values().flat_map(of).collect()
    }
}

/// The placeholder to which a key condition compares an attribute with `=`, and what stands before
/// and after it.
pub(crate) fn equals<'a>(
    text: &'a str,
    attribute: &str,
    placeholders: &Placeholders,
) -> Result<(&'a str, [&'a str; 2]), Failure> {
    let found = tokens(text).windows(3).find_map(|three| {
        let [one, sign, other] = three else { return None };
        // On either side of the sign.
        let (name, value) = if other.text.starts_with(':') { (one, other) } else { (other, one) };
        let is_it = name.is_attribute && placeholders.resolve(name.text) == attribute;
        let is_compared = is_it && sign.text == "=" && value.text.starts_with(':');
        let around = [&text[..value.at], &text[value.at + value.text.len()..]];
        is_compared.then_some((value.text, around))
    });
    found.ok_or_else(|| {
        let why = "Query condition missed key schema element";
        Failure::validation(format!("{why}: {attribute}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn placeholders(body: Value) -> Placeholders {
        Placeholders::of(body.as_object().expect("an object"))
    }

    #[test]
    fn names_of_attributes_are_found_and_nothing_else() {
        let of = placeholders(json!({"ExpressionAttributeNames": {"#p": "pk", "#x": "x"}}));
        let rows = [
            ("attribute_exists(#p) AND #x.pk = :a", vec!["pk", "x"]),
            ("size(a.#p[0]) > :n and NOT (b IN (:c, :d))", vec!["a", "b"]),
            ("a BETWEEN :x AND :y OR begins_with(c_d, :e)", vec!["a", "c_d"]),
            ("n-:x", vec!["n"]),
            ("", vec![]),
        ];
        for (text, expected) in rows {
            assert_eq!(attributes(text, &of), expected, "{text}");
        }
    }

    #[test]
    fn a_name_is_replaced_where_it_is_a_top_level_attribute() {
        let mut of = placeholders(json!({"ExpressionAttributeNames": {"#p": "pk"}}));
        let new = |name: &str, _| (name == "pk").then_some("_sh:k");
        let of_client = "attribute_not_exists(#p) OR a.pk = :pk OR pk = :a";
        let text = renamed(of_client, &mut of, new);
        assert_eq!(text, "attribute_not_exists(#sh0_1) OR a.pk = :pk OR #sh0_1 = :a");
        let request = |text: &str| {
            Members::from_iter([("ConditionExpression".to_owned(), Value::from(text))])
        };
        let mut body = request(&text);
        of.into_body(&mut body, &request(of_client));
        assert_eq!(body["ExpressionAttributeNames"], json!({"#sh0_1": "_sh:k"}));
    }

    #[test]
    fn our_placeholders_do_not_collide() {
        let mut of = placeholders(json!({
            "ExpressionAttributeNames": {"#sh0_1": "a"},
            "ExpressionAttributeValues": {":sh1_x": {"S": "b"}},
        }));
        assert_eq!(of.name("a"), "#sh2_1");
        assert_eq!(of.name("a"), "#sh2_1", "one for each name");
    }

    #[test]
    fn an_update_is_divided_into_clauses() {
        let clauses = Clauses::parse(
            "set a = if_not_exists(b, :c), d = e  ADD n :one REMOVE x, y DELETE s :t",
        );
        let mut clauses = clauses.expect("clauses");
        assert!(clauses.creates());
        clauses.and("SET", "#v = :v");
        clauses.and("REMOVE", "#d");
        assert_eq!(
            clauses.text(),
            "ADD n :one DELETE s :t REMOVE x, y, #d SET a = if_not_exists(b, :c), d = e, #v = :v"
        );
        let of = placeholders(json!({}));
        assert_eq!(clauses.read(&of), ["b", "e"]);
        assert_eq!(clauses.changed(&of), ["n", "s", "x", "y", "#d", "a", "d", "#v"]);
        for (text, creates) in [
            ("REMOVE a", false),
            ("DELETE a :b", false),
            ("ADD a :b", true),
            ("remove a set b = :c", true),
            ("", true),
        ] {
            assert_eq!(Clauses::parse(text).map(|it| it.creates()), Some(creates), "{text}");
        }
        for text in ["SET a = :b SET c = :d", "a = :b", "x SET a = :b"] {
            assert_eq!(Clauses::parse(text), None, "{text}");
        }
    }
}
