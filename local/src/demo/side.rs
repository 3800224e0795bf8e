//! One of the two keys under comparison.

use std::collections::HashSet;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shard_scaler::ScalerConfig;
use sharding::maintenance::{ScalingDecision, ScalingEvent, ScalingStep};
use sharding::{PARTITION_WRITE_UNITS, PartitionKey, ShardCount, TableConfig};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::check::{Checked, check_on};
use super::{Client, DemoOptions, ITEM_BYTES, KEY, boto3};
use crate::decisions::Decision;
use crate::traffic::{Generated, Latencies, LoadPlan, Totals, generate};
use crate::{Edition, ServeOptions, wake};

/// The maximum ratio of throttled attempts to accepted writes that counts as relief.
const MAX_THROTTLED_SHARE: f64 = 0.01;
/// The number of consecutive seconds that make a relief.
const STEADY_SECONDS: usize = 3;
/// The part of the requested writes that counts as the whole load.
pub(super) const FULL_LOAD_SHARE: f64 = 0.95;
/// Writes that a window may miss at its two edges.
const MAX_EDGE_WRITES: f64 = 2.0;
/// Duration of a raise; in DynamoDB, it takes minutes.
const WARMING_SECONDS: u32 = 10;
/// The most partitions that a raise gives a table that is short of them.
const MAX_PARTITIONS: u64 = 40;
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);

/// The measurements of one second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Second {
    /// Seconds since the demo began.
    pub(super) at: f64,
    /// Stored writes per second.
    pub(super) accepted: f64,
    /// Throttled attempts per second.
    pub(super) throttled: f64,
    /// Rejected writes per second.
    pub(super) failed: f64,
    /// Shards that writers use.
    pub(super) shards: u32,
}

/// The result of the demo for one key.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// The measurements of every second.
    pub(super) seconds: Vec<Second>,
    /// Seconds from the rise until the whole load had responses and less than 1 % was throttled.
    /// `None` if that never happened.
    pub(super) relieved_after: Option<f64>,
    /// The writes since the rise. A machine that cannot keep up sends fewer than requested.
    pub(super) totals: Totals,
    /// Writes per second since the rise that reached the table: they were stored, rejected, or
    /// throttled at least once.
    pub(super) offered: f64,
    /// Latency of the writes in the last third of the demo, in milliseconds: the median and the
    /// 99th percentile.
    pub(super) latency_ms: Option<[f64; 2]>,
    /// The results of the read checks.
    pub(super) checked: Checked,
}

pub(super) struct Side {
    edition: Edition,
    events: Receiver<ScalingEvent>,
    generated: Generated,
    began: Instant,
    last_sample: Instant,
    /// The generated load. Dropping it ends the load.
    load: JoinSet<()>,
    /// The requested writes per second, and since when.
    writes: u32,
    load_began: Instant,
    /// The input of the Python program, if it writes.
    boto3: Option<ChildStdin>,
    seconds: Vec<Second>,
    /// Of the writes in the last third of the demo.
    late: Latencies,
    ends: u32,
    checked: Arc<Mutex<Checked>>,
    /// The checks, the Python program with its endpoint, and what wakes the shard-scaler when the
    /// table is short of partitions.
    background: JoinSet<()>,
    /// The partitions at the start.
    partitions: usize,
    /// The lines that were returned before.
    said: HashSet<String>,
}

impl Totals {
    /// The writes that reached the table: they were stored, rejected or throttled. Writes that only
    /// wait for the machine are not counted.
    fn offered(self) -> u64 {
        self.sent.min(self.stored + self.failed + self.throttled)
    }

    /// The writes without a response so far.
    pub(super) const fn pending(self) -> u64 {
        self.sent.saturating_sub(self.stored + self.failed)
    }
}

impl Side {
    /// Starts an edition. `most_shards` limits the shards of its keys.
    pub(super) async fn start(
        options: &DemoOptions,
        most_shards: Option<ShardCount>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut config = TableConfig::new("items", "items-metadata");
        config.policy.max_shards = most_shards.unwrap_or(config.policy.max_shards);
        let serve = ServeOptions {
            port: 0,
            dynamodb_port: 0,
            endpoint_port: 0,
            partitions: options.partitions,
            partition_write_units: options.partition_write_units,
            warming: WARMING_SECONDS,
            ..ServeOptions::default()
        };
        let max_warm_write_units = MAX_PARTITIONS * PARTITION_WRITE_UNITS;
        let of_scaler = ScalerConfig { max_warm_write_units, ..ScalerConfig::default() };
        let mut edition = Edition::start_with(&serve, config, of_scaler).await?;
        let now = Instant::now();
        let (generated, checked) = (Generated::keeping(), Arc::default());
        let mut background = JoinSet::new();
        background.spawn(wake::by_shortage(edition.functions().scaler.clone()));
        let table = edition.table().clone();
        background.spawn(check_on(table, generated.clone(), Arc::clone(&checked)));
        let boto3 = match options.client {
            Client::Api => None,
            Client::Boto3 => {
                Some(boto3::start(&mut edition, generated.clone(), &mut background).await?)
            }
        };
        Ok(Self {
            events: edition.table().maintenance().events(),
            partitions: options.partitions as usize,
            said: HashSet::new(),
            edition,
            generated,
            background,
            began: now,
            last_sample: now,
            load: JoinSet::new(),
            writes: 0,
            load_began: now,
            boto3,
            seconds: Vec::new(),
            late: Latencies::default(),
            ends: options.seconds,
            checked,
        })
    }

    /// Changes the load to this number of writes per second. The totals since the rise start here.
    pub(super) async fn load(&mut self, writes: u32) -> std::io::Result<()> {
        self.load = JoinSet::new();
        (self.writes, self.load_began) = (writes, Instant::now());
        self.generated.restart();
        if let Some(input) = &mut self.boto3 {
            return input.write_all(format!("{writes}\n").as_bytes()).await;
        }
        let (partition_key, item_size) = (KEY.to_owned(), ITEM_BYTES);
        let plan = LoadPlan { partition_key, writes, item_size, ..LoadPlan::default() };
        let functions = self.edition.functions().clone();
        self.load.spawn(generate(functions, plan, self.generated.clone()));
        Ok(())
    }

    /// Records the last second. Returns the scaling decisions as text.
    pub(super) async fn record_second(&mut self) -> Result<Vec<String>, Box<dyn Error>> {
        let counts = self.edition.functions().meter.take();
        let table = self.edition.table();
        let passed = self.last_sample.elapsed().as_secs_f64().max(0.1);
        self.last_sample = Instant::now();
        let at = self.began.elapsed();
        if at.as_secs() >= u64::from(self.ends) * 2 / 3 {
            self.late.add(&counts.write_latency);
        }
        // If the number of shards cannot be read in time, the last one is used.
        let maintenance = table.maintenance().timeout(METADATA_TIMEOUT);
        let shards = match maintenance.metadata(&PartitionKey::new(KEY)?).await {
            Ok(metadata) => metadata.map_or(1, |metadata| metadata.number_of_shards.get()),
            Err(_) => self.seconds.last().map_or(1, |second| second.shards),
        };
        self.seconds.push(Second {
            at: at.as_secs_f64(),
            accepted: counts.accepted as f64 / passed,
            throttled: counts.throttled as f64 / passed,
            failed: counts.failed as f64 / passed,
            shards,
        });
        let mut lines: Vec<String> = std::iter::from_fn(|| self.events.try_recv().ok())
            .filter_map(|event| words(&event))
            .collect();
        if let Some(engine) = self.edition.engine() {
            let partitions = engine.heat(&table.config().table_name).len();
            if partitions != self.partitions {
                lines.push(format!("the table has {partitions} partitions now"));
            }
        }
        // A shortage, for example, is reported again and again.
        lines.retain(|line| self.said.insert(line.clone()));
        Ok(lines)
    }

    /// The stored writes per second of the last second.
    pub(super) fn accepted(&self) -> f64 {
        self.seconds.last().map_or(0.0, |second| second.accepted)
    }

    pub(super) fn end(mut self, step_at: u32) -> Outcome {
        self.background.abort_all();
        self.load.abort_all();
        let totals = self.generated.totals();
        Outcome {
            relieved_after: relieved_after(&self.seconds, step_at.into(), self.writes.into()),
            totals,
            offered: totals.offered() as f64 / self.load_began.elapsed().as_secs_f64(),
            latency_ms: self.late.quantiles_ms([0.5, 0.99]),
            seconds: self.seconds,
            checked: *self.checked.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Describes a scaling step. Returns `None` for steps that the demo does not show.
fn words(event: &ScalingEvent) -> Option<String> {
    let Decision { from, to, reason, outcome, .. } = Decision::of(event);
    if let ScalingStep::Unchanged(ScalingDecision::ShortOfPartitions { write_units, .. }) =
        event.step
    {
        let partitions = write_units? / PARTITION_WRITE_UNITS;
        return Some(format!(
            "the table is short of partitions: it needs {partitions}; the writer wakes the shard-scaler"
        ));
    }
    match outcome {
        "closing" => {
            Some(format!("{reason}: {from} -> {to} shards; writers wait for them (close)"))
        }
        "scaled" => {
            Some(format!("every reader knows the {to} shards: writers use them now (open)"))
        }
        _ => None,
    }
}

/// Seconds from the rise until the whole load has responses and almost no throttles, for several
/// seconds in a row. A smaller load is not relief: then the machine or pending writes limit the
/// load.
fn relieved_after(seconds: &[Second], step_at: f64, requested: f64) -> Option<f64> {
    let hot: Vec<&Second> = seconds.iter().filter(|second| second.at > step_at + 0.5).collect();
    let first = hot.windows(STEADY_SECONDS).find(|window| {
        let handled: f64 = window.iter().map(|second| second.accepted + second.failed).sum();
        handled + MAX_EDGE_WRITES >= FULL_LOAD_SHARE * requested * STEADY_SECONDS as f64
            && window.iter().all(|second| {
                second.accepted > 0.0 && second.throttled <= MAX_THROTTLED_SHARE * second.accepted
            })
    })?;
    first.first().map(|second| (second.at - step_at).max(0.0))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use embedded_dynamodb::InProcess;

    use super::*;
    use crate::in_process_clients;

    #[tokio::test(start_paused = true)]
    async fn the_partitions_are_those_of_the_engine() {
        let options = DemoOptions::parse_from(["demo"]);
        let mut side = Side::start(&options, None).await.expect("it starts");
        assert_eq!(side.record_second().await.expect("lines"), Vec::<String>::new());
        let engine = side.edition.engine().expect("the engine is embedded").clone();
        let units =
            aws_sdk_dynamodb::types::WarmThroughput::builder().write_units_per_second(18_000);
        let client = in_process_clients(&InProcess::new(engine)).dynamodb;
        let update = client.update_table().table_name("items").warm_throughput(units.build());
        update.send().await.expect("the table is being warmed");
        tokio::time::advance(Duration::from_secs(11)).await;
        let lines = side.record_second().await.expect("lines");
        assert_eq!(lines, ["the table has 18 partitions now"]);
        assert_eq!(side.record_second().await.expect("lines"), Vec::<String>::new());
    }

    fn second(at: u32, accepted: f64, throttled: f64) -> Second {
        Second { at: f64::from(at), accepted, throttled, failed: 0.0, shards: 1 }
    }

    #[test]
    fn relief_has_to_last() {
        let throttled = [0.0, 0.0, 50.0, 0.0, 0.0, 9.0, 1.0, 0.0, 0.5, 0.0];
        let seconds = throttled.into_iter().zip(1..);
        let seconds: Vec<Second> = seconds.map(|(rate, at)| second(at, 100.0, rate)).collect();
        // The calm of seconds 4 and 5 does not last.
        assert_eq!(relieved_after(&seconds, 2.0, 100.0), Some(5.0));
        assert_eq!(relieved_after(&seconds[..6], 2.0, 100.0), None);
    }

    #[test]
    fn a_load_that_is_too_small_is_not_relief() {
        // The window makes up for its seconds.
        let uneven = [1_000.0, 1_000.0, 5_000.0, 4_600.0, 5_300.0];
        for (case, accepted, requested, expected) in [
            ("a fifth of the load", [1_000.0; 5], 5_000.0, None),
            ("almost the load", [4_900.0; 5], 5_000.0, Some(1.0)),
            ("an uneven load", uneven, 5_000.0, Some(3.0)),
            ("seconds cut between two writes", [10.0, 9.0, 9.0, 9.0, 9.0], 10.0, Some(1.0)),
        ] {
            let seconds: Vec<_> =
                accepted.into_iter().zip(3..).map(|(rate, at)| second(at, rate, 0.0)).collect();
            assert_eq!(relieved_after(&seconds, 2.0, requested), expected, "{case}");
        }
    }

    #[test]
    fn pending_writes_are_counted() {
        let totals = Totals { sent: 1_000, not_sent: 0, stored: 800, failed: 50, throttled: 2 };
        assert_eq!(totals.pending(), 150);
        assert_eq!(totals.offered(), 852, "148 wait for the machine");
        let throttled = Totals { throttled: 3_000, ..totals };
        assert_eq!(throttled.offered(), 1_000, "the others wait for their turn at the table");
    }
}
