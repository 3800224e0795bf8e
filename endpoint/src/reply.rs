//! Responses in DynamoDB's own form: JSON with a checksum, and errors with its types.

use std::fmt::Display;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use sharding::internal::{FailedWrite, throttled_scope};
use sharding::{CapacityScope, ReadError, TableError, WriteError, WriteErrorKind};

/// A map of attributes or members, as DynamoDB's JSON has it.
pub(crate) type Members = Map<String, Value>;

const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-crc32");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");

/// A response to a client.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers, without those of the connection.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Reply {
    /// A body of this endpoint, with its checksum.
    pub(crate) fn json(status: StatusCode, body: &Value) -> Self {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON)]);
        Self { status, headers, body: Bytes::new() }.with_body(body)
    }

    pub(crate) fn ok(body: Members) -> Self {
        Self::json(StatusCode::OK, &Value::Object(body))
    }

    pub(crate) fn text(status: StatusCode, text: &str) -> Self {
        Self { status, ..Self::of_type("text/plain", text) }
    }

    /// A response with a text of this media type.
    pub(crate) fn of_type(media_type: &'static str, text: &str) -> Self {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))]);
        Self { status: StatusCode::OK, headers, body: Bytes::copy_from_slice(text.as_bytes()) }
    }

    pub(crate) fn with_body(mut self, body: &Value) -> Self {
        self.body = Bytes::from(body.to_string());
        self.headers.insert(CHECKSUM, HeaderValue::from(crc32fast::hash(&self.body)));
        self
    }

    /// The members of the body; none if it is no JSON object.
    pub(crate) fn members(&self) -> Members {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.status.is_success()
    }

    /// This reply, or the error that it is.
    pub(crate) fn success(self) -> Result<Self, Failure> {
        if self.is_ok() { Ok(self) } else { Err(Failure::of(self)) }
    }

    /// The type of an error, without its namespace.
    pub(crate) fn error_type(&self) -> String {
        let members = self.members();
        let full = members.get("__type").and_then(Value::as_str).unwrap_or_default();
        full.rsplit('#').next().unwrap_or_default().to_owned()
    }

    /// The limit, if the request was throttled.
    pub(crate) fn throttled(&self) -> Option<CapacityScope> {
        let is_refused = self.status.is_client_error();
        is_refused.then(|| throttled_scope(&self.error_type(), &self.body)).flatten()
    }
}

/// An error as the client gets it: DynamoDB's own, or one of this endpoint in its form.
#[derive(Debug)]
pub(crate) struct Failure {
    reply: Box<Reply>,
    is_unknown: bool,
}

impl Failure {
    fn new(status: StatusCode, name: &str, message: &str) -> Self {
        Self::of(Reply::json(status, &json!({ "__type": name, "message": message })))
    }

    pub(crate) fn rejected(name: &str, message: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, name, message.as_ref())
    }

    pub(crate) fn of(reply: Reply) -> Self {
        Self { reply: Box::new(reply), is_unknown: false }
    }

    /// The request cannot be served. Correct the program.
    pub(crate) fn validation(message: impl AsRef<str>) -> Self {
        Self::rejected("com.amazon.coral.validate#ValidationException", message)
    }

    /// A cancelled transaction, with one reason for each of the client's items. Of DynamoDB's
    /// reasons, the first `items[0]` belong to the first item, and so on.
    pub(crate) fn with_reasons_of(self, items: &[usize]) -> Self {
        let mut members = self.reply.members();
        let Some(Value::Array(reasons)) = members.remove("CancellationReasons") else {
            return self;
        };
        let code = |reason: &Value| reason["Code"].as_str().unwrap_or("None").to_owned();
        let mut rest = reasons.into_iter();
        let folded = items.iter().filter_map(|count| {
            let of_item = rest.by_ref().take(*count);
            of_item.max_by_key(|reason| code(reason) != "None")
        });
        let folded: Vec<Value> = folded.collect();
        let codes: Vec<String> = folded.iter().map(code).collect();
        for name in ["Message", "message"] {
            if let Some(text) = members.get(name).and_then(Value::as_str)
                && let Some((before, _)) = text.rsplit_once('[')
            {
                let text = format!("{before}[{}]", codes.join(", "));
                members.insert(name.to_owned(), Value::from(text));
            }
        }
        members.insert("CancellationReasons".to_owned(), Value::Array(folded));
        Self::of(Reply::json(self.reply.status, &Value::Object(members)))
    }

    /// What this endpoint does not do with armed keys.
    pub(crate) fn unsupported(what: &str) -> Self {
        Self::validation(format!("{what} is not supported for armed keys (sharding-endpoint)"))
    }

    /// Nothing was done. Trying again helps.
    pub(crate) fn throttled(message: impl AsRef<str>) -> Self {
        let name = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException";
        Self::rejected(name, message)
    }

    /// The write may have been applied, or may be applied later.
    pub(crate) fn unknown() -> Self {
        let message = "sharding-endpoint: the outcome of the write is unknown";
        Self { is_unknown: true, ..Self::internal(message) }
    }

    /// The request failed, and trying again does not help at once.
    pub(crate) fn internal(message: impl AsRef<str>) -> Self {
        let name = "com.amazonaws.dynamodb.v20120810#InternalServerError";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, name, message.as_ref())
    }

    fn of_engine(is_retryable: bool, error: &dyn Display) -> Self {
        let message = format!("sharding-endpoint: {error}");
        if is_retryable {
            return Self::throttled(message);
        }
        tracing::error!(%error, "a request failed");
        Self::internal(message)
    }

    pub(crate) fn unknown_operation() -> Self {
        Self::rejected("com.amazon.coral.service#UnknownOperationException", "")
    }

    /// The request is not signed for this endpoint.
    pub(crate) fn signature(message: impl AsRef<str>) -> Self {
        Self::rejected("com.amazon.coral.service#InvalidSignatureException", message)
    }

    pub(crate) fn is_throttled(&self) -> bool {
        self.reply.throttled().is_some()
    }

    /// The outcome of a write that failed so, as the metrics count it. `None` if the client must
    /// correct it.
    pub(crate) fn outcome(&self) -> Option<FailedWrite> {
        if self.is_throttled() {
            return Some(FailedWrite::NoCapacity);
        }
        let of_server = self.reply.status.is_server_error();
        let failed = if self.is_unknown { FailedWrite::Unknown } else { FailedWrite::Failed };
        of_server.then_some(failed)
    }

    pub(crate) fn into_reply(self) -> Reply {
        *self.reply
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        // Metadata and patterns: nothing was sent to the main table.
        Self::of_engine(error.is_retryable(), &error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::of_engine(error.is_retryable(), &error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        if matches!(error.kind, WriteErrorKind::Unknown(_)) {
            return Self::unknown();
        }
        Self::of_engine(error.is_retryable(), &error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_transaction_has_one_reason_for_each_item() {
        let reason = |code: &str| json!({ "Code": code });
        let cancelled = |codes: &[&str]| {
            json!({
                "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                "Message": format!("Transaction cancelled, please refer [{}]", codes.join(", ")),
                "CancellationReasons": codes.iter().map(|code| reason(code)).collect::<Vec<_>>(),
            })
        };
        for (codes, items, expected) in [
            (&["None", "None", "Conflict"][..], [2, 1], ["None", "Conflict"]),
            (&["None", "ThrottlingError", "None"], [2, 1], ["ThrottlingError", "None"]),
            (&["None", "ValidationError"], [1, 1], ["None", "ValidationError"]),
        ] {
            let of_dynamodb = Reply::json(StatusCode::BAD_REQUEST, &cancelled(codes));
            let reply = Failure::of(of_dynamodb).with_reasons_of(&items).into_reply();
            assert_eq!(Value::Object(reply.members()), cancelled(&expected), "{codes:?}");
            assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        }
        let other = Failure::validation("a wrong key").with_reasons_of(&[2, 1]).into_reply();
        assert_eq!(other.members()["message"], json!("a wrong key"));
    }

    #[test]
    fn only_an_unknown_outcome_is_counted_as_one() {
        for (failure, outcome) in [
            (Failure::unknown(), Some(FailedWrite::Unknown)),
            (Failure::internal("the metadata is lost"), Some(FailedWrite::Failed)),
            (Failure::throttled("no shard has room"), Some(FailedWrite::NoCapacity)),
            (Failure::validation("a wrong expression"), None),
        ] {
            assert_eq!(failure.outcome(), outcome, "{failure:?}");
        }
    }
}
