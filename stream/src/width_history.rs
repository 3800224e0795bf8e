//! The widths of a key from its metadata item.

use serde_json::Value as Json;
use sharding_core::internal::protocol::metadata::{Drain, Phase, ShardMetadata};
use sharding_core::internal::{protocol::history::ShardHistory, protocol::layout::FIRST_ERA};
use sharding_core::{ShardCount, WidthHistory};

use crate::error::StreamError;
use crate::json::Field;

/// The widths of a key from its metadata item itself, in DynamoDB's JSON, as `aws dynamodb get-item
/// --consistent-read` prints it. `read_at` is an epoch second before the request.
///
/// # Errors
/// [`StreamError::Field`] names the attribute that is missing or cannot be parsed.
pub fn width_history(item: &Json, read_at: u64) -> Result<WidthHistory, StreamError> {
    let root = Field::root(item, "");
    root.object()?;
    let number = |name: &str| {
        let field = root.get(name);
        let Some(_) = field.value else { return Ok(None) };
        let number = field.of_type("N").and_then(|text| text.parse::<u64>().ok());
        number.map(Some).ok_or_else(|| field.is("is not a whole number"))
    };
    let width =
        number("number_of_shards")?.and_then(|n| u32::try_from(n).ok()).and_then(ShardCount::new);
    let width = width.ok_or_else(|| root.get("number_of_shards").is("is not a width"))?;
    let history = root.get("shard_history");
    let entries = history.get("SS").value.and_then(Json::as_array).into_iter().flatten();
    let shard_history = ShardHistory::parse(entries.filter_map(Json::as_str))
        .map_err(|error| history.is(format!("cannot be read: {error}")))?;
    let is_draining = root.get("draining").value.is_some_and(|flag| flag["BOOL"] == true);
    let drain = Drain { began: 0, busy_until: None, in_doubt: false, emptied_at: None };
    let metadata = ShardMetadata {
        era: number("era")?.unwrap_or(FIRST_ERA),
        last_updated: number("last_updated")?.unwrap_or(0),
        shard_history,
        drained_at: number("drained_at")?,
        phase: if is_draining { Phase::Draining(drain) } else { Phase::Open },
        ..ShardMetadata::unregistered_with(width)
    };
    Ok(WidthHistory::of_metadata(&metadata, read_at))
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
