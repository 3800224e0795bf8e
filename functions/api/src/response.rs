//! Responses: JSON, and errors as `application/problem+json` (RFC 9457), each with a stable code.

use std::error::Error;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use lambda_http::{Body, Response};
use serde::Serialize;
use sharding::{
    ETag, MAX_ITEM_BYTES, PatchError, ReadError, SortKey, TableError, WriteError, WriteErrorKind,
};

/// The error of a request, as the client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem(Box<Members>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Members {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: String,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip)]
    retry_after: Option<u32>,
    #[serde(skip)]
    allow: Option<String>,
    #[serde(skip)]
    accept_patch: Option<String>,
    #[serde(skip)]
    tag: Option<ETag>,
}

/// Returns an error and all of its sources as one line, for the log.
#[must_use]
pub fn with_sources(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| Error::source(*error));
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns the cause of a failed SDK call as one line, without the response that the SDK's own text
/// contains.
#[must_use]
pub fn cause(error: &(impl ProvideErrorMetadata + Error)) -> String {
    match error.code() {
        Some(code) => format!("{code}: {}", error.message().unwrap_or("no message")),
        None => with_sources(error),
    }
}

/// Seconds after which a client may retry: about the duration of a scale-out.
const RETRY_AFTER_SECONDS: u32 = 1;

impl Problem {
    pub(crate) fn new(
        status: u16,
        code: &'static str,
        title: &'static str,
        why: impl Into<String>,
    ) -> Self {
        Self(Box::new(Members {
            kind: format!("urn:problem:dynamodb-write-sharding:{code}"),
            title,
            status,
            detail: why.into(),
            code,
            ..Members::default()
        }))
    }

    pub(crate) fn on(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// 400: a named part of the request is not valid.
    #[must_use]
    pub fn bad(code: &'static str, field: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let field = field.into();
        let detail = format!("{field}: {why}");
        Self::new(400, code, "The request is not valid", detail).on(field)
    }

    /// 409: the request conflicts with the current state.
    #[must_use]
    pub fn conflict(code: &'static str, detail: &str) -> Self {
        Self::new(409, code, "Conflict", detail)
    }

    /// The problem with the methods that the path allows.
    pub(crate) fn allowing(mut self, methods: String) -> Self {
        self.0.allow = Some(methods);
        self
    }

    /// 413: a part of the request is too large.
    #[must_use]
    pub fn too_large(code: &'static str, field: &str, bytes: usize, allowed: usize) -> Self {
        let detail = format!("{field}: {bytes} bytes; at most {allowed} are allowed");
        Self::new(413, code, "Too large", detail).on(field)
    }

    /// 400: the idempotency key cannot make this request repeatable.
    #[must_use]
    pub fn idempotency_key_unused() -> Self {
        let why = "a repetition of this request with its own sort_key could not be recognized; \
                   omit sort_key, so that it is derived from the key, \
                   or create the item with If-None-Match: *";
        Self::bad("invalid_header", "idempotency-key", why)
    }

    /// 415: the `Content-Type` is not one of these. The response to a `PATCH` lists the allowed
    /// media types in `Accept-Patch` (RFC 5789).
    #[must_use]
    pub fn media_type(given: Option<&str>, allowed: &[&str], is_patch: bool) -> Self {
        let given = given.map_or_else(|| "absent".to_owned(), |given| format!("{given:?}"));
        let allowed = allowed.join(", ");
        let detail = format!("content-type: it is {given}; allowed: {allowed}");
        let problem =
            Self::new(415, "unsupported_media_type", "The media type is not supported", detail);
        let mut problem = problem.on("content-type");
        problem.0.accept_patch = is_patch.then_some(allowed);
        problem
    }

    /// 412: the conditions do not hold. `ETag` is the current state of the item, if it exists.
    #[must_use]
    pub fn precondition_failed(current: Option<ETag>) -> Self {
        let detail = if current.is_some() {
            "the item's state does not match If-Match or If-None-Match; nothing was changed; \
             ETag is the current state"
        } else {
            "If-Match requires an item with this partition_key and sort_key, and there is none; \
             nothing was changed"
        };
        Self::new(412, "precondition_failed", "The condition does not hold", detail).of(current)
    }

    /// Adds the state of the item.
    fn of(mut self, tag: Option<ETag>) -> Self {
        self.0.tag = tag;
        self
    }

    /// 404: there is no such item.
    #[must_use]
    pub fn no_item() -> Self {
        let detail = "there is no item with this partition_key and sort_key";
        Self::new(404, "not_found", "Not found", detail)
    }

    fn patch(error: &PatchError) -> Self {
        let why = |name: &str, why: String| format!("add.{name}: {why}; nothing was changed");
        let title = "The change does not fit the item";
        match error {
            PatchError::WrongType { attribute, .. } => {
                let detail = why(attribute, error.to_string());
                Self::new(409, "wrong_attribute_type", title, detail).on(format!("add.{attribute}"))
            }
            PatchError::Sum { attribute, cause } => {
                let detail = why(attribute, format!("{error}: {cause}"));
                Self::new(409, "invalid_sum", title, detail).on(format!("add.{attribute}"))
            }
            PatchError::TooLarge { bytes } => {
                Self::too_large("item_too_large", "attributes", *bytes, MAX_ITEM_BYTES)
            }
            error => Self::unexpected(error),
        }
    }

    /// 405: the table accepts appends only. `allow` lists the methods that remain.
    #[must_use]
    pub fn append_only(allow: &str) -> Self {
        let detail = "the table accepts appends only (WRITES=appends, or random placement): \
                      use POST without If-None-Match; PUT, PATCH and DELETE are not supported";
        Self::new(405, "append_only", "The method is not allowed", detail)
            .allowing(allow.to_owned())
    }

    fn unavailable(code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        let mut problem = Self::new(503, code, title, detail);
        problem.0.retry_after = Some(RETRY_AFTER_SECONDS);
        problem
    }

    fn no_capacity(detail: impl Into<String>) -> Self {
        Self::unavailable("no_capacity", "No capacity in time", detail)
    }

    /// The problem of a failed write. Causes that only an operator can fix go to the log, not into
    /// the response.
    #[must_use]
    pub fn from_write(error: WriteError) -> Self {
        let current = error.current;
        match error.kind {
            WriteErrorKind::Capacity { limit } => Self::no_capacity(format!(
                "nothing was changed: the request got no capacity before the deadline \
                 (limit: {limit}); try again"
            )),
            WriteErrorKind::Deadline(cause) => {
                let cause = with_sources(cause.as_ref());
                tracing::warn!(cause, "a write ran into its deadline");
                Self::no_capacity("nothing was changed: the deadline passed; try again")
            }
            WriteErrorKind::Unknown(cause) => {
                let cause = with_sources(cause.as_ref());
                tracing::warn!(cause, "the outcome of a write is unknown");
                let detail = "the write may or may not take effect: no conclusive response came in time; \
                              repeat a POST or a PATCH with its Idempotency-Key; \
                              without one, repeat a plain POST or a PUT with the same sort_key; \
                              read before you repeat a DELETE, a create-only POST, \
                              or a request with If-Match";
                Self::unavailable("outcome_unknown", "The outcome is unknown", detail)
            }
            WriteErrorKind::Contended => Self::unavailable(
                "contended",
                "Other writes of the item were in progress",
                "nothing was changed: other writes of the same item were in progress until the \
                 deadline; try again",
            ),
            WriteErrorKind::Exists => {
                let detail =
                    "there is an item with this partition_key and sort_key; nothing was changed";
                Self::new(412, "already_exists", "The item exists", detail).of(current)
            }
            WriteErrorKind::Precondition => Self::precondition_failed(current),
            WriteErrorKind::Absent => Self::no_item(),
            error @ WriteErrorKind::NotArmed { .. } => {
                Self::conflict("not_armed", &format!("{error}; nothing was changed"))
            }
            WriteErrorKind::Mismatch(error) => Self::patch(&error),
            WriteErrorKind::IdempotencyKeyReused => {
                let detail = "idempotency-key: an earlier request with this key created the item with \
                              other attributes; nothing was changed; use a new key for a new request";
                let title = "The idempotency key was used for another body";
                Self::new(422, "idempotency_key_reused", title, detail).on("idempotency-key")
            }
            WriteErrorKind::AppendOnly => Self::append_only("GET, POST"),
            WriteErrorKind::Table(error) => Self::from_table(&error),
            error @ (WriteErrorKind::Invalid(_) | _) => Self::unexpected(&error),
        }
    }

    /// The problem of a failed read.
    #[must_use]
    pub fn from_read(error: ReadError) -> Self {
        match error {
            ReadError::Capacity { limit } => Self::no_capacity(format!(
                "the read got no capacity before the deadline (limit: {limit}); try again"
            )),
            ReadError::Deadline(cause) => {
                let cause = with_sources(cause.as_ref());
                tracing::warn!(cause, "a read ran into its deadline");
                Self::no_capacity("the deadline passed; try again")
            }
            ReadError::Table(error) => Self::from_table(&error),
            error @ (ReadError::Decode { .. } | ReadError::Invalid(_) | _) => {
                Self::unexpected(&error)
            }
        }
    }

    /// The problem of an error of a table.
    #[must_use]
    pub fn from_table(error: &TableError) -> Self {
        match error {
            TableError::Capacity(_) | TableError::Conflict | TableError::Transient(_) => {
                tracing::warn!(error = with_sources(error), "the tables did not respond in time");
                Self::no_capacity("no response came before the deadline; try again")
            }
            TableError::Rejected(message) => {
                tracing::warn!(error = with_sources(error), "DynamoDB rejected a request");
                let detail = format!("DynamoDB rejected the item: {message}");
                Self::new(400, "refused", "The request is not valid", detail)
            }
            TableError::Lost(_) => {
                tracing::error!(%error, "a request failed permanently");
                let detail = "the metadata that lists the shards of this partition_key is lost; \
                              nothing was read or changed, because items might be missed; \
                              an operator of the service can rebuild it";
                Self::new(500, "metadata_lost", "The metadata of the key is lost", detail)
            }
            error @ (TableError::ConditionFailed
            | TableError::Damaged(_)
            | TableError::Unusable(_)
            | _) => Self::unexpected(error),
        }
    }

    /// 500: only an operator can do something about it, so the cause is in the log.
    pub(crate) fn unexpected(error: &dyn Error) -> Self {
        tracing::error!(error = with_sources(error), "a request failed permanently");
        let detail = "the service could not complete the request; the cause is in its log";
        Self::new(500, "internal_error", "Internal error", detail)
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// The explanation for the client.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.retry_after.is_some()
    }

    /// Adds the item's sort key if the outcome is unknown. The client needs a generated sort key to
    /// repeat the request.
    #[must_use]
    pub fn about(mut self, sort_key: Option<&SortKey>) -> Self {
        if let Some(sort_key) = sort_key.filter(|_| self.0.code == "outcome_unknown") {
            self.0.detail =
                format!("{}; the item's sort_key is {:?}", self.0.detail, sort_key.to_string());
        }
        self
    }

    /// The same problem, for an element of a list.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        if let Some(field) = &self.0.field {
            let inner = self.0.detail.strip_prefix(field.as_str()).unwrap_or(&self.0.detail);
            let field = if field == "body" { place.to_owned() } else { format!("{place}.{field}") };
            self.0.detail = format!("{field}{inner}");
            self.0.field = Some(field);
        }
        self
    }

    /// The problem as an HTTP response.
    #[must_use]
    pub fn into_response(self) -> Response<Body> {
        let body = serde_json::to_string(&self.0).unwrap_or_default();
        let mut response = Response::builder()
            .status(self.0.status)
            .header("content-type", "application/problem+json");
        if let Some(seconds) = self.0.retry_after {
            response = response.header("retry-after", seconds.to_string());
        }
        if let Some(allow) = self.0.allow {
            response = response.header("allow", allow);
        }
        if let Some(types) = self.0.accept_patch {
            response = response.header("accept-patch", types);
        }
        let response = response.body(Body::from(body)).unwrap_or_default();
        tagged(response, self.0.tag.as_ref())
    }
}

/// A JSON response.
#[must_use]
pub fn json(status: u16, body: &impl Serialize) -> Response<Body> {
    match serde_json::to_string(body) {
        Ok(body) => Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap_or_default(),
        Err(error) => Problem::unexpected(&error).into_response(),
    }
}

/// A 204 response.
#[must_use]
pub fn no_content() -> Response<Body> {
    Response::builder().status(204).body(Body::Empty).unwrap_or_default()
}

/// A 304 response: the client already has this state of the item.
#[must_use]
pub fn not_modified(tag: &ETag) -> Response<Body> {
    tagged(Response::builder().status(304).body(Body::Empty).unwrap_or_default(), Some(tag))
}

/// Adds the item's tag to the response, in the header `ETag`, as a strong entity tag.
#[must_use]
pub fn tagged(mut response: Response<Body>, tag: Option<&ETag>) -> Response<Body> {
    if let Some(tag) = tag.and_then(|tag| format!("\"{tag}\"").parse().ok()) {
        response.headers_mut().insert("etag", tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_passed_is_named_and_may_be_tried_again() {
        let late = || "a page of the directory did not come".into();
        let write = WriteErrorKind::Deadline(late()).into();
        let read = ReadError::Deadline(late());
        for (problem, detail) in [
            (Problem::from_write(write), "nothing was changed: the deadline passed; try again"),
            (Problem::from_read(read), "the deadline passed; try again"),
        ] {
            assert_eq!((problem.code(), problem.detail()), ("no_capacity", detail));
            let response = problem.into_response();
            assert_eq!(response.status(), 503);
            assert_eq!(response.headers()["retry-after"], "1");
        }
    }
}
