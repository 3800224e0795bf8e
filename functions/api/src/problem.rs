//! Errors as `application/problem+json` (RFC 9457), each with a stable code.

use std::error::Error;

use lambda_http::{Body, Response};
use serde::Serialize;
use sharding::internal::{
    ItemTag, KeyError, MAX_ITEM_BYTES, PatchError, ReadError, SortKey, TableError, WriteError, WriteErrorKind,
};

use crate::patch::PATCHES;
use crate::payload::MAX_PAYLOAD_BYTES;
use crate::respond::etag;

/// A request that was not carried out, told to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem(Box<Members>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    accept_patch: bool,
    #[serde(skip)]
    tag: Option<ItemTag>,
}

/// An error with all that is behind it, for the log.
fn with_sources(error: &dyn Error) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Seconds after which a client may try again: about the time that a scale-out takes.
const RETRY_AFTER_SECONDS: u32 = 1;

impl Problem {
    fn new(status: u16, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self(Box::new(Members {
            kind: format!("urn:problem:dynamodb-write-sharding:{code}"),
            title,
            status,
            detail: detail.into(),
            code,
            field: None,
            retry_after: None,
            allow: None,
            accept_patch: false,
            tag: None,
        }))
    }

    fn on(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// 400: something is wrong with a named part of the request.
    #[must_use]
    pub fn bad(code: &'static str, field: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let field = field.into();
        let detail = format!("{field}: {why}");
        Self::new(400, code, "The request is not valid", detail).on(field)
    }

    /// 400: a key that cannot be used.
    #[must_use]
    pub fn key(code: &'static str, field: &str, error: &KeyError) -> Self {
        Self::bad(code, field, error)
    }

    /// 409: what is asked for does not go together with what is.
    #[must_use]
    pub fn conflict(code: &'static str, detail: &str) -> Self {
        Self::new(409, code, "It does not go together", detail)
    }

    /// 404: no such route.
    #[must_use]
    pub(crate) fn no_route(path: &str) -> Self {
        Self::new(404, "no_such_route", "There is no such route", format!("there is no route {path:?}"))
    }

    /// 404: the item or key is not there.
    #[must_use]
    pub fn absent(what: &str) -> Self {
        Self::new(404, "not_found", "Not found", what)
    }

    /// 405, with the methods that the route has.
    #[must_use]
    pub(crate) fn method(method: &str, path: &str, allow: String) -> Self {
        let detail = format!("{path} does not take {method}; allowed: {allow}");
        let mut problem = Self::new(405, "method_not_allowed", "The method is not allowed", detail);
        problem.0.allow = Some(allow);
        problem
    }

    /// 413: the item or the body is too large.
    #[must_use]
    pub fn too_large(code: &'static str, field: &str, bytes: usize, allowed: usize) -> Self {
        let detail = format!("{field}: {bytes} bytes; at most {allowed} are allowed");
        Self::new(413, code, "Too large", detail).on(field)
    }

    /// 413: the body does not fit into an event.
    #[must_use]
    pub fn body_too_large(bytes: usize, carried: usize) -> Self {
        let detail = format!(
            "body: {carried} bytes as a JSON string, which carries it ({bytes} bytes as sent); at most {MAX_PAYLOAD_BYTES} are allowed"
        );
        Self::new(413, "body_too_large", "Too large", detail).on("body")
    }

    /// 400: a request that an idempotency key does not make repeatable.
    #[must_use]
    pub fn idempotency_key_unused() -> Self {
        let why = "an item that is stored under a given sort_key would not be known again; leave out sort_key, which is then made from the key, or create the item with If-None-Match: *";
        Self::bad("invalid_header", "idempotency-key", why)
    }

    /// 415: the body is not declared as JSON.
    #[must_use]
    pub fn media_type(given: Option<&str>) -> Self {
        Self::media_type_but(given, &["application/json"])
    }

    /// 415: the body is not declared as one of these. A patch also says which it may be in `Accept-Patch` (RFC 5789).
    pub(crate) fn media_type_but(given: Option<&str>, allowed: &[&str]) -> Self {
        let given = given.map_or_else(|| "absent".to_owned(), |given| format!("{given:?}"));
        let detail = format!("content-type: it is {given}; allowed: {}", allowed.join(", "));
        let problem = Self::new(415, "unsupported_media_type", "The media type is not supported", detail);
        let mut problem = problem.on("content-type");
        problem.0.accept_patch = allowed == PATCHES;
        problem
    }

    /// 412: the conditions do not hold. The state of the item is in `ETag`, where there is an item.
    #[must_use]
    pub fn precondition_failed(stands: Option<ItemTag>) -> Self {
        let detail = match &stands {
            Some(_) => {
                "the item is in another state than If-Match or If-None-Match asks for; nothing was changed; ETag names its state"
            }
            None => {
                "there is no item with this partition_key and sort_key, which If-Match asks for; nothing was changed"
            }
        };
        Self::new(412, "precondition_failed", "The condition does not hold", detail).of(stands)
    }

    /// With the state of the item.
    fn of(mut self, tag: Option<ItemTag>) -> Self {
        self.0.tag = tag;
        self
    }

    /// 404: there is no such item.
    #[must_use]
    pub fn no_item() -> Self {
        Self::absent("there is no item with this partition_key and sort_key")
    }

    fn patch(error: &PatchError) -> Self {
        let why = |attribute: &str, why: String| format!("add.{attribute}: {why}; nothing was changed");
        match error {
            PatchError::WrongType { attribute, .. } => {
                let detail = why(attribute, error.to_string());
                Self::new(409, "wrong_attribute_type", "The item does not take the change", detail)
                    .on(format!("add.{attribute}"))
            }
            PatchError::Sum { attribute, cause } => {
                let detail = why(attribute, format!("{error}: {cause}"));
                Self::new(409, "invalid_sum", "The item does not take the change", detail)
                    .on(format!("add.{attribute}"))
            }
            PatchError::TooLarge { bytes } => Self::too_large("item_too_large", "attributes", *bytes, MAX_ITEM_BYTES),
        }
    }

    fn exists() -> Self {
        let detail = "there is an item with this partition_key and sort_key; nothing was changed";
        Self::new(412, "already_exists", "The item exists", detail)
    }

    fn idempotency_key_reused() -> Self {
        let detail = "idempotency-key: an earlier request with this key created the item with other attributes; nothing was changed; choose a new key for a new request";
        Self::new(422, "idempotency_key_reused", "The idempotency key was used for another body", detail)
            .on("idempotency-key")
    }

    /// 405: the table takes appends only. `allow` names the methods that the route still has.
    #[must_use]
    pub fn append_only(allow: &str) -> Self {
        let detail = "the table takes appends only (WRITES=appends, or random placement): neither PUT, PATCH, DELETE nor If-None-Match; allowed: plain POST";
        let mut problem = Self::new(405, "append_only", "The method is not allowed", detail);
        problem.0.allow = Some(allow.to_owned());
        problem
    }

    fn unavailable(code: &'static str, title: &'static str, detail: String) -> Self {
        let mut problem = Self::new(503, code, title, detail);
        problem.0.retry_after = Some(RETRY_AFTER_SECONDS);
        problem
    }

    /// What a failed write is to the client. What only the operator can mend goes to the log, not into the answer.
    #[must_use]
    pub fn from_write(error: WriteError) -> Self {
        let stands = error.stands;
        match error.kind {
            WriteErrorKind::Capacity(scope) => Self::unavailable(
                "no_capacity",
                "No capacity in time",
                format!(
                    "nothing was changed: no capacity came before the deadline (limit: {}); try again",
                    scope.name()
                ),
            ),
            WriteErrorKind::Unknown(cause) => {
                tracing::warn!(cause = with_sources(&cause), "the outcome of a write is unknown");
                let detail = "the write may or may not be carried out: no certain answer came in time; repeat a POST with its Idempotency-Key; without one, repeat a plain POST or a PUT with the same sort_key; a PATCH with its Idempotency-Key; read before you repeat a DELETE, a create-only POST, or a request with If-Match";
                Self::unavailable("outcome_unknown", "The outcome is unknown", detail.to_owned())
            }
            WriteErrorKind::Contended => Self::unavailable(
                "contended",
                "Other writes of the item were in the way",
                "nothing was changed: other writes of the same item were under way until the deadline; try again"
                    .to_owned(),
            ),
            WriteErrorKind::Exists => Self::exists().of(stands),
            WriteErrorKind::Precondition => Self::precondition_failed(stands),
            WriteErrorKind::Absent => Self::no_item(),
            WriteErrorKind::Patch(error) => Self::patch(&error),
            WriteErrorKind::IdempotencyKeyReused => Self::idempotency_key_reused(),
            WriteErrorKind::AppendOnly => Self::append_only("GET, POST"),
            WriteErrorKind::Table(error) => Self::from_table(&error),
        }
    }

    /// What a failed read is to the client.
    #[must_use]
    pub fn from_read(error: ReadError) -> Self {
        match error {
            ReadError::Capacity(scope) => Self::unavailable(
                "no_capacity",
                "No capacity in time",
                format!("nothing could be read before the deadline (limit: {}); try again", scope.name()),
            ),
            ReadError::Table(error) => Self::from_table(&error),
        }
    }

    /// What an error of a table is to the client.
    #[must_use]
    pub fn from_table(error: &TableError) -> Self {
        match error {
            TableError::Capacity(_) | TableError::Conflict | TableError::Transient(_) => {
                tracing::warn!(error = with_sources(error), "the tables did not answer in time");
                Self::unavailable(
                    "no_capacity",
                    "No capacity in time",
                    "no answer came before the deadline; try again".into(),
                )
            }
            TableError::Rejected(message) => {
                tracing::warn!(error = with_sources(error), "DynamoDB refused a request");
                Self::new(400, "refused", "The request is not valid", format!("DynamoDB refused the item: {message}"))
            }
            TableError::Occupied => Self::conflict("ambiguous_key", &error.to_string()),
            TableError::Lost(_) => {
                tracing::error!(%error, "a request failed for good");
                Self::new(
                    500,
                    "metadata_lost",
                    "The metadata of the key is lost",
                    "what says how many shards this partition_key has is lost; nothing was read or changed, for items might be missed. The service's operators can rebuild it",
                )
            }
            TableError::Unsupported(message) => {
                tracing::error!(error = with_sources(error), "the DynamoDB server lacks an operation");
                let detail = format!(
                    "the DynamoDB server behind this API lacks an operation that the request needs ({message}); DynamoDB itself has it"
                );
                Self::new(501, "not_supported", "Not supported by the server", detail)
            }
            TableError::ConditionFailed | TableError::Damaged(_) | TableError::Unusable(_) => {
                tracing::error!(error = with_sources(error), "a request failed for good");
                Self::internal()
            }
        }
    }

    /// 500: an item whose JSON is longer than a response may be. This API cannot have stored it.
    pub(crate) fn response_too_large(bytes: usize) -> Self {
        let detail = format!(
            "the item takes {bytes} bytes as JSON; a response has room for {MAX_PAYLOAD_BYTES}; read it from the table itself"
        );
        Self::new(500, "response_too_large", "The item is too large for a response", detail)
    }

    /// 500: an item that has no JSON.
    pub(crate) fn unprintable(error: &serde_json::Error) -> Self {
        tracing::error!(%error, "an item cannot be written as JSON");
        Self::internal()
    }

    fn internal() -> Self {
        let detail = "the service could not carry out the request; its log says why";
        Self::new(500, "internal_error", "Internal error", detail)
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// The text for the client.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.retry_after.is_some()
    }

    /// Names the item's sort key where the outcome is unknown: one that was made is needed to repeat the request.
    #[must_use]
    pub fn about(mut self, sort_key: &SortKey) -> Self {
        if self.0.code == "outcome_unknown" {
            self.0.detail = format!("{}; its sort_key is {:?}", self.0.detail, sort_key.to_string());
        }
        self
    }

    /// The same problem inside an element of a list.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        if let Some(field) = &self.0.field {
            let inner = self.0.detail.strip_prefix(field.as_str()).unwrap_or(&self.0.detail).to_owned();
            let field = if field == "body" { place.to_owned() } else { format!("{place}.{field}") };
            self.0.detail = format!("{field}{inner}");
            self.0.field = Some(field);
        }
        self
    }

    /// As an HTTP answer.
    #[must_use]
    pub fn into_response(self) -> Response<Body> {
        let body = serde_json::to_string(&self.0).unwrap_or_default();
        let mut response = Response::builder().status(self.0.status).header("content-type", "application/problem+json");
        if let Some(seconds) = self.0.retry_after {
            response = response.header("retry-after", seconds.to_string());
        }
        if let Some(allow) = self.0.allow {
            response = response.header("allow", allow);
        }
        if self.0.accept_patch {
            response = response.header("accept-patch", PATCHES.join(", "));
        }
        if let Some(tag) = &self.0.tag {
            response = response.header("etag", etag(tag));
        }
        response.body(Body::from(body)).unwrap_or_default()
    }
}
