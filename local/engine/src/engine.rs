//! The engine: database, partition limits and throttle statistics behind one entry.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use dynoxide::Database;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::capacity::{self, Billing, Limits};
use crate::cloudwatch::CloudWatch;
use crate::dispatch::dispatch;
use crate::key_heat::{KeyHeat, KeyHeats};
use crate::partitions::{Access, PartitionHeat, PartitionLimits};
use crate::request::{self, KeyNames, Touched};

/// An embedded DynamoDB. Cheap to clone; clones are the same database.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    db: Database,
    origin: Instant,
    state: Mutex<State>,
}

struct State {
    limits: Limits,
    tables: HashMap<String, TableFacts>,
    cloudwatch: CloudWatch,
    traffic: HashMap<String, Traffic>,
    keys: KeyHeats,
}

#[derive(Debug, Clone)]
struct TableFacts {
    keys: KeyNames,
    billing: Billing,
}

/// What a table took and turned away since the start, in requests for single items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Reads that were answered.
    pub reads: u64,
    /// Reads that met an overdrawn partition.
    pub throttled_reads: u64,
    /// Writes that were answered.
    pub writes: u64,
    /// Writes that met an overdrawn partition.
    pub throttled_writes: u64,
}

/// The database could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("the embedded database cannot be opened: {0}")]
pub struct EngineError(String);

/// An HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The content type.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type: "application/x-amz-json-1.0", body: body.into() }
    }

    pub(crate) const fn cbor(status: u16, body: Vec<u8>) -> Self {
        Self { status, content_type: "application/cbor", body }
    }

    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        let body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": message});
        Self::json(status, body.to_string())
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// A database in memory.
    ///
    /// # Errors
    /// [`EngineError`] where SQLite cannot start.
    pub fn in_memory() -> Result<Self, EngineError> {
        Database::memory().map(Self::over).map_err(|error| EngineError(error.to_string()))
    }

    /// A database in a file, made where there is none.
    ///
    /// # Errors
    /// [`EngineError`] where the file cannot be opened or is no database.
    pub fn in_file(path: &Path) -> Result<Self, EngineError> {
        Database::new(&path.to_string_lossy()).map(Self::over).map_err(|error| EngineError(error.to_string()))
    }

    fn over(db: Database) -> Self {
        let state = State {
            limits: Limits::new(PartitionLimits::default(), HashMap::new()),
            tables: HashMap::new(),
            cloudwatch: CloudWatch::default(),
            traffic: HashMap::new(),
            keys: KeyHeats::default(),
        };
        Self { inner: Arc::new(Inner { db, origin: Instant::now(), state: Mutex::new(state) }) }
    }

    /// Sets the limits of some tables; every other table has those of a new on-demand table.
    pub fn set_limits(&self, by_table: impl IntoIterator<Item = (String, PartitionLimits)>) {
        self.state().limits = Limits::new(PartitionLimits::default(), by_table.into_iter().collect());
    }

    /// The limits of a table.
    #[must_use]
    pub fn limits(&self, table: &str) -> PartitionLimits {
        self.state().limits.of(table)
    }

    /// What a table took and turned away.
    #[must_use]
    pub fn traffic(&self, table: &str) -> Traffic {
        self.state().traffic.get(table).copied().unwrap_or_default()
    }

    /// What each partition of a table has given and turned away.
    #[must_use]
    pub fn heat(&self, table: &str) -> Vec<PartitionHeat> {
        let now = self.inner.origin.elapsed();
        self.state().limits.heat(table, now)
    }

    /// The writes of each stored key of a table since the last call; the first call starts the counting.
    #[must_use]
    pub fn take_key_heat(&self, table: &str) -> HashMap<String, KeyHeat> {
        self.state().keys.take(table)
    }

    /// The state of an alarm; `OK` where it was never set.
    #[must_use]
    pub fn alarm_state(&self, name: &str) -> String {
        self.state().cloudwatch.alarm(name).unwrap_or("OK").to_owned()
    }

    /// Sets an alarm's state, as CloudWatch does when it has evaluated it.
    pub fn set_alarm_state(&self, name: &str, state: &str) {
        self.state().cloudwatch.set_alarm_to(name, state);
    }

    /// Answers one HTTP request: the DynamoDB JSON protocol by its `x-amz-target`, or CloudWatch's CBOR protocol by its path.
    #[must_use]
    pub fn respond(&self, path: &str, target: Option<&str>, body: &[u8]) -> Answer {
        if CloudWatch::serves(path) {
            return self.state().cloudwatch.respond(path, body);
        }
        let operation = target.and_then(|target| {
            target.strip_prefix("DynamoDB_20120810.").or_else(|| target.strip_prefix("DynamoDBStreams_20120810."))
        });
        let Some(operation) = operation else {
            return Answer::error(
                400,
                "UnknownOperationException",
                "the header x-amz-target names no operation of DynamoDB",
            );
        };
        let Ok(body @ Value::Object(_)) = serde_json::from_slice(body) else {
            return Answer::error(400, "SerializationException", "the body is not a JSON object");
        };
        match self.operate(operation, body) {
            Ok(answer) => Answer::json(200, answer.to_string()),
            Err(answer) => answer,
        }
    }

    fn operate(&self, operation: &str, mut body: Value) -> Result<Value, Answer> {
        match operation {
            "DescribeContributorInsights" => {
                let table = request::table_name(&body).unwrap_or_default();
                dispatch(&self.inner.db, "DescribeTable", &json!({ "TableName": table }))?;
                return Ok(CloudWatch::describe(table, body.get("IndexName").and_then(Value::as_str)));
            }
            "CreateTable" | "DeleteTable" | "UpdateTable" => self.state().tables.clear(),
            _ => {}
        }
        let touched = request::touched(operation, &body, |table| self.facts(table).map(|facts| facts.keys));
        if touched.is_empty() {
            return dispatch(&self.inner.db, operation, &body);
        }
        let closed = self.closed(&touched);
        let (open, unprocessed) = match operation {
            "BatchWriteItem" | "BatchGetItem" => self.split(operation, &mut body, touched, &closed)?,
            _ => {
                if let Some(first) = closed.iter().position(|closed| *closed) {
                    return Err(self.refuse(operation, &touched, &closed, first));
                }
                (touched, None)
            }
        };
        let hidden = capacity::ask_for_consumed(&mut body);
        let result = dispatch(&self.inner.db, operation, &body);
        let consumed = result.as_ref().map_or_else(|_| capacity::consumed_by_failure(&open), capacity::consumed);
        self.charge(&open, &consumed);
        let mut answer = result?;
        if let Some(object) = answer.as_object_mut() {
            if hidden {
                object.remove("ConsumedCapacity");
            }
            if let Some((field, left)) = unprocessed {
                object.insert(field.into(), left);
            }
        }
        Ok(answer)
    }

    fn closed(&self, touched: &[Touched]) -> Vec<bool> {
        let now = self.inner.origin.elapsed();
        let mut state = self.state();
        let state = &mut *state;
        let closed = state.limits.closed(touched, now);
        for (one, closed) in touched.iter().zip(&closed) {
            let traffic = state.traffic.entry(one.table.clone()).or_default();
            match (one.access, closed) {
                (Access::Read, false) => traffic.reads += 1,
                (Access::Read, true) => traffic.throttled_reads += 1,
                (Access::Write, false) => traffic.writes += 1,
                (Access::Write, true) => traffic.throttled_writes += 1,
            }
            if *closed && one.access == Access::Write {
                state.keys.note(&one.table, one.key.text(), 0.0, 1);
            }
            if *closed {
                state.cloudwatch.record(&one.table, one.key.text(), one.access, epoch_seconds());
            }
        }
        closed
    }

    #[expect(clippy::type_complexity, reason = "two parts of one batch, used once")]
    fn split(
        &self,
        operation: &str,
        body: &mut Value,
        touched: Vec<Touched>,
        closed: &[bool],
    ) -> Result<(Vec<Touched>, Option<(&'static str, Value)>), Answer> {
        if closed.iter().all(|closed| *closed)
            && let Some(first) = touched.first()
        {
            return Err(capacity::throttled(first, self.billing(&first.table)));
        }
        let shut: Vec<(&str, &str)> = touched
            .iter()
            .zip(closed)
            .filter(|(_, closed)| **closed)
            .map(|(one, _)| (one.table.as_str(), one.key.text()))
            .collect();
        let unprocessed = capacity::split_batch(operation, body, |table, item| {
            let key = self.facts(table).and_then(|facts| item.get(&facts.keys.partition_key).map(Value::to_string));
            key.is_some_and(|key| shut.contains(&(table, key.as_str())))
        });
        let open = touched.into_iter().zip(closed).filter(|(_, closed)| !**closed).map(|(one, _)| one).collect();
        Ok((open, unprocessed))
    }

    fn refuse(&self, operation: &str, touched: &[Touched], closed: &[bool], first: usize) -> Answer {
        let Some(one) = touched.get(first) else {
            return Answer::error(500, "InternalServerError", "a throttled key is missing");
        };
        let billing = self.billing(&one.table);
        if operation.starts_with("Transact") {
            capacity::cancelled(closed, billing)
        } else {
            capacity::throttled(one, billing)
        }
    }

    fn charge(&self, touched: &[Touched], consumed: &HashMap<String, f64>) {
        let now = self.inner.origin.elapsed();
        let mut state = self.state();
        let State { limits, keys, .. } = &mut *state;
        limits.charge(touched, consumed, keys, now);
    }

    fn billing(&self, table: &str) -> Billing {
        self.facts(table).map_or(Billing::OnDemand, |facts| facts.billing)
    }

    fn facts(&self, table: &str) -> Option<TableFacts> {
        if let Some(facts) = self.state().tables.get(table) {
            return Some(facts.clone());
        }
        let described = dispatch(&self.inner.db, "DescribeTable", &json!({ "TableName": table })).ok()?;
        let keys = described.pointer("/Table/KeySchema")?.as_array()?;
        let named = |role: &str| {
            let key = keys.iter().find(|key| key.get("KeyType").is_some_and(|kind| kind == role))?;
            key.get("AttributeName")?.as_str().map(str::to_owned)
        };
        let names = KeyNames { partition_key: named("HASH")?, sort_key: named("RANGE") };
        let on_demand =
            described.pointer("/Table/BillingModeSummary/BillingMode").is_some_and(|mode| mode == "PAY_PER_REQUEST");
        let facts =
            TableFacts { keys: names, billing: if on_demand { Billing::OnDemand } else { Billing::Provisioned } };
        self.state().tables.insert(table.to_owned(), facts.clone());
        Some(facts)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the edge where time comes in")]
fn epoch_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
