//! What a request to DynamoDB can end in, sorted by what the caller does about it.

use std::error::Error;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::core::capacity::CapacityScope;

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Throttled, and not applied. Try again later; scale out where the scope is a key range.
    #[error("throttled ({})", .0.name())]
    Capacity(CapacityScope),
    /// The condition did not hold; nothing was changed. Read again and decide anew.
    #[error("the condition of the update did not hold")]
    ConditionFailed,
    /// Another request was at the same item; nothing was changed. Try again.
    #[error("another request was changing the same item")]
    Conflict,
    /// A key's metadata is gone, or older than what is known. Reads would miss items; rebuild it, for repeating will not help.
    #[error("the key's metadata is lost: {0}; rebuild it from the table")]
    Lost(String),
    /// An item of another key stands where the item would: a bare key of an adopted table looks like this key's shard key. Nothing was
    /// changed; repeating will not help.
    #[error("an item of another partition key, which looks like a shard of this one, stands in its place")]
    Occupied,
    /// No answer, or a server fault: it may or may not have been applied. Try again at the same place.
    #[error("no certain answer: {0}")]
    Transient(String),
    /// The request itself is wrong. Repeating it will not help.
    #[error("DynamoDB refused the request: {0}")]
    Rejected(String),
    /// What is stored is not what this product stores. Repair it; repeating will not help.
    #[error("stored data is damaged: {0}")]
    Damaged(String),
    /// The server does not know the operation: it speaks DynamoDB's protocol, but not all of it.
    #[error("the DynamoDB server does not know this operation: {0}")]
    Unsupported(String),
    /// The table is missing or this function may not use it. Repair the deployment; repeating will not help.
    #[error("the table cannot be used: {0}")]
    Unusable(String),
}

impl TableError {
    /// Whether the same request may succeed a moment later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Capacity(_) | Self::Conflict | Self::Transient(_))
    }

    /// Sorts an SDK error.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum is open")]
    pub(crate) fn from_sdk<E>(error: SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let SdkError::ServiceError(service) = &error else {
            return match error {
                SdkError::ConstructionFailure(_) => Self::Unusable(DisplayErrorContext(&error).to_string()),
                _ => Self::Transient(DisplayErrorContext(&error).to_string()),
            };
        };
        let message = service.err().message().unwrap_or("no message").to_owned();
        let status = service.raw().status().as_u16();
        match service.err().code().unwrap_or_default() {
            "ProvisionedThroughputExceededException"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "Throttling" => {
                let reasons = throttling_reasons(service.raw().body().bytes().unwrap_or_default());
                Self::Capacity(CapacityScope::from_reasons(reasons.iter().map(String::as_str)))
            }
            "ConditionalCheckFailedException" => Self::ConditionFailed,
            // Another program's transaction, or a write in another region.
            "TransactionConflictException" | "ReplicatedWriteConflictException" => Self::Conflict,
            "ValidationException" | "ItemCollectionSizeLimitExceededException" | "SerializationException" => {
                Self::Rejected(message)
            }
            "UnknownOperationException" => Self::Unsupported(message),
            _ if status >= 500 => Self::Transient(message),
            code => Self::Unusable(format!("{code}: {message}")),
        }
    }
}

/// The reasons in the body of a throttled answer. DynamoDB spells the list in two ways, and the SDK reads one of them for each exception.
fn throttling_reasons(body: &[u8]) -> Vec<String> {
    let parsed: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    ["ThrottlingReasons", "throttlingReasons"]
        .iter()
        .filter_map(|spelling| parsed.get(spelling)?.as_array())
        .flatten()
        .filter_map(|reason| reason.get("reason")?.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_in_both_spellings() {
        let list = r#"[{"reason":"TableWriteKeyRangeThroughputExceeded","resource":"arn"},{"resource":"no reason"}]"#;
        for body in [
            format!(r#"{{"__type":"x#ThrottlingException","throttlingReasons":{list}}}"#),
            format!(r#"{{"__type":"x#ThrottlingException","ThrottlingReasons":{list}}}"#),
        ] {
            assert_eq!(throttling_reasons(body.as_bytes()), ["TableWriteKeyRangeThroughputExceeded"]);
        }
        for body in ["", "null", "[]", r#"{"ThrottlingReasons":null}"#, "{\"ThrottlingReasons\":"] {
            assert!(throttling_reasons(body.as_bytes()).is_empty(), "{body}");
        }
    }
}
