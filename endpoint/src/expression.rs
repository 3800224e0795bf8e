//! DynamoDB's expressions, as far as the endpoint reads them: their tokens, the names of top-level
//! attributes in them, the clauses of an update, and the key condition of a query. It evaluates
//! none.

use serde_json::Value;

use crate::item;
use crate::reply::{Failure, Members};

/// A word (a name, a keyword or a function), `#name`, `:value`, or any other sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token<'a> {
    text: &'a str,
    at: usize,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The tokens of an expression. What DynamoDB refuses is some sequence of signs.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let is_sign = !is_word(first) && first != '#' && first != ':';
        let body = &rest[first.len_utf8()..];
        let more = body.find(|c| is_sign || !is_word(c)).unwrap_or(body.len());
        let (token, after) = rest.split_at(first.len_utf8() + more);
        if !first.is_whitespace() {
            tokens.push(Token { text: token, at: text.len() - rest.len() });
        }
        rest = after;
    }
    tokens
}

/// The number of parentheses that are open after each token.
fn depths(tokens: &[Token<'_>]) -> Vec<i32> {
    let depths = tokens.iter().scan(0_i32, |depth, token| {
        *depth += i32::from(token.text == "(") - i32::from(token.text == ")");
        Some(*depth)
    });
    depths.collect()
}

const KEYWORDS: [&str; 9] = ["AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"];

/// Whether a token is the name of a top-level attribute, or a placeholder for one.
fn is_attribute(tokens: &[Token<'_>], index: usize) -> bool {
    let text = tokens[index].text;
    let is_function = tokens.get(index + 1).is_some_and(|next| next.text == "(");
    let is_index = text.chars().all(|c| c.is_ascii_digit());
    let is_keyword = KEYWORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    let is_name = text.starts_with(is_word) && !is_function && !is_index && !is_keyword;
    (is_name || text.starts_with('#')) && !(index > 0 && tokens[index - 1].text == ".")
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

    /// Writes the placeholders into a request that has the `used` expressions. Those that only the
    /// client's expressions use are left out: DynamoDB refuses what no expression uses.
    pub(crate) fn into_body(mut self, body: &mut Members, of_client: &[&str], used: &[&str]) {
        let used = placeholders(used);
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

pub(crate) fn placeholders(texts: &[&str]) -> Vec<String> {
    let of = texts.iter().flat_map(|text| tokens(text));
    let used = of.filter(|token| token.text.starts_with(['#', ':']));
    used.map(|token| token.text.to_owned()).collect()
}

/// Refuses an empty expression of a request, and the product's names in one.
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
    item::check_names(attributes(text, placeholders))
}

/// The top-level attributes that an expression names.
pub(crate) fn attributes<'a>(text: &'a str, placeholders: &'a Placeholders) -> Vec<&'a str> {
    attributes_where(text, placeholders, |_| true)
}

/// As [`attributes`], at some of the tokens.
fn attributes_where<'a>(
    text: &'a str,
    placeholders: &'a Placeholders,
    here: impl Fn(usize) -> bool,
) -> Vec<&'a str> {
    let tokens = tokens(text);
    let named = (0..tokens.len()).filter(|index| here(*index) && is_attribute(&tokens, *index));
    named.map(|index| placeholders.resolve(tokens[index].text)).collect()
}

/// Whether an expression names a part of one of these attributes.
pub(crate) fn names_a_part(text: &str, of: &[&str], placeholders: &Placeholders) -> bool {
    let tokens = tokens(text);
    (0..tokens.len()).any(|index| {
        is_attribute(&tokens, index)
            && of.contains(&placeholders.resolve(tokens[index].text))
            && tokens.get(index + 1).is_some_and(|next| matches!(next.text, "." | "["))
    })
}

/// An expression in which some top-level attributes have other names.
pub(crate) fn renamed(
    text: &str,
    placeholders: &mut Placeholders,
    new_name: impl Fn(&str) -> Option<&'static str>,
) -> String {
    renamed_where(text, placeholders, |_| true, new_name)
}

/// As [`renamed`], at some of the tokens.
pub(crate) fn renamed_where(
    text: &str,
    placeholders: &mut Placeholders,
    here: impl Fn(usize) -> bool,
    new_name: impl Fn(&str) -> Option<&'static str>,
) -> String {
    let tokens = tokens(text);
    let (mut new, mut end) = (String::new(), 0);
    for (index, token) in tokens.iter().enumerate() {
        if !here(index) || !is_attribute(&tokens, index) {
            continue;
        }
        let Some(name) = new_name(placeholders.resolve(token.text)) else { continue };
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
    let closes = depths(&tokens).iter().position(|depth| *depth == 0);
    let is_group = tokens.first().is_some_and(|first| first.text == "(")
        && closes == tokens.len().checked_sub(1);
    if is_group { text.trim().to_owned() } else { format!("({text})") }
}

/// The clauses of an update expression, without their keywords.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clauses {
    pub(crate) set: Option<String>,
    pub(crate) remove: Option<String>,
    /// `ADD` and `DELETE`, with their keywords.
    pub(crate) others: Vec<String>,
    adds: bool,
}

impl Clauses {
    /// Parses an update expression. `None` if DynamoDB refuses it: a clause is there twice, or
    /// there is something before the first one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let tokens = tokens(text);
        let begins: Vec<Token<'_>> = tokens
            .iter()
            .enumerate()
            .filter(|(index, token)| {
                let mut words = ["SET", "REMOVE", "ADD", "DELETE"].iter();
                words.any(|word| token.text.eq_ignore_ascii_case(word))
                    && !(*index > 0 && tokens[index - 1].text == ".")
            })
            .map(|(_, token)| *token)
            .collect();
        if begins.first() != tokens.first() {
            return None;
        }
        let mut clauses = Self::default();
        for (index, begin) in begins.iter().enumerate() {
            let end = begins.get(index + 1).map_or(text.len(), |next| next.at);
            let body = text[begin.at + begin.text.len()..end].trim().to_owned();
            let keyword = begin.text.to_ascii_uppercase();
            let slot = match keyword.as_str() {
                "SET" => &mut clauses.set,
                "REMOVE" => &mut clauses.remove,
                _ => {
                    clauses.adds |= keyword == "ADD";
                    clauses.others.push(format!("{keyword} {body}"));
                    continue;
                }
            };
            if slot.replace(body).is_some() {
                return None;
            }
        }
        Some(clauses)
    }

    /// Whether the update makes an item where there is none.
    pub(crate) const fn creates(&self) -> bool {
        self.set.is_some() || self.adds || (self.remove.is_none() && self.others.is_empty())
    }

    pub(crate) fn text(&self) -> String {
        let set = self.set.iter().map(|body| format!("SET {body}"));
        let remove = self.remove.iter().map(|body| format!("REMOVE {body}"));
        set.chain(remove).chain(self.others.iter().cloned()).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn and_set(&mut self, term: &str) {
        self.set = Some(joined(self.set.take(), term));
    }

    pub(crate) fn and_remove(&mut self, path: &str) {
        self.remove = Some(joined(self.remove.take(), path));
    }
}

fn joined(clause: Option<String>, term: &str) -> String {
    clause.map_or_else(|| term.to_owned(), |clause| format!("{clause}, {term}"))
}

/// Divides a `SET` clause into what is set and from what: for each token, whether it stands on the
/// right-hand side.
pub(crate) fn on_the_right(clause: &str) -> Vec<bool> {
    let (tokens, mut right) = (tokens(clause), false);
    let sides = tokens.iter().zip(depths(&tokens)).map(|(token, depth)| {
        match token.text {
            "=" if depth == 0 => right = true,
            "," if depth == 0 => right = false,
            _ => {}
        }
        right
    });
    sides.collect()
}

/// The top-level attributes on the right-hand side of a `SET` clause.
pub(crate) fn read_by_set<'a>(clause: &'a str, placeholders: &'a Placeholders) -> Vec<&'a str> {
    let right = on_the_right(clause);
    attributes_where(clause, placeholders, |index| right[index])
}

pub(crate) fn changed_by(clauses: &Clauses, placeholders: &Placeholders) -> Vec<String> {
    let of = |text: &String, skip: usize| -> Vec<String> {
        let right = on_the_right(text);
        let is_changed = |index: usize| index >= skip && !right[index];
        attributes_where(text, placeholders, is_changed).into_iter().map(str::to_owned).collect()
    };
    let paths = clauses.set.iter().chain(&clauses.remove).flat_map(|text| of(text, 0));
    paths.chain(clauses.others.iter().flat_map(|text| of(text, 1))).collect()
}

/// The placeholder to which a key condition compares an attribute with `=`, and where it stands.
pub(crate) fn equals(
    text: &str,
    attribute: &str,
    placeholders: &Placeholders,
) -> Result<(String, usize), Failure> {
    let tokens = tokens(text);
    let found = (0..tokens.len()).find_map(|index| {
        let is_it =
            is_attribute(&tokens, index) && placeholders.resolve(tokens[index].text) == attribute;
        // On either side of the sign.
        let compared = [
            index.checked_add(1).zip(index.checked_add(2)),
            index.checked_sub(1).zip(index.checked_sub(2)),
        ];
        let value = compared.into_iter().flatten().find_map(|(sign, value)| {
            let (sign, value) = (tokens.get(sign)?, tokens.get(value)?);
            (sign.text == "=" && value.text.starts_with(':')).then_some(value)
        })?;
        is_it.then(|| (value.text.to_owned(), value.at))
    });
    found.ok_or_else(|| {
        let why = "Query condition missed key schema element";
        Failure::validation(format!("{why}: {attribute}"))
    })
}

/// Whether every parenthesis is closed after it was opened. What is put into a group must be, or a
/// part of it would stand outside.
pub(crate) fn is_balanced(text: &str) -> bool {
    let depths = depths(&tokens(text));
    depths.iter().all(|depth| *depth >= 0) && depths.last().is_none_or(|last| *last == 0)
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
        let new = |name: &str| (name == "pk").then_some("_sh:k");
        let of_client = "attribute_not_exists(#p) OR a.pk = :pk OR pk = :a";
        let text = renamed(of_client, &mut of, new);
        assert_eq!(text, "attribute_not_exists(#sh0_1) OR a.pk = :pk OR #sh0_1 = :a");
        let mut body = Members::new();
        of.into_body(&mut body, &[of_client], &[&text]);
        assert_eq!(Value::Object(body), json!({"ExpressionAttributeNames": {"#sh0_1": "_sh:k"}}));
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
    fn a_condition_gets_no_second_pair_of_parentheses() {
        for (text, expected) in [
            ("a = :a", "(a = :a)"),
            ("(a = :a)", "(a = :a)"),
            (" (a = :a) ", "(a = :a)"),
            ("(a = :a) AND (b = :b)", "((a = :a) AND (b = :b))"),
            ("size(a)", "(size(a))"),
        ] {
            assert_eq!(grouped(text), expected);
        }
    }

    #[test]
    fn an_update_is_divided_into_clauses() {
        let clauses = Clauses::parse(
            "set a = if_not_exists(b, :c), d = e  ADD n :one REMOVE x, y DELETE s :t",
        );
        let mut clauses = clauses.expect("clauses");
        assert!(clauses.creates());
        clauses.and_set("#v = :v");
        clauses.and_remove("#d");
        assert_eq!(
            clauses.text(),
            "SET a = if_not_exists(b, :c), d = e, #v = :v REMOVE x, y, #d ADD n :one DELETE s :t"
        );
        let of = placeholders(json!({}));
        assert_eq!(read_by_set("a = if_not_exists(b, :c), d = e", &of), ["b", "e"]);
        assert_eq!(changed_by(&clauses, &of), ["a", "d", "#v", "x", "y", "#d", "n", "s"]);
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
