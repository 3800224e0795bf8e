//! The engine: database, partition limits and throttle statistics behind one entry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use dynoxide::Database;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access::Access;
use crate::caller::Caller;
use crate::capacity::{self, Billing, Limits};
use crate::cloudwatch::CloudWatch;
use crate::dispatch::dispatch;
use crate::key_heat::{KeyHeat, KeyHeats};
use crate::partition_limits::PartitionLimits;
use crate::partitions::PartitionHeat;
use crate::request::{self, KeyNames, Touched};
use crate::response::Response;
use crate::warm_throughput::Control;

/// An embedded DynamoDB. Cheap to clone; clones are the same database.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
    caller: Caller,
}

struct Inner {
    db: Database,
    origin: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
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

/// The requests that a table has accepted and rejected since the start, counted by item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Accepted reads.
    pub reads: u64,
    /// Reads rejected by an overdrawn partition.
    pub throttled_reads: u64,
    /// Accepted writes.
    pub writes: u64,
    /// Writes rejected by an overdrawn partition.
    pub throttled_writes: u64,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn over(db: Database) -> Self {
        let inner = Inner { db, origin: Instant::now(), state: Mutex::default() };
        Self { inner: Arc::new(inner), caller: Caller::default() }
    }

    /// Responds to a request with these headers as [`respond`](Self::respond) does. ARNs name the
    /// region of the request's signature.
    #[doc(hidden)]
    pub fn respond_over_http<'a>(
        &self,
        path: &str,
        header: impl Fn(&'static str) -> Option<&'a str>,
        body: &[u8],
    ) -> http::Response<Vec<u8>> {
        let caller = Caller::of(header("authorization"));
        let inner = Arc::clone(&self.inner);
        Self { inner, caller }.respond(path, header("x-amz-target"), body).into_http()
    }

    /// Sets the limits of these tables; every other table has those of a new on-demand table. An
    /// index uses the limits of its table, unless the name `table/index/name` has its own. Resets
    /// all partitions.
    ///
    /// ```
    /// use embedded_dynamodb::{Engine, PartitionLimits};
    /// use sharding::{Attributes, ShardedTable, TableConfig};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::in_memory()?;
    /// # engine.create_table("items", "partition_key", Some("sort_key"))?;
    /// # engine.create_table("items-metadata", "partition_key", None)?;
    /// # let client = aws_sdk_dynamodb::Client::new(&engine.sdk_config());
    /// // Each partition takes ten writes per second.
    /// let limits = PartitionLimits { write_units: 10.0, ..PartitionLimits::default() };
    /// engine.set_limits([("items".to_owned(), limits)]);
    /// let table = ShardedTable::new(&client, TableConfig::new("items", "items-metadata"));
    /// let mut throttled = 0;
    /// for n in 0..20 {
    ///     throttled += table.put("hot", format!("{n:02}"), Attributes::new()).await?.throttled;
    /// }
    /// assert!(throttled > 0);
    /// # Ok(()) }
    /// ```
    pub fn set_limits(&self, by_table: impl IntoIterator<Item = (String, PartitionLimits)>) {
        self.state().limits = Limits::new(by_table.into_iter().collect());
    }

    /// Returns the limits of a table.
    #[doc(hidden)]
    pub fn limits(&self, table: &str) -> PartitionLimits {
        self.state().limits.of(table)
    }

    /// Returns the counts of requests that a table has accepted and rejected.
    #[doc(hidden)]
    pub fn traffic(&self, table: &str) -> Traffic {
        self.state().traffic.get(table).copied().unwrap_or_default()
    }

    /// Returns the units that each partition of a table has served, and the requests that it has
    /// rejected.
    #[doc(hidden)]
    pub fn heat(&self, table: &str) -> Vec<PartitionHeat> {
        let (mut state, now) = self.state_now();
        state.limits.heat(table, now)
    }

    /// Returns the writes of each stored key of a table since the last call. The first call starts
    /// the counting.
    #[doc(hidden)]
    pub fn take_key_heat(&self, table: &str) -> HashMap<String, KeyHeat> {
        self.state().keys.take(table)
    }

    /// Returns the state of an alarm: `OK` if it was never set.
    #[doc(hidden)]
    pub fn alarm_state(&self, name: &str) -> String {
        self.state().cloudwatch.alarm(name).unwrap_or("OK").to_owned()
    }

    /// Sets an alarm's state, as CloudWatch does after an evaluation.
    #[doc(hidden)]
    pub fn set_alarm_state(&self, name: &str, state: &str) {
        self.state().cloudwatch.set_alarm_to(name, state);
    }

    /// Responds to one HTTP request. The header `x-amz-target` selects an operation of the DynamoDB
    /// JSON protocol; the path selects an operation of CloudWatch's CBOR protocol.
    #[doc(hidden)]
    pub fn respond(&self, path: &str, target: Option<&str>, body: &[u8]) -> Response {
        if CloudWatch::serves(path) {
            return self.state().cloudwatch.respond(path, body);
        }
        let services = ["DynamoDB_20120810.", "DynamoDBStreams_20120810."];
        let operation = services.iter().find_map(|service| target?.strip_prefix(*service));
        let Some(operation) = operation else {
            let message = "the header x-amz-target does not name an operation of DynamoDB";
            return Response::error(400, "UnknownOperationException", message);
        };
        let Ok(body @ Value::Object(_)) = serde_json::from_slice(body) else {
            return Response::error(400, "SerializationException", "the body is not a JSON object");
        };
        match self.operate(operation, body) {
            Ok(mut response) => {
                self.caller.put_region_into(operation, &mut response);
                Response::json(200, response.to_string())
            }
            Err(response) => response,
        }
    }

    /// Runs an operation of the DynamoDB API.
    pub(crate) fn operate(&self, operation: &str, mut body: Value) -> Result<Value, Response> {
        match operation {
            "ListStreams" => self.caller.take_region_from(&mut body),
            "DescribeContributorInsights" => {
                let table = request::table_name(&body).unwrap_or_default();
                dispatch(&self.inner.db, "DescribeTable", &json!({ "TableName": table }))?;
                let index = body.get("IndexName").and_then(Value::as_str);
                return Ok(CloudWatch::describe(table, index));
            }
            "CreateTable" | "DeleteTable" | "UpdateTable" | "DescribeTable" => {
                return self.control(operation, body);
            }
            _ => {}
        }
        let mut touched =
            request::touched(operation, &body, |table| self.facts(table).map(|facts| facts.keys));
        if touched.is_empty() {
            return dispatch(&self.inner.db, operation, &body);
        }
        self.close(&mut touched);
        let is_batch = matches!(operation, "BatchWriteItem" | "BatchGetItem");
        let first = touched.iter().find_map(|one| Some((one, one.closed_by.as_deref()?)));
        if let Some((one, resource)) = first
            && (!is_batch || touched.iter().all(|one| one.closed_by.is_some()))
        {
            let billing = self.facts(&one.table).map_or(Billing::OnDemand, |facts| facts.billing);
            return Err(if operation.starts_with("Transact") {
                capacity::cancelled(&touched, billing)
            } else {
                capacity::throttled(one.access, resource, billing, &self.caller)
            });
        }
        let unprocessed = if is_batch { self.split(operation, &mut body, &touched) } else { None };
        touched.retain(|one| one.closed_by.is_none());
        let hidden = capacity::request_consumed(&mut body);
        let result = dispatch(&self.inner.db, operation, &body);
        let consumed = match &result {
            Ok(response) => capacity::consumed(response),
            Err(_) => capacity::consumed_by_failure(&mut touched),
        };
        self.charge(&touched, &consumed);
        let mut response = result?;
        if let Some(object) = response.as_object_mut() {
            if hidden {
                object.remove("ConsumedCapacity");
            }
            if let Some((field, left)) = unprocessed {
                object.insert(field.into(), left);
            }
        }
        Ok(response)
    }

    /// Runs an operation of the control plane. The lock admits one at a time.
    fn control(&self, operation: &str, body: Value) -> Result<Value, Response> {
        let (mut state, now) = self.state_now();
        let State { limits, tables, .. } = &mut *state;
        if operation != "DescribeTable" {
            tables.clear();
        }
        Control { db: &self.inner.db, limits, now }.run(operation, body)
    }

    /// Notes which keys have an overdrawn partition, and counts the requests.
    fn close(&self, touched: &mut [Touched]) {
        let (mut state, now) = self.state_now();
        let state = &mut *state;
        for one in touched {
            one.closed_by = state.limits.closed(one, now);
            let traffic = state.traffic.entry(one.table.clone()).or_default();
            match (one.access, one.closed_by.is_some()) {
                (Access::Read, false) => traffic.reads += 1,
                (Access::Read, true) => traffic.throttled_reads += 1,
                (Access::Write, false) => traffic.writes += 1,
                (Access::Write, true) => {
                    traffic.throttled_writes += 1;
                    state.keys.note(&one.table, one.key.text(), 0.0, 1);
                }
            }
            if one.closed_by.is_some() {
                state.cloudwatch.record(&one.table, one.key.text(), epoch_seconds());
            }
        }
    }

    /// Removes the requests on overdrawn partitions from a batch.
    fn split(
        &self,
        operation: &str,
        body: &mut Value,
        touched: &[Touched],
    ) -> Option<(&'static str, Value)> {
        let closed = touched.iter().filter(|one| one.closed_by.is_some());
        let closed_keys: Vec<(&str, &str)> =
            closed.map(|one| (one.table.as_str(), one.key.text())).collect();
        capacity::split_batch(operation, body, |table, item| {
            let name = self.facts(table).map(|facts| facts.keys.partition_key);
            let key = name.and_then(|name| item.get(name).map(Value::to_string));
            key.is_some_and(|key| closed_keys.contains(&(table, key.as_str())))
        })
    }

    fn charge(&self, touched: &[Touched], consumed: &HashMap<String, f64>) {
        let (mut state, now) = self.state_now();
        let State { limits, keys, .. } = &mut *state;
        limits.charge(touched, consumed, keys, now);
    }

    fn facts(&self, table: &str) -> Option<TableFacts> {
        // The lock is held throughout, as in the control plane. Otherwise a description from before
        // an update could be cached after it.
        let mut state = self.state();
        if let Some(facts) = state.tables.get(table) {
            return Some(facts.clone());
        }
        let described =
            dispatch(&self.inner.db, "DescribeTable", &json!({ "TableName": table })).ok()?;
        let partition_key = |keys: &Value| {
            let is_hash = |key: &&Value| key.get("KeyType").is_some_and(|kind| kind == "HASH");
            let key = keys.as_array()?.iter().find(is_hash)?;
            key.get("AttributeName")?.as_str().map(str::to_owned)
        };
        let indexes = described.pointer("/Table/GlobalSecondaryIndexes").and_then(Value::as_array);
        let indexes = indexes.into_iter().flatten().filter_map(|index| {
            let resource = request::index_resource(table, index.get("IndexName")?.as_str()?);
            Some((resource, partition_key(index.get("KeySchema")?)?))
        });
        let keys = KeyNames {
            partition_key: partition_key(described.pointer("/Table/KeySchema")?)?,
            indexes: indexes.collect(),
        };
        let mode = described.pointer("/Table/BillingModeSummary/BillingMode");
        let on_demand = mode.is_some_and(|mode| mode == "PAY_PER_REQUEST");
        let billing = if on_demand { Billing::OnDemand } else { Billing::Provisioned };
        let facts = TableFacts { keys, billing };
        state.tables.insert(table.to_owned(), facts.clone());
        Some(facts)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the time under the lock, so that the model sees times in order.
    fn state_now(&self) -> (MutexGuard<'_, State>, Duration) {
        let state = self.state();
        let now = self.inner.origin.elapsed();
        (state, now)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the edge where time comes in")]
fn epoch_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
