//! A page of a query or of a scan: its bounds, and its answer.

use std::time::Duration;

use serde_json::Value;

use crate::item::{self, object};
use crate::reply::{Members, Reply};

/// The items that a page without a limit may have.
pub(crate) const UNLIMITED: usize = 1_000_000;

/// The bytes at which a page ends. (DynamoDB developer guide, "Query" and "Scan".)
pub(crate) const PAGE_BYTES: usize = 1_024 * 1_024;

/// How long before a query's deadline its page ends: the time for a filter.
pub(crate) const PAGE_MARGIN: Duration = Duration::from_secs(4);

/// A page of these items. So many others were scanned that the client does not see. A count has no
/// items.
pub(crate) fn page_reply(
    body: &Members,
    mut answer: Members,
    items: Vec<Members>,
    hidden: usize,
) -> Reply {
    let scanned = answer.get("ScannedCount").and_then(Value::as_u64).unwrap_or_default();
    let scanned = scanned.saturating_sub(hidden as u64);
    answer.insert("ScannedCount".to_owned(), Value::from(scanned));
    answer.insert("Count".to_owned(), Value::from(items.len()));
    if item::text(body, "Select") != Some("COUNT") {
        answer.insert("Items".to_owned(), items.into_iter().map(Value::Object).collect());
    }
    Reply::ok(answer)
}

pub(crate) fn objects(items: Option<Value>) -> Vec<Members> {
    let Some(Value::Array(items)) = items else { return Vec::new() };
    items.into_iter().filter_map(object).collect()
}

pub(crate) fn consumed(answer: &Members) -> f64 {
    let units = answer.get("ConsumedCapacity").and_then(|it| it.get("CapacityUnits"));
    units.and_then(Value::as_f64).unwrap_or_default()
}
