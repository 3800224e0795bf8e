//! Request headers that change the effect of a write.

use lambda_http::Request;
use lambda_http::http::HeaderValue;
use sharding::{Conditions, ETag, ETags, IdempotencyKey};

use crate::problem::Problem;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const IF_MATCH: &str = "if-match";
const IF_NONE_MATCH: &str = "if-none-match";

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
}
