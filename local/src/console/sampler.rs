//! Samples the edition once a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use embedded_dynamodb::{Engine, PartitionHeat, Traffic};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::{Value, json};
use sharding::maintenance::ShardMetadata;
use sharding::{PartitionKey, ShardCount};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::load::Load;
use super::stream::Feed;
use crate::http_api::Functions;
use crate::traffic::Latencies;

const PERIOD: Duration = Duration::from_secs(1);
/// The lower bound of a sample's duration. The first sample is taken at once.
const MIN_SECONDS: f64 = 0.1;
const MAX_SHOWN_PARTITIONS: usize = 1_000;
const MAX_SHOWN_KEYS: usize = 8;
/// The part of its heat that a key keeps from one sample to the next. It keeps a key on the page
/// for a while after its traffic ends.
const KEPT_HEAT_SHARE: f64 = 0.9;
/// Keys with less heat are removed.
const MIN_HEAT: f64 = 0.05;
const METADATA_TIMEOUT: Duration = Duration::from_millis(500);

/// The rates of a partition.
#[derive(Clone, Serialize)]
struct Partition {
    write_units: f64,
    read_units: f64,
    throttled: u64,
}

pub(super) async fn sample(
    functions: Functions,
    engine: Option<Engine>,
    load: Arc<Load>,
    feed: Arc<Feed>,
) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Before::default();
    let mut keys = Keys::default();
    let mut last = Instant::now();
    loop {
        ticks.tick().await;
        // A busy machine may sample late, so all counts are converted to rates per second.
        let passed = last.elapsed().as_secs_f64().max(MIN_SECONDS);
        last = Instant::now();
        let per_second = |count: u64| (count as f64 / passed).round() as u64;
        let table = &functions.table.config().table_name;
        let counts = functions.meter.take();
        let (partitions, throttled_reads) =
            engine.as_ref().map(|engine| before.sample(engine, table, passed)).unwrap_or_default();
        keys.update(&functions, engine.as_ref(), &load);
        let hottest = keys.hottest(&functions, passed).await;
        let warm_write_units = warm_write_units(&functions, hottest.first()).await;
        let consumed = |units: fn(&Partition) -> f64| {
            partitions.iter().map(units).fold(0.0, |sum, units| sum + units)
        };
        let consumed = json!({
            "write_units": consumed(|partition| partition.write_units),
            "read_units": consumed(|partition| partition.read_units),
        });
        feed.sample(json!({
            // Seconds since the Unix epoch.
            "at": api::since_epoch().as_secs_f64(),
            "writes": {
                "accepted": per_second(counts.accepted),
                "throttled": per_second(counts.throttled),
                "failed": per_second(counts.failed),
            },
            "reads": {
                "answered": per_second(counts.reads),
                "throttled": per_second(throttled_reads),
                "failed": per_second(counts.failed_reads),
            },
            "latency_ms": {
                "writes": quantiles(counts.write_latency),
                "reads": quantiles(counts.read_latency),
            },
            "consumed": consumed,
            // In the order of their hash ranges. Empty without the embedded engine.
            "partitions": shown(partitions),
            // Of one partition.
            "limits": engine.as_ref().map(|engine| {
                let limits = engine.limits(table);
                json!({"write_units": limits.write_units, "read_units": limits.read_units})
            }),
            "keys": hottest,
            "warm_write_units": warm_write_units,
            "load": load.running(),
        }));
    }
}

fn quantiles(latencies: Latencies) -> Option<Value> {
    let [p50, p95, p99] = latencies.quantiles_ms([0.5, 0.95, 0.99])?;
    Some(json!({"p50": p50, "p95": p95, "p99": p99}))
}

/// Returns the table's warm throughput, as published in the directory. It is part of the page of
/// every key in use. Returns `None` if no key is in use.
async fn warm_write_units(functions: &Functions, key: Option<&Value>) -> Option<u64> {
    let key = PartitionKey::new(key?["partition_key"].as_str()?).ok()?;
    let warm =
        functions.table.maintenance().timeout(METADATA_TIMEOUT).warm_throughput(&key).await.ok()?;
    warm.map(|warm| warm.write_units)
}

/// Reduces the partitions to the maximum number, by keeping the hottest of each group of
/// neighbours.
fn shown(partitions: Vec<Partition>) -> Vec<Partition> {
    let group = partitions.len().div_ceil(MAX_SHOWN_PARTITIONS).max(1);
    let hottest = |group: &[Partition]| {
        let heat = |a: &&Partition, b: &&Partition| a.write_units.total_cmp(&b.write_units);
        group.iter().max_by(heat).cloned()
    };
    partitions.chunks(group).filter_map(hottest).collect()
}

/// The engine's counts at the last sample.
#[derive(Default)]
struct Before {
    partitions: Vec<PartitionHeat>,
    traffic: Traffic,
}

impl Before {
    /// Returns the rates of each partition and the number of throttled reads since the last sample.
    fn sample(&mut self, engine: &Engine, table: &str, passed: f64) -> (Vec<Partition>, u64) {
        let heat = engine.heat(table);
        // A raise of the table's warm throughput makes new partitions.
        if heat.len() != self.partitions.len() {
            self.partitions = vec![PartitionHeat::default(); heat.len()];
        }
        let partitions = heat
            .iter()
            .zip(&self.partitions)
            .map(|(now, before)| Partition {
                write_units: (now.write_units - before.write_units) / passed,
                read_units: (now.read_units - before.read_units) / passed,
                throttled: (now.throttled.saturating_sub(before.throttled) as f64 / passed).round()
                    as u64,
            })
            .collect();
        self.partitions = heat;
        let traffic = engine.traffic(table);
        let throttled_reads = traffic.throttled_reads - self.traffic.throttled_reads;
        self.traffic = traffic;
        (partitions, throttled_reads)
    }
}

#[derive(Default)]
struct Keys(BTreeMap<String, KeyHeat>);

#[derive(Default)]
struct KeyHeat {
    heat: f64,
    throttled: u64,
}

impl Keys {
    fn update(&mut self, functions: &Functions, engine: Option<&Engine>, load: &Load) {
        for key in self.0.values_mut() {
            key.heat *= KEPT_HEAT_SHARE;
            key.throttled = 0;
        }
        let config = functions.table.config();
        for (stored, seen) in
            engine.map(|engine| engine.take_key_heat(&config.table_name)).unwrap_or_default()
        {
            let Some((key, _)) = config.parse_shard_key(&stored) else { continue };
            let heat = self.0.entry(key.as_str().to_owned()).or_default();
            heat.heat += seen.write_units + seen.throttled as f64;
            heat.throttled += seen.throttled;
        }
        if engine.is_none() {
            // Another server does not report the heat of keys, so the load's own keys are used.
            for key in load.running().map(|load| load.plan.partition_keys()).unwrap_or_default() {
                self.0.entry(key).or_default().heat = 1.0;
            }
        }
        self.0.retain(|_, key| key.heat >= MIN_HEAT);
    }

    async fn hottest(&self, functions: &Functions, passed: f64) -> Vec<Value> {
        let mut hottest: Vec<(&String, &KeyHeat)> = self.0.iter().collect();
        hottest.sort_by(|(_, a), (_, b)| b.heat.total_cmp(&a.heat));
        let table = &functions.table;
        let shown = hottest.into_iter().take(MAX_SHOWN_KEYS).map(|(name, key)| async move {
            let logical = PartitionKey::new(name).ok()?;
            let maintenance = table.maintenance().timeout(METADATA_TIMEOUT);
            let metadata = maintenance.metadata(&logical).await.ok()?;
            let first = table.config().adopt_shards;
            let metadata = metadata.unwrap_or_else(|| ShardMetadata::unregistered_with(first));
            Some(json!({
                "partition_key": name,
                "number_of_shards": metadata.number_of_shards.get(),
                "read_shards": metadata.read_shards.get(),
                // The next number of shards, while writers wait for it.
                "closing": metadata.closing().map(ShardCount::get),
                "draining": metadata.draining().is_some(),
                "throttled": (key.throttled as f64 / passed).round() as u64,
            }))
        });
        join_all(shown).await.into_iter().flatten().collect()
    }
}
