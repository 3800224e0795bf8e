//! Request headers that change what a write does.

use lambda_http::Request;
use sharding::IdempotencyKey;

use crate::problem::Problem;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const IF_MATCH: &str = "if-match";
const IF_NONE_MATCH: &str = "if-none-match";

/// The client's own name for the request, where it gives one.
///
/// # Errors
/// 400 where it is not 1 to 255 visible ASCII characters, or given twice.
pub fn idempotency_key(request: &Request) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(text) = single(request, IDEMPOTENCY_KEY)? else { return Ok(None) };
    IdempotencyKey::new(text).map(Some).map_err(|error| Problem::bad("invalid_header", IDEMPOTENCY_KEY, error))
}

/// Refuses an idempotency key, on a route whose repetition cannot be told from a new request.
///
/// # Errors
/// 400 where there is one.
pub fn no_idempotency_key(request: &Request) -> Result<(), Problem> {
    match idempotency_key(request)? {
        None => Ok(()),
        Some(_) => Err(Problem::idempotency_key_unused()),
    }
}

/// Whether the write is create-only: `If-None-Match: *`.
///
/// # Errors
/// 400 for any other condition: items have no entity tags.
pub fn create_only(request: &Request) -> Result<bool, Problem> {
    refuse(request, &[IF_MATCH])?;
    match single(request, IF_NONE_MATCH)? {
        None => Ok(false),
        Some("*") => Ok(true),
        Some(other) => Err(Problem::bad("invalid_header", IF_NONE_MATCH, format_args!("it is {other:?}; allowed: *"))),
    }
}

/// Refuses every condition, on a route that knows none: a condition that is not looked at is one that is not kept.
///
/// # Errors
/// 400 where there is one.
pub fn unconditional(request: &Request) -> Result<(), Problem> {
    refuse(request, &[IF_MATCH, IF_NONE_MATCH])
}

fn refuse(request: &Request, headers: &[&'static str]) -> Result<(), Problem> {
    match headers.iter().find(|header| request.headers().contains_key(**header)) {
        None => Ok(()),
        Some(header) => {
            let why = "this route takes no such condition; POST /items takes If-None-Match: *";
            Err(Problem::bad("invalid_header", *header, why))
        }
    }
}

fn single<'a>(request: &'a Request, header: &'static str) -> Result<Option<&'a str>, Problem> {
    let mut values = request.headers().get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::bad("invalid_header", header, "it is given twice"));
    }
    value.to_str().map(Some).map_err(|_| Problem::bad("invalid_header", header, "it is not visible ASCII"))
}
