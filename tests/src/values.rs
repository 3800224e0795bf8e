//! Frequent values of tests.

use std::ops::Range;
use std::time::Duration;

use sharding::internal::{Deadline, TableEngine};
use sharding::maintenance::{ScaleError, ScaleOutcome};
use sharding::{Attributes, Item, PartitionKey, ShardCount, SortKey, SortKeyType, Value};

/// A deadline that is long enough for an operation of milliseconds.
pub fn soon() -> Deadline {
    Deadline::now() + Duration::from_secs(20)
}

/// A number of shards.
pub fn count(n: u32) -> ShardCount {
    ShardCount::new(n).expect("a count")
}

/// A string sort key.
pub fn sort_key(text: &str) -> SortKey {
    SortKey::parse(SortKeyType::String, text).expect("a sort key")
}

/// A partition key.
pub fn partition_key(text: &str) -> PartitionKey {
    PartitionKey::new(text).expect("a key")
}

/// An item whose only attribute is the number `value`.
pub fn valued_item(key: PartitionKey, text: &str, value: u64) -> Item {
    let attributes = Attributes::from([("value".to_owned(), Value::N(value.to_string()))]);
    Item { partition_key: key, sort_key: sort_key(text), attributes }
}

/// The number `value` of an item.
pub fn value_of(attributes: &Attributes) -> Option<u64> {
    match attributes.get("value") {
        Some(Value::N(number)) => number.parse().ok(),
        _ => None,
    }
}

/// An item whose only attribute is a text of this size.
pub fn filled_item(key: PartitionKey, text: &str, bytes: usize) -> Item {
    let attributes = Attributes::from([("filler".to_owned(), Value::S("x".repeat(bytes)))]);
    Item { partition_key: key, sort_key: sort_key(text), attributes }
}

/// The texts of numbered sort keys, in order.
pub fn numbered(n: Range<u32>) -> impl Iterator<Item = String> {
    n.map(|i| format!("order-{i:04}"))
}

/// Applies the policy to a key that a report names, as the shard-scaler does.
pub async fn report_throttles(
    table: &TableEngine,
    key: &PartitionKey,
) -> Result<ScaleOutcome, ScaleError> {
    Ok(table.decide_by_report(key, None, soon()).await?.carry_out(150).await?)
}
