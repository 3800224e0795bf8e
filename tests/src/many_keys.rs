//! POSTs and GETs of many keys that never grow, compared with the bare requests of the SDK:
//! requests, units and times. Each side has its own engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use embedded_dynamodb::Engine;
use local::in_process_clients;
use sharding::internal::TableEngine;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::metadata::{self, text};
use crate::{Tables, config, partition_key, soon, sort_key, valued_item};

const SERVICE_TIME: Duration = Duration::from_millis(3);
const SORT_KEY: &str = "123456789101";

/// The operation on every key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Store an item.
    Post,
    /// Read it with strong consistency.
    Get,
}

/// Both operations, in their order.
pub const OPERATIONS: [Operation; 2] = [Operation::Post, Operation::Get];

/// The cost of the operations on some keys.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    /// Requests to both tables.
    pub requests: u64,
    /// Read and write units of both tables.
    pub units: f64,
    times: Vec<Duration>,
}

impl Cost {
    /// The percentile of the durations, in milliseconds.
    pub fn percentile(&self, percent: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[(times.len() - 1) * percent / 100].as_secs_f64() * 1_000.0
    }

    /// Adds the cost of other operations.
    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.units += other.units;
        self.times.extend(other.times);
    }
}

/// A side of the comparison.
#[derive(Debug, Clone)]
pub struct Side {
    engine: Engine,
    client: Client,
    /// `None` for the bare SDK.
    table: Option<TableEngine>,
}

impl Side {
    async fn tables() -> Tables {
        let tables = Tables { service_time: SERVICE_TIME, ..Tables::claimed(config()).await };
        tables.set_unlimited();
        tables
    }

    fn over(tables: Tables, table: Option<TableEngine>) -> Self {
        let client = in_process_clients(&tables.connection()).dynamodb;
        Self { engine: tables.engine, client, table }
    }

    /// The bare requests of the SDK.
    pub async fn bare() -> Self {
        Self::over(Self::tables().await, None)
    }

    /// This product, in a process that has completed its start.
    pub async fn ours() -> Self {
        let tables = Self::tables().await;
        let table = tables.instance(1);
        Box::pin(table.claim_mode(soon())).await.expect("it agrees");
        Self::over(tables, Some(table))
    }

    /// Performs the operation on each of these keys, `at_once` of them concurrently.
    pub async fn carry_out(
        &self,
        operation: Operation,
        keys: std::ops::Range<usize>,
        at_once: usize,
    ) -> Cost {
        let before = self.counts();
        let next = Arc::new(AtomicUsize::new(keys.start));
        let mut workers = JoinSet::new();
        for _ in 0..at_once {
            let (side, next, end) = (self.clone(), Arc::clone(&next), keys.end);
            workers.spawn(async move {
                let mut times = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        return times;
                    }
                    let sent = Instant::now();
                    side.carry_out_one(operation, number).await;
                    times.push(sent.elapsed());
                }
            });
        }
        let times = workers.join_all().await.into_iter().flatten().collect();
        let after = self.counts();
        Cost { requests: after.0 - before.0, units: after.1 - before.1, times }
    }

    async fn carry_out_one(&self, operation: Operation, number: usize) {
        let key = format!("/shared/path-{number:07}.txt");
        match (operation, &self.table) {
            (Operation::Post, Some(table)) => {
                let item = valued_item(partition_key(&key), SORT_KEY, 1_024);
                table.put(&item, soon()).await.expect("stored");
            }
            (Operation::Get, Some(table)) => {
                let (partition_key, sort_key) = (partition_key(&key), sort_key(SORT_KEY));
                let found = table.get(&partition_key, &sort_key, true, soon()).await;
                assert!(found.expect("a response").is_some(), "{key}");
            }
            (Operation::Post, None) => {
                let put = self.client.put_item().table_name("items");
                let put = put.item("partition_key", text(&key)).item("sort_key", text(SORT_KEY));
                put.item("value", metadata::number(1_024)).send().await.expect("stored");
            }
            (Operation::Get, None) => {
                let get = self.client.get_item().table_name("items").consistent_read(true);
                let get = get.key("partition_key", text(&key)).key("sort_key", text(SORT_KEY));
                assert!(get.send().await.expect("a response").item.is_some());
            }
        }
    }

    fn counts(&self) -> (u64, f64) {
        let tables = ["items", "items-metadata"];
        let traffic = tables.map(|table| self.engine.traffic(table));
        let heat = tables.map(|table| self.engine.heat(table));
        let units =
            heat.iter().flatten().map(|partition| partition.read_units + partition.write_units);
        (traffic.iter().map(|of_table| of_table.reads + of_table.writes).sum(), units.sum())
    }
}
