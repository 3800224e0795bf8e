//! The route of a request, its query parameters, and the headers that change the effect of a write.
//!
//! Parameters are read from the raw query string. Each may appear at most once, unknown ones are
//! errors, and all must be valid UTF-8.

use std::collections::BTreeMap;
use std::fmt::Display;

use lambda_http::Request;
use lambda_http::http::HeaderValue;
use percent_encoding::percent_decode_str;
use sharding::{Conditions, ETag, ETags, IdempotencyKey, PartitionKey, ShardedTable, SortKey};

use crate::body::check_partition_key;
use crate::response::Problem;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const IF_MATCH: &str = "if-match";
const IF_NONE_MATCH: &str = "if-none-match";

/// The operation of a request, named after its `operationId` in `functions/api/openapi.yaml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "functions/api/openapi.yaml describes each operation")]
pub enum Operation {
    StoreItem,
    StoreItems,
    ReplaceItem,
    UpdateItem,
    DeleteItem,
    GetItem,
    GetItems,
    GetShards,
}

/// The function that serves an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the name of a function")]
pub enum Function {
    Writer,
    Reader,
}

/// Methods and paths, each with its function and operation. `checks/rules/template.py` also
/// reads these rows.
#[rustfmt::skip]
const ROUTES: [(&str, &str, Function, Operation); 8] = [
    ("GET", "/item", Function::Reader, Operation::GetItem),
    ("PUT", "/item", Function::Writer, Operation::ReplaceItem),
    ("PATCH", "/item", Function::Writer, Operation::UpdateItem),
    ("DELETE", "/item", Function::Writer, Operation::DeleteItem),
    ("GET", "/items", Function::Reader, Operation::GetItems),
    ("POST", "/items", Function::Writer, Operation::StoreItem),
    ("POST", "/items/batch", Function::Writer, Operation::StoreItems),
    ("GET", "/shards", Function::Reader, Operation::GetShards),
];

/// Returns the function that serves a request, and its operation. Returns `None` if there is no
/// such route.
#[must_use]
pub fn route(method: &str, path: &str) -> Option<(Function, Operation)> {
    ROUTES.iter().find(|row| (row.0, row.1) == (method, path)).map(|row| (row.2, row.3))
}

/// Returns the problem for a request that matches no route: 405 with the allowed methods if the
/// path exists, otherwise 404.
#[must_use]
pub fn no_route(method: &str, path: &str) -> Problem {
    let methods: Vec<&str> = ROUTES.iter().filter(|row| row.1 == path).map(|row| row.0).collect();
    if methods.is_empty() {
        let detail = format!("there is no route {path:?}");
        return Problem::new(404, "no_such_route", "There is no such route", detail);
    }
    let allow = methods.join(", ");
    let detail = format!("{path} does not support {method}; allowed: {allow}");
    Problem::new(405, "method_not_allowed", "The method is not allowed", detail).allowing(allow)
}

/// The parameters of a request, decoded.
#[derive(Debug, Default)]
pub struct Parameters(BTreeMap<&'static str, String>);

impl Parameters {
    /// Decodes the query string; only the names in `known` are allowed.
    ///
    /// # Errors
    /// 400 for a parameter that is unknown, given twice, or not UTF-8 once percent-decoded.
    pub fn of(request: &Request, known: &[&'static str]) -> Result<Self, Problem> {
        Self::parse(request.uri().query().unwrap_or_default(), known)
    }

    fn parse(query: &str, known: &[&'static str]) -> Result<Self, Problem> {
        let mut parameters = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name, name)?;
            let Some(known_name) = known.iter().find(|known| **known == name) else {
                let allowed = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let field = if name.is_empty() { "query".to_owned() } else { name.clone() };
                let why = format!("the parameter {name:?} is not known; allowed: {allowed}");
                return Err(Problem::bad("unknown_parameter", field, why));
            };
            if parameters.insert(*known_name, decode(value, &name)?).is_some() {
                return Err(Problem::bad("repeated_parameter", name, "it is given twice"));
            }
        }
        Ok(Self(parameters))
    }

    /// An optional parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A required parameter.
    ///
    /// # Errors
    /// 400 if it is absent.
    pub fn required(&self, name: &'static str) -> Result<&str, Problem> {
        self.get(name).ok_or_else(|| Problem::bad("missing_parameter", name, "it is missing"))
    }
}

fn decode(text: &str, name: &str) -> Result<String, Problem> {
    let begins_in_hex = |rest: &str| {
        rest.get(..2).is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    if !text.split('%').skip(1).all(begins_in_hex) {
        let why = "a % is not followed by two hexadecimal digits";
        return Err(Problem::bad("invalid_encoding", name, why));
    }
    let plus = text.replace('+', " ");
    let decoded = percent_decode_str(&plus).decode_utf8().map(std::borrow::Cow::into_owned);
    let why = "it is not UTF-8 once percent-decoded";
    decoded.map_err(|_| Problem::bad("invalid_encoding", name, why))
}

/// The partition key of a request.
///
/// # Errors
/// 400 if it is missing, empty or too long.
pub fn partition_key(query: &Parameters, table: &ShardedTable) -> Result<PartitionKey, Problem> {
    check_partition_key(query.required("partition_key")?, table)
}

/// Reads a sort key from the parameter of that name.
///
/// # Errors
/// 400 if it is not a sort key of this table.
pub fn sort_key(name: &'static str, text: &str, table: &ShardedTable) -> Result<SortKey, Problem> {
    SortKey::parse(table.config().sort_key_type, text)
        .map_err(|error| Problem::bad("invalid_sort_key", name, error))
}

/// A boolean parameter. The default is false.
///
/// # Errors
/// 400 for anything but `true` and `false`.
pub fn flag(parameters: &Parameters, name: &'static str) -> Result<bool, Problem> {
    match parameters.get(name) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(not_allowed(name, other, "true, false")),
    }
}

/// The problem of a parameter that has another value than these.
#[must_use]
pub fn not_allowed(name: &'static str, value: &str, allowed: impl Display) -> Problem {
    Problem::bad("invalid_parameter", name, format_args!("it is {value:?}; allowed: {allowed}"))
}

/// Returns the idempotency key of the request, if it has one.
///
/// # Errors
/// 400 if the key is not 1 to 255 visible ASCII characters, or is given twice.
pub fn idempotency_key(request: &Request) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(text) = single(request, IDEMPOTENCY_KEY)? else { return Ok(None) };
    let key = IdempotencyKey::new(text).map(Some);
    key.map_err(|error| Problem::bad("invalid_header", IDEMPOTENCY_KEY, error))
}

/// Rejects an idempotency key, on a route that cannot distinguish a repetition from a new request.
///
/// # Errors
/// 400 if there is one.
pub fn no_idempotency_key(request: &Request) -> Result<(), Problem> {
    idempotency_key(request)?.map_or(Ok(()), |_| Err(Problem::idempotency_key_unused()))
}

/// Reads the conditions of a request for one item.
///
/// # Errors
/// 400 if a header is neither `*` nor a list of entity tags.
pub fn conditions(request: &Request) -> Result<Conditions, Problem> {
    let tags = |name, weak| tags(request, name, weak);
    // RFC 9110: If-Match compares strongly, so a weak tag matches nothing. If-None-Match compares
    // weakly.
    Ok(Conditions { matches: tags(IF_MATCH, false)?, differs: tags(IF_NONE_MATCH, true)? })
}

fn tags(request: &Request, name: &'static str, weak: bool) -> Result<Option<ETags>, Problem> {
    let lines = request.headers().get_all(name).iter().map(|value| text(value, name));
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    if lines.is_empty() {
        return Ok(None);
    }
    let list = lines.join(",");
    if list.trim() == "*" {
        return Ok(Some(ETags::Any));
    }
    let wrong = || {
        let why = "it is not a list of entity tags; allowed: *, or tags such as \"1\", W/\"1\", separated by commas";
        Problem::bad("invalid_header", name, why)
    };
    let tags = entity_tags(&list).filter(|tags| !tags.is_empty()).ok_or_else(wrong)?;
    let tags = tags.into_iter().filter(|(is_weak, _)| weak || !is_weak);
    Ok(Some(ETags::Of(tags.map(|(_, text)| ETag::new(text)).collect())))
}

/// Returns the tags of a list, each with whether it is weak. Returns `None` if the text is not a
/// list of tags.
fn entity_tags(list: &str) -> Option<Vec<(bool, &str)>> {
    let (mut tags, mut rest) = (Vec::new(), list.trim_matches([' ', '\t', ',']));
    while !rest.is_empty() {
        let (is_weak, quoted) = rest.strip_prefix("W/").map_or((false, rest), |rest| (true, rest));
        let (text, after) = quoted.strip_prefix('"')?.split_once('"')?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        tags.push((is_weak, text));
        let after = after.trim_start_matches([' ', '\t']);
        if !after.is_empty() && !after.starts_with(',') {
            return None;
        }
        rest = after.trim_start_matches([' ', '\t', ',']);
    }
    Some(tags)
}

/// Whether the write is create-only: `If-None-Match: *`.
///
/// # Errors
/// 400 for any other condition, because the request does not name one stored item.
pub fn create_only(request: &Request) -> Result<bool, Problem> {
    reject(request, &[IF_MATCH])?;
    match single(request, IF_NONE_MATCH)? {
        None => Ok(false),
        Some("*") => Ok(true),
        Some(other) => {
            let why = format!("it is {other:?}; allowed: *; PUT /item accepts entity tags");
            Err(Problem::bad("invalid_header", IF_NONE_MATCH, why))
        }
    }
}

/// Rejects every condition, on a route that supports none. An ignored condition would be a broken
/// one.
///
/// # Errors
/// 400 if there is one.
pub fn unconditional(request: &Request) -> Result<(), Problem> {
    reject(request, &[IF_MATCH, IF_NONE_MATCH])
}

fn reject(request: &Request, headers: &[&'static str]) -> Result<(), Problem> {
    let given = headers.iter().find(|header| request.headers().contains_key(**header));
    let Some(header) = given else { return Ok(()) };
    let why = "this route does not support the condition; \
               POST /items supports If-None-Match: *, and /item supports every condition";
    Err(Problem::bad("invalid_header", *header, why))
}

fn single<'a>(request: &'a Request, header: &'static str) -> Result<Option<&'a str>, Problem> {
    let mut values = request.headers().get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::bad("invalid_header", header, "it is given twice"));
    }
    text(value, header).map(Some)
}

fn text<'a>(value: &'a HeaderValue, header: &'static str) -> Result<&'a str, Problem> {
    value.to_str().map_err(|_| Problem::bad("invalid_header", header, "it is not visible ASCII"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(headers: &[(&'static str, &str)]) -> Result<Conditions, Problem> {
        let mut request = Request::default();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        conditions(&request)
    }

    #[test]
    fn conditions_are_lists_of_tags_or_a_star() {
        let tags = |texts: &[&str]| Some(ETags::Of(texts.iter().map(|it| ETag::new(it)).collect()));
        for (value, matches, differs) in [
            ("*", Some(ETags::Any), Some(ETags::Any)),
            (" * ", Some(ETags::Any), Some(ETags::Any)),
            (r#""1""#, tags(&["1"]), tags(&["1"])),
            (r#""1", "2" ,"a,b""#, tags(&["1", "2", "a,b"]), tags(&["1", "2", "a,b"])),
            (r#", "1",,"2","#, tags(&["1", "2"]), tags(&["1", "2"])),
            (r#"W/"1", "2""#, tags(&["2"]), tags(&["1", "2"])),
            (r#"W/"1""#, tags(&[]), tags(&["1"])),
            (r#""""#, tags(&[""]), tags(&[""])),
        ] {
            let expected = Conditions { matches, differs: None };
            assert_eq!(of(&[(IF_MATCH, value)]), Ok(expected), "{value}");
            let expected = Conditions { matches: None, differs };
            assert_eq!(of(&[(IF_NONE_MATCH, value)]), Ok(expected), "{value}");
        }
        let two = of(&[(IF_MATCH, r#""1""#), (IF_MATCH, r#""2""#)]);
        assert_eq!(two.unwrap().matches, tags(&["1", "2"]), "two lines are one list");
    }

    #[test]
    fn a_malformed_list_of_tags_is_rejected_and_its_header_named() {
        for value in
            ["", ",", "1", r#""1"#, r#"w/"1""#, r#""1" "2""#, r#"*, "1""#, r#""a b""#, r#""1";"#]
        {
            for header in [IF_MATCH, IF_NONE_MATCH] {
                let problem = of(&[(header, value)]).unwrap_err();
                assert_eq!(problem.code(), "invalid_header", "{value}");
                assert!(problem.detail().starts_with(header), "{value}: {}", problem.detail());
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_through_percent_encoding(text in "\\PC{0,20}") {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let parameters = Parameters::parse(&format!("limit={encoded}&"), &["limit"]).unwrap();
            prop_assert_eq!(parameters.get("limit"), Some(text.as_str()));
        }
    }
}
