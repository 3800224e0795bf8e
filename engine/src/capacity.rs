//! Partition limits in front of the database. A request is accepted, runs, and is charged the units
//! that it consumed.
//!
//! Each global secondary index has its own partitions, under the name `table/index/name`. A write
//! is rejected if the partition of the table, or of an index, is overdrawn (DynamoDB developer
//! guide, "Understanding Global Secondary Index (GSI) write throttling and back pressure in
//! DynamoDB").
//!
//! The model simplifies:
//! - Each index whose partition key the request names is charged as much as the table, whatever the
//!   index projects and whether its entry changes.
//! - An update or a deletion names only the table's key, so indexes with other keys are not
//!   charged.
//! - Reads of an index are not limited.
//! - A write that fails is charged to the table alone.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::access::Access;
use crate::caller::Caller;
use crate::key_heat::KeyHeats;
use crate::partition_limits::PartitionLimits;
use crate::partitions::{PartitionHeat, Partitions};
use crate::request::{self, Touched};
use crate::response::Response;

/// The billing mode of a table, which selects the exception of a throttled request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Billing {
    OnDemand,
    Provisioned,
}

/// The partitions of every table and index.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    by_table: HashMap<String, PartitionLimits>,
    tables: HashMap<String, Partitions>,
}

impl Limits {
    pub(crate) fn new(by_table: HashMap<String, PartitionLimits>) -> Self {
        Self { by_table, tables: HashMap::new() }
    }

    /// Returns the table or index whose partition is overdrawn; `None` if the key is accepted.
    pub(crate) fn closed(&mut self, one: &Touched, now: Duration) -> Option<String> {
        let closed = one
            .resources()
            .find(|(resource, key)| !self.partitions(resource, now).is_open(key, one.access, now));
        closed.map(|(resource, _)| resource.to_owned())
    }

    /// Charges the units of an operation to the keys that it touched, by weight.
    pub(crate) fn charge(
        &mut self,
        touched: &[Touched],
        consumed: &HashMap<String, f64>,
        keys: &mut KeyHeats,
        now: Duration,
    ) {
        for one in touched {
            let of_table = touched.iter().filter(|other| other.table == one.table);
            let whole: f64 = of_table.map(|other| other.weight).sum();
            let units =
                consumed.get(&one.table).copied().unwrap_or_default() * one.weight / whole.max(1.0);
            // DynamoDB reports one sum for the table and its indexes.
            let units = units / (1 + one.indexes.len()) as f64;
            for (resource, key) in one.resources() {
                self.partitions(resource, now).charge(key, one.access, units);
            }
            if one.access == Access::Write {
                keys.note(&one.table, one.key.text(), units, 0);
            }
        }
    }

    /// The limits of a table or an index. An index without its own limits has those of its table.
    pub(crate) fn of(&self, resource: &str) -> PartitionLimits {
        let (table, _) = request::table_and_index(resource);
        let own = self.by_table.get(resource).or_else(|| self.by_table.get(table));
        own.copied().unwrap_or_default()
    }

    pub(crate) fn heat(&mut self, table: &str, now: Duration) -> Vec<PartitionHeat> {
        let partitions = self.partitions(table, now);
        partitions.advance(now);
        partitions.heat_by_partition()
    }

    pub(crate) fn partitions(&mut self, resource: &str, now: Duration) -> &mut Partitions {
        let limits = self.of(resource);
        self.tables.entry(resource.to_owned()).or_insert_with(|| Partitions::new(limits, now))
    }

    /// Forgets an index, or a table with its indexes.
    pub(crate) fn forget(&mut self, resource: &str) {
        self.tables.retain(|of, _| of != resource && request::table_and_index(of).0 != resource);
    }
}

/// Requests the consumed capacity if the caller did not. Returns whether the response must hide it
/// from the caller.
pub(crate) fn request_consumed(body: &mut Value) -> bool {
    let level = body.get("ReturnConsumedCapacity").and_then(Value::as_str);
    let requested = level.is_some_and(|level| level != "NONE");
    if !requested && let Some(object) = body.as_object_mut() {
        object.insert("ReturnConsumedCapacity".into(), "TOTAL".into());
    }
    !requested
}

/// The consumed units that a response reports, by table.
pub(crate) fn consumed(response: &Value) -> HashMap<String, f64> {
    let Some(reported) = response.get("ConsumedCapacity") else { return HashMap::new() };
    let parts = reported.as_array().map_or(std::slice::from_ref(reported), Vec::as_slice);
    let units = parts.iter().filter_map(|part| {
        Some((request::table_name(part)?.to_owned(), part.get("CapacityUnits")?.as_f64()?))
    });
    units.collect()
}

/// The units of a failed request, by table. A failed condition consumes as much as a write: about
/// the size of its JSON in KB. The indexes were not written, so this clears them from the touched
/// keys.
pub(crate) fn consumed_by_failure(touched: &mut [Touched]) -> HashMap<String, f64> {
    let mut consumed = HashMap::new();
    for one in touched {
        one.indexes.clear();
        *consumed.entry(one.table.clone()).or_default() += match one.access {
            Access::Write => (one.weight / 1_024.0).ceil(),
            Access::Read => 0.5,
        };
    }
    consumed
}

/// The response to a single operation on an overdrawn partition of a table or an index. It has the
/// throttling reason and the exception class of the table's billing mode.
pub(crate) fn throttled(
    access: Access,
    resource: &str,
    billing: Billing,
    caller: &Caller,
) -> Response {
    let scope = if request::table_and_index(resource).1.is_some() { "Index" } else { "Table" };
    let access = if access == Access::Read { "Read" } else { "Write" };
    let reason = format!("{scope}{access}KeyRangeThroughputExceeded");
    let reasons = json!([{ "reason": reason, "resource": caller.arn(resource) }]);
    // The two classes spell the list differently, and the SDK reads each only in its own spelling.
    let body = match billing {
        Billing::OnDemand => json!({
            "__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException",
            "message": "Throughput exceeds the current capacity of a partition of the table.",
            "throttlingReasons": reasons,
        }),
        Billing::Provisioned => json!({
            "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
            "message": "Throughput exceeds the capacity of a partition of the table.",
            "ThrottlingReasons": reasons,
        }),
    };
    Response::json(400, body.to_string())
}

/// The response to a cancelled transaction. It names the throttled actions, but not the throttling
/// reasons.
pub(crate) fn cancelled(touched: &[Touched], billing: Billing) -> Response {
    let code = match billing {
        Billing::OnDemand => "ThrottlingError",
        Billing::Provisioned => "ProvisionedThroughputExceeded",
    };
    let throttled = json!({"Code": code, "Message": "Throughput exceeds the current capacity."});
    let reason = |one: &Touched| match one.closed_by {
        Some(_) => (code, throttled.clone()),
        None => ("None", json!({"Code": "None"})),
    };
    let (codes, reasons): (Vec<&str>, Vec<Value>) = touched.iter().map(reason).unzip();
    let message = "Transaction cancelled, please refer cancellation reasons for specific reasons";
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": format!("{message} [{}]", codes.join(", ")),
        "CancellationReasons": reasons,
    });
    Response::json(400, body.to_string())
}

/// Removes the requests on overdrawn partitions from a batch. Returns them as the response's field
/// of unprocessed requests.
pub(crate) fn split_batch(
    operation: &str,
    body: &mut Value,
    is_closed: impl Fn(&str, &Value) -> bool,
) -> Option<(&'static str, Value)> {
    let mut left = serde_json::Map::new();
    let requests = body.get_mut("RequestItems")?.as_object_mut()?;
    let field = if operation == "BatchGetItem" { "UnprocessedKeys" } else { "UnprocessedItems" };
    for (table, wanted) in requests.iter_mut() {
        let name = request::bare_name(table).to_owned();
        let list =
            if operation == "BatchGetItem" { wanted.get_mut("Keys") } else { Some(&mut *wanted) };
        let Some(list) = list.and_then(Value::as_array_mut) else { continue };
        let closed = |one: &Value| is_closed(&name, request::written(one).unwrap_or(one));
        let (out, rest): (Vec<_>, Vec<_>) = std::mem::take(list).into_iter().partition(closed);
        *list = rest;
        if !out.is_empty() {
            let mut part = wanted.clone();
            match part.get_mut("Keys") {
                Some(keys) => *keys = Value::Array(out),
                None => part = Value::Array(out),
            }
            left.insert(table.clone(), part);
        }
    }
    requests.retain(|_, wanted| {
        wanted.get("Keys").unwrap_or(wanted).as_array().is_none_or(|list| !list.is_empty())
    });
    (!left.is_empty()).then_some((field, Value::Object(left)))
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::partitions::StoredKey;

    fn of(partitions: u32, write_units: f64) -> PartitionLimits {
        PartitionLimits { partitions, write_units, ..PartitionLimits::default() }
    }

    #[test]
    fn an_index_has_the_limits_of_its_table_or_its_own() {
        let by_table = [("items", of(8, 1_000.0)), ("items/index/wide", of(64, 1_000.0))];
        let by_table = by_table.map(|(name, limits)| (name.to_owned(), limits));
        let limits = Limits::new(HashMap::from(by_table));
        let rows = [
            ("items", 8),
            ("items/index/replica", 8),
            ("items/index/wide", 64),
            ("others/index/replica", 4),
        ];
        for (resource, partitions) in rows {
            assert_eq!(limits.of(resource).partitions, partitions, "{resource}");
        }
    }

    #[test]
    fn a_write_is_rejected_by_the_partition_of_an_index() {
        let index = request::index_resource("items", "replica");
        let by_table =
            HashMap::from([("items".to_owned(), of(1, 100.0)), (index.clone(), of(1, 10.0))]);
        let mut limits = Limits::new(by_table);
        let write = write(&index);
        let read = Touched { access: Access::Read, indexes: Vec::new(), ..write.clone() };
        let second = Duration::from_secs(1);
        assert_eq!(limits.closed(&write, Duration::ZERO), None);
        // Twelve for the table, and twelve for the index.
        let consumed = HashMap::from([("items".to_owned(), 24.0)]);
        limits.charge(from_ref(&write), &consumed, &mut KeyHeats::default(), Duration::ZERO);
        assert_eq!(limits.closed(&write, Duration::ZERO), Some(index.clone()));
        assert_eq!(limits.closed(&read, Duration::ZERO), None);
        assert_eq!(limits.closed(&write, second), None, "the index has paid back two of ten");
        let written =
            ["items", index.as_str()].map(|name| limits.heat(name, second)[0].write_units);
        assert_eq!(written, [12.0, 12.0]);

        let caller = Caller::default();
        let response = throttled(Access::Write, &index, Billing::OnDemand, &caller);
        let body = String::from_utf8(response.body).expect("text");
        assert!(body.contains("IndexWriteKeyRangeThroughputExceeded"), "{body}");
        assert!(body.contains("table/items/index/replica"), "{body}");
    }

    #[test]
    fn a_write_that_fails_is_charged_to_the_table_alone() {
        let index = request::index_resource("items", "replica");
        let mut failed = [write(&index)];
        let consumed = consumed_by_failure(&mut failed);
        let mut limits = Limits::new(HashMap::from([("items".to_owned(), of(1, 1_000.0))]));
        limits.charge(&failed, &consumed, &mut KeyHeats::default(), Duration::ZERO);
        let written =
            ["items", index.as_str()].map(|name| limits.heat(name, Duration::ZERO)[0].write_units);
        assert_eq!(written, [1.0, 0.0]);
    }

    /// A write of an item of `items` that is also in this index.
    fn write(index: &str) -> Touched {
        let key = StoredKey::new("k");
        let indexes = vec![(index.to_owned(), key.clone())];
        let (table, access) = ("items".to_owned(), Access::Write);
        Touched { table, key, access, weight: 1.0, indexes, closed_by: None }
    }
}
