//! Partition limits in front of the database: let in, run, charge what was consumed.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::engine::Answer;
use crate::key_heat::KeyHeats;
use crate::partitions::{Access, PartitionHeat, PartitionLimits, Partitions};
use crate::request::{self, Touched};

/// The account and region that local ARNs name.
const ARN_PREFIX: &str = "arn:aws:dynamodb:local:000000000000:table/";

/// How a table answers when it throttles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Billing {
    OnDemand,
    Provisioned,
}

/// The partitions of every table.
#[derive(Debug)]
pub(crate) struct Limits {
    default: PartitionLimits,
    by_table: HashMap<String, PartitionLimits>,
    tables: HashMap<String, Partitions>,
}

impl Limits {
    pub(crate) fn new(default: PartitionLimits, by_table: HashMap<String, PartitionLimits>) -> Self {
        Self { default, by_table, tables: HashMap::new() }
    }

    /// Which of the touched keys are on an overdrawn partition.
    pub(crate) fn closed(&mut self, touched: &[Touched], now: Duration) -> Vec<bool> {
        touched
            .iter()
            .map(|one| !self.partitions(&one.table, now).is_open(&one.key, one.sort_key.as_deref(), one.access, now))
            .collect()
    }

    /// Spreads what an operation consumed over the keys it touched, by weight.
    pub(crate) fn charge(
        &mut self,
        touched: &[Touched],
        consumed: &HashMap<String, f64>,
        keys: &mut KeyHeats,
        now: Duration,
    ) {
        for one in touched {
            let whole: f64 = touched.iter().filter(|other| other.table == one.table).map(|other| other.weight).sum();
            let units = consumed.get(&one.table).copied().unwrap_or_default() * one.weight / whole.max(1.0);
            self.partitions(&one.table, now).charge(&one.key, one.sort_key.as_deref(), one.access, units);
            if one.access == Access::Write {
                keys.note(&one.table, one.key.text(), units, 0);
            }
        }
    }

    pub(crate) fn of(&self, table: &str) -> PartitionLimits {
        self.by_table.get(table).copied().unwrap_or(self.default)
    }

    /// The heat of a table's partitions.
    pub(crate) fn heat(&mut self, table: &str, now: Duration) -> Vec<PartitionHeat> {
        self.partitions(table, now).heat_by_partition()
    }

    fn partitions(&mut self, table: &str, now: Duration) -> &mut Partitions {
        let limits = self.of(table);
        self.tables.entry(table.to_owned()).or_insert_with(|| Partitions::new(limits, now))
    }
}

/// Asks for the consumed capacity where the caller did not; says whether it must be taken out of the answer again.
pub(crate) fn ask_for_consumed(body: &mut Value) -> bool {
    let asked = body.get("ReturnConsumedCapacity").and_then(Value::as_str).is_some_and(|asked| asked != "NONE");
    if !asked && let Some(object) = body.as_object_mut() {
        object.insert("ReturnConsumedCapacity".into(), "TOTAL".into());
    }
    !asked
}

/// What an answer says was consumed, by table.
pub(crate) fn consumed(answer: &Value) -> HashMap<String, f64> {
    let Some(reported) = answer.get("ConsumedCapacity") else { return HashMap::new() };
    let one = std::slice::from_ref(reported);
    reported
        .as_array()
        .map_or(one, Vec::as_slice)
        .iter()
        .filter_map(|part| Some((request::table_name(part)?.to_owned(), part.get("CapacityUnits")?.as_f64()?)))
        .collect()
}

/// What a write that did not succeed is charged: a failed condition consumes like a write. About its JSON's size, in KB.
pub(crate) fn consumed_by_failure(touched: &[Touched]) -> HashMap<String, f64> {
    let mut consumed = HashMap::new();
    for one in touched {
        *consumed.entry(one.table.clone()).or_default() += match one.access {
            Access::Write => (one.weight / 1_024.0).ceil(),
            Access::Read => 0.5,
        };
    }
    consumed
}

/// The answer to a single operation on an overdrawn partition: with its reason, in the class of the table's billing mode.
pub(crate) fn throttled(touched: &Touched, billing: Billing) -> Answer {
    let reason = match touched.access {
        Access::Read => "TableReadKeyRangeThroughputExceeded",
        Access::Write => "TableWriteKeyRangeThroughputExceeded",
    };
    let reasons = json!([{ "reason": reason, "resource": format!("{ARN_PREFIX}{}", touched.table) }]);
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
    Answer::json(400, body.to_string())
}

/// A transaction is cancelled as a whole; it says which action was throttled, but not why.
pub(crate) fn cancelled(closed: &[bool], billing: Billing) -> Answer {
    let code = match billing {
        Billing::OnDemand => "ThrottlingError",
        Billing::Provisioned => "ProvisionedThroughputExceeded",
    };
    let reasons: Vec<Value> = closed
        .iter()
        .map(|closed| {
            if *closed {
                json!({"Code": code, "Message": "Throughput exceeds the current capacity."})
            } else {
                json!({"Code": "None"})
            }
        })
        .collect();
    let codes: Vec<&str> = reasons.iter().filter_map(|reason| reason.get("Code")?.as_str()).collect();
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": format!("Transaction cancelled, please refer cancellation reasons for specific reasons [{}]", codes.join(", ")),
        "CancellationReasons": reasons,
    });
    Answer::json(400, body.to_string())
}

/// Takes the requests on overdrawn partitions out of a batch; returns them in the shape of the answer's unprocessed part.
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
        let list = if operation == "BatchGetItem" { wanted.get_mut("Keys") } else { Some(&mut *wanted) };
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
    requests.retain(|_, wanted| wanted.get("Keys").unwrap_or(wanted).as_array().is_none_or(|list| !list.is_empty()));
    (!left.is_empty()).then_some((field, Value::Object(left)))
}
