//! The widths of a key from its metadata item.

use serde_dynamo::AttributeValue;
use serde_json::Value as Json;
use sharding_core::internal::protocol::metadata::{Drain, Phase, ShardMetadata};
use sharding_core::internal::{protocol::history::ShardHistory, protocol::layout::FIRST_ERA};
use sharding_core::{ShardCount, WidthHistory};

use crate::error::StreamError;
use crate::record::{DynamoItem, parse};

/// The widths of a key from its metadata item itself, in DynamoDB's JSON, as `aws dynamodb get-item
/// --consistent-read` prints it. `read_at` is an epoch second before the request.
///
/// # Errors
/// [`StreamError::Field`] names the attribute that is missing or cannot be parsed.
pub fn width_history(item: &Json, read_at: u64) -> Result<WidthHistory, StreamError> {
    let item: DynamoItem = parse(item)?;
    let number = |name: &str| match item.get(name) {
        None => Ok(None),
        Some(AttributeValue::N(text)) if let Ok(number) = text.parse::<u64>() => Ok(Some(number)),
        Some(_) => Err(StreamError::field(name, "is not a whole number")),
    };
    let width =
        number("number_of_shards")?.and_then(|n| u32::try_from(n).ok()).and_then(ShardCount::new);
    let width = width.ok_or_else(|| StreamError::field("number_of_shards", "is not a width"))?;
    let entries = match item.get("shard_history") {
        Some(AttributeValue::Ss(entries)) => entries.as_slice(),
        Some(_) | None => &[],
    };
    let shard_history = ShardHistory::parse(entries.iter().map(String::as_str))
        .map_err(|error| StreamError::field("shard_history", format!("cannot be read: {error}")))?;
    let is_draining = matches!(item.get("draining"), Some(AttributeValue::Bool(true)));
    let drain = Drain { began: 0, busy_until: None, in_doubt: false, emptied_at: None };
    let metadata = ShardMetadata {
        era: number("era")?.unwrap_or(FIRST_ERA),
        last_updated: number("last_updated")?.unwrap_or(0),
        shard_history,
        drained_at: number("drained_at")?,
        phase: if is_draining { Phase::Draining(drain) } else { Phase::Open },
        ..ShardMetadata::unregistered_with(width)
    };
    Ok(WidthHistory::of(&metadata, read_at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_metadata_item_is_named() {
        let with = |name: &str, value: Json| json!({"number_of_shards": {"N": "4"}, name: value});
        let rows = [
            (json!({}), "number_of_shards is not a width"),
            (json!({"number_of_shards": {"N": "0"}}), "number_of_shards is not a width"),
            (json!({"number_of_shards": {"S": "4"}}), "number_of_shards is not a whole number"),
            (with("era", json!({"N": "-1"})), "era is not a whole number"),
            (
                with("shard_history", json!({"SS": ["x"]})),
                "shard_history cannot be read: the history entry \"x\" is not epoch_seconds:count",
            ),
        ];
        for (item, message) in rows {
            assert_eq!(width_history(&item, 0).unwrap_err().to_string(), message);
        }
    }
}
