//! Query parameters, read from the raw query string. Each may appear at most once, unknown ones are
//! errors, and all must be valid UTF-8.

use std::collections::BTreeMap;
use std::fmt::Display;

use lambda_http::Request;
use percent_encoding::percent_decode_str;
use sharding::{PartitionKey, ShardedTable, SortKey};

use crate::body::check_partition_key;
use crate::problem::Problem;

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_percent_sign_has_two_hexadecimal_digits() {
        for query in ["limit=%", "limit=%2", "limit=%zz"] {
            let problem = Parameters::parse(query, &["limit"]).unwrap_err();
            assert_eq!(problem.code(), "invalid_encoding", "{query}");
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
