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

/// The median of durations, in milliseconds.
pub fn median(mut durations: Vec<Duration>) -> f64 {
    durations.sort_unstable();
    durations.get(durations.len() / 2).map_or(f64::NAN, |middle| middle.as_secs_f64() * 1_000.0)
}

/// Applies the policy to a key that a report names, as the shard-scaler does.
pub async fn report_throttles(
    table: &TableEngine,
    key: &PartitionKey,
) -> Result<ScaleOutcome, ScaleError> {
    Ok(table.until(soon()).reported(key, None).await?.carry_out(150).await?)
}

/// Whether the environment asks for the large form of the longest tests: `TEST_SIZE=large`, as in
/// `.github/workflows/large-tests.yml`.
pub fn large_tests() -> bool {
    match std::env::var("TEST_SIZE").as_deref() {
        Err(_) | Ok("small") => false,
        Ok("large") => true,
        Ok(other) => panic!("TEST_SIZE is {other:?}; allowed: small, large"),
    }
}

/// Returns the first value in the large form, and the second in the small form.
pub fn large_or<T>(large: T, small: T) -> T {
    if large_tests() { large } else { small }
}
