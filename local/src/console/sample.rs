//! A sample of one second, as the page receives it.

use serde::Serialize;

use crate::traffic::{Latencies, LoadPlan, Totals};

#[derive(Debug, Clone, Serialize)]
pub(super) struct Sample {
    /// Seconds since the Unix epoch.
    pub(super) at: f64,
    pub(super) writes: Writes,
    pub(super) reads: Reads,
    pub(super) latency_ms: Latency,
    pub(super) consumed: Consumed,
    /// The partitions in the order of their hash ranges. If there are very many, each entry is the
    /// hottest of several neighbours. Empty without the embedded engine, and in past samples.
    pub(super) partitions: Vec<Partition>,
    /// The limits of one partition.
    pub(super) limits: Option<Limits>,
    pub(super) keys: Vec<Key>,
    /// The table's warm throughput in write units per second, as published in the directory. `None`
    /// if no key is in use.
    pub(super) warm_write_units: Option<u64>,
    pub(super) load: Option<RunningLoad>,
}

impl Sample {
    pub(super) fn without_partitions(&self) -> Self {
        Self { partitions: Vec::new(), ..self.clone() }
    }
}

/// Writes per second.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Writes {
    pub(super) accepted: u64,
    pub(super) throttled: u64,
    pub(super) failed: u64,
}

/// Reads per second.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Reads {
    pub(super) answered: u64,
    pub(super) throttled: u64,
    pub(super) failed: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Latency {
    pub(super) writes: Option<Quantiles>,
    pub(super) reads: Option<Quantiles>,
}

/// Quantiles in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Quantiles {
    p50: f64,
    p95: f64,
    p99: f64,
}

impl Quantiles {
    pub(super) fn of(latencies: Latencies) -> Option<Self> {
        let [p50, p95, p99] = latencies.quantiles_ms([0.5, 0.95, 0.99])?;
        Some(Self { p50, p95, p99 })
    }
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Consumed {
    pub(super) write_units: f64,
    pub(super) read_units: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Partition {
    pub(super) write_units: f64,
    pub(super) read_units: f64,
    pub(super) throttled: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Limits {
    pub(super) write_units: f64,
    pub(super) read_units: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Key {
    pub(super) partition_key: String,
    pub(super) number_of_shards: u32,
    pub(super) read_shards: u32,
    /// The next number of shards, while writers wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) closing: Option<u32>,
    pub(super) draining: bool,
    pub(super) throttled: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct RunningLoad {
    #[serde(flatten)]
    pub(super) plan: LoadPlan,
    pub(super) seconds: f64,
    #[serde(flatten)]
    pub(super) totals: Totals,
}
