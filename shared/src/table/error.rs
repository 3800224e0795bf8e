//! The errors of requests to DynamoDB, sorted by what the caller can do.

use std::error::Error;
use std::fmt;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use crate::policy::capacity::CapacityScope;

/// A description of what went wrong, and the underlying error if there is one.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Cause {
    why: String,
    code: Option<Box<str>>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Cause {
    pub(crate) fn by(why: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self { why: why.into(), code: None, source: Some(Box::new(source)) }
    }
}

impl<T: Into<String>> From<T> for Cause {
    fn from(why: T) -> Self {
        Self { why: why.into(), code: None, source: None }
    }
}

/// A request that failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum TableError {
    /// Throttled, and not applied. Try again later. If the scope is a key range, more shards help.
    Capacity(CapacityScope),
    /// The condition did not hold, and nothing was changed. Read again and decide anew.
    ConditionFailed,
    /// Another request was writing the same item, and nothing was changed. Try again.
    Conflict,
    /// A key's metadata is missing, or older than a known state, so reads would miss items. Rebuild
    /// it; repeating does not help.
    Lost(String),
    /// No response, or a server fault: the request may have been applied. Try again at the same
    /// place.
    Transient(Cause),
    /// The request itself is wrong. Repeating it does not help.
    Rejected(Cause),
    /// The stored data is not in this product's format. Repair it; repeating does not help.
    Damaged(String),
    /// A table is missing, or this process may not use it. The text names it. Repair the
    /// deployment; repeating does not help.
    Unusable(Cause),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capacity(scope) => write!(f, "throttled ({})", scope.name()),
            Self::ConditionFailed => f.write_str("the condition of the update did not hold"),
            Self::Conflict => f.write_str("another request was changing the same item"),
            Self::Lost(why) => {
                write!(f, "the key's metadata is lost: {why}; rebuild it from the table")
            }
            Self::Transient(cause) => write!(f, "no certain answer: {cause}"),
            Self::Rejected(cause) => write!(f, "DynamoDB refused the request: {cause}"),
            Self::Damaged(why) => write!(f, "stored data is damaged: {why}"),
            Self::Unusable(cause) => write!(f, "{cause}"),
        }
    }
}

impl Error for TableError {
    /// The cause itself is part of the message.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if let Self::Transient(cause) | Self::Rejected(cause) | Self::Unusable(cause) = self {
            cause.source()
        } else {
            None
        }
    }
}

impl TableError {
    pub(super) fn about(mut self, what: &str) -> Self {
        if let Self::Transient(cause) | Self::Rejected(cause) | Self::Unusable(cause) = &mut self {
            cause.why = format!("{what}: {}", cause.why);
        }
        self
    }

    /// Whether the same request may succeed a moment later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Capacity(_) | Self::Conflict | Self::Transient(_))
    }

    /// Whether the caller lacks the right to use the table. A right that was just granted may not
    /// be effective yet.
    #[must_use]
    pub fn is_access_denied(&self) -> bool {
        matches!(self, Self::Unusable(Cause { code: Some(code), .. })
            if **code == *"AccessDeniedException")
    }

    /// Classifies an SDK error. `Tables::failed` adds the table to it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum is open")]
    pub(super) fn from_sdk<E>(error: SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let SdkError::ServiceError(service) = &error else {
            return match error {
                SdkError::ConstructionFailure(_) => {
                    Self::Unusable(Cause::by("the request could not be made", error))
                }
                _ => Self::Transient(Cause::by("no response came", error)),
            };
        };
        let message = service.err().message().unwrap_or("no message").to_owned();
        let status = service.raw().status().as_u16();
        let code = service.err().code().unwrap_or_default();
        let body = service.raw().body().bytes().unwrap_or_default();
        if let Some(scope) = throttled_scope(code, body) {
            return Self::Capacity(scope);
        }
        match code {
            "ConditionalCheckFailedException" => Self::ConditionFailed,
            // A transaction of another program, or a write in another region.
            "TransactionConflictException" | "ReplicatedWriteConflictException" => Self::Conflict,
            "ValidationException"
            | "ItemCollectionSizeLimitExceededException"
            | "SerializationException" => Self::Rejected(Cause::by(message, error)),
            _ if status >= 500 => Self::Transient(Cause::by(message, error)),
            code => {
                let (code, why) = (code.into(), format!("{code}: {message}"));
                Self::Unusable(Cause { code: Some(code), ..Cause::by(why, error) })
            }
        }
    }
}

/// `None` if the condition did not hold, where that is no failure: it is there already, or
/// superseded.
pub(crate) fn unless_refused<T>(written: Result<T, TableError>) -> Result<Option<T>, TableError> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(TableError::ConditionFailed) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The limit that a refused request exceeded. `None` if it was not throttled. DynamoDB spells the
/// list of reasons in two ways, and for each exception the SDK reads only one of them.
pub fn throttled_scope(code: &str, body: &[u8]) -> Option<CapacityScope> {
    const CODES: [&str; 4] = [
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
        "Throttling",
    ];
    if !CODES.contains(&code) {
        return None;
    }
    let parsed: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let reasons = ["ThrottlingReasons", "throttlingReasons"]
        .iter()
        .filter_map(|spelling| parsed.get(spelling)?.as_array())
        .flatten()
        .filter_map(|reason| reason.get("reason")?.as_str());
    Some(CapacityScope::from_reasons(reasons))
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
            let scope = |code| throttled_scope(code, body.as_bytes());
            assert_eq!(scope("ThrottlingException"), Some(CapacityScope::KeyRange), "{body}");
            assert_eq!(scope("ValidationException"), None);
        }
        for body in ["", "null", "[]", r#"{"ThrottlingReasons":null}"#, "{\"ThrottlingReasons\":"] {
            let scope = throttled_scope("Throttling", body.as_bytes());
            assert_eq!(scope, Some(CapacityScope::Unknown), "{body}");
        }
    }
}
