//! Values that tests name all the time.

use std::ops::Range;
use std::time::Duration;

use sharding::internal::{Deadline, ShardCount, SortKey, SortKeyType};

/// Long enough for what should take milliseconds.
#[must_use]
pub fn soon() -> Deadline {
    Deadline::now() + Duration::from_secs(20)
}

/// So many shards.
///
/// # Panics
/// For none.
#[must_use]
pub fn count(n: u32) -> ShardCount {
    ShardCount::new(n).expect("a count")
}

/// A string sort key.
///
/// # Panics
/// Where it cannot be one.
#[must_use]
pub fn sort_key(text: &str) -> SortKey {
    SortKey::parse(SortKeyType::String, text).expect("a sort key")
}

/// Texts of sort keys, in order.
pub fn numbered(n: Range<u32>) -> impl Iterator<Item = String> {
    n.map(|i| format!("order-{i:04}"))
}
