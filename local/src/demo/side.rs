//! One of the two keys under comparison.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sharding::{Deadline, PartitionKey, ScalingEvent, ShardCount, TableConfig};
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::check::{Checked, check_on};
use super::{DemoOptions, KEY};
use crate::decisions::Decision;
use crate::traffic::{Counts, Generated, LoadPlan, generate};
use crate::{Edition, ServeOptions};

/// Throttled attempts for an accepted write that count as relief.
const TOLERATED: f64 = 0.01;
/// Relief has lasted so many seconds before it is called one.
const LASTING: usize = 3;
/// For reading the metadata.
const METADATA_TIME: Duration = Duration::from_secs(1);

/// What happened in one second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Second {
    /// Seconds since the story began.
    pub at: f64,
    /// Writes stored, a second.
    pub accepted: f64,
    /// Throttled attempts, a second.
    pub throttled: f64,
    /// Writes given up, a second.
    pub failed: f64,
    /// Shards that writers use.
    pub shards: u32,
}

/// What the story came to for one key.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Every second.
    pub seconds: Vec<Second>,
    /// Seconds from the step until less than 1 % was throttled; `None` where that never came.
    pub relieved_after: Option<f64>,
    /// Writes stored since the step.
    pub stored: u64,
    /// Writes given up since the step: answered 503, nothing stored.
    pub failed: u64,
    /// Writes without an answer at the end.
    pub unanswered: u64,
    /// Throttled attempts since the step.
    pub throttled: u64,
    /// Latency of the writes of the last third of the story in milliseconds: the median and the 99th percentile.
    pub latency_ms: Option<[f64; 2]>,
    /// What the reads found.
    pub checked: Checked,
}

pub(super) struct Side {
    edition: Edition,
    events: Receiver<ScalingEvent>,
    generated: Generated,
    began: Instant,
    last_look: Instant,
    load: Option<(JoinHandle<()>, u32, Instant)>,
    /// What the load before the present one came to.
    stepped: Option<Totals>,
    seconds: Vec<Second>,
    late: Counts,
    ends: u32,
    checked: Arc<Mutex<Checked>>,
    checks: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy)]
struct Totals {
    stored: u64,
    failed: u64,
    throttled: u64,
    at: Instant,
    writes: u32,
}

impl Side {
    /// An edition; with `most_shards`, its keys never get more.
    pub(super) async fn start(options: &DemoOptions, most_shards: Option<ShardCount>) -> Result<Self, Box<dyn Error>> {
        let mut config = TableConfig::new("items", "items-metadata");
        config.policy.max_shards = most_shards.unwrap_or(config.policy.max_shards);
        let serve = ServeOptions {
            port: 0,
            dynamodb_port: 0,
            partitions: options.partitions,
            partition_write_units: options.partition_write_units,
            ..ServeOptions::default()
        };
        let edition = Edition::start(&serve, config).await?;
        let now = Instant::now();
        let (generated, checked) = (Generated::keeping(), Arc::default());
        let checks = check_on(edition.functions().clone(), generated.clone(), Arc::clone(&checked));
        Ok(Self {
            events: edition.table().scaling_events(),
            edition,
            generated,
            checks: tokio::spawn(checks),
            began: now,
            last_look: now,
            load: None,
            stepped: None,
            seconds: Vec::new(),
            late: Counts::default(),
            ends: options.seconds,
            checked,
        })
    }

    /// From now on so many writes a second. What is counted as after the step begins here.
    pub(super) fn load(&mut self, writes: u32) {
        if let Some((task, ..)) = self.load.take() {
            task.abort();
            let (stored, failed, throttled) =
                (self.generated.stored(), self.generated.failed(), self.generated.throttled());
            self.stepped = Some(Totals { stored, failed, throttled, at: Instant::now(), writes });
        }
        let plan = LoadPlan { partition_key: KEY.to_owned(), keys: 1, writes, reads: 0, item_size: 1_000, skew: 0.0 };
        let task = tokio::spawn(generate(self.edition.functions().clone(), plan, self.generated.clone()));
        self.load = Some((task, writes, Instant::now()));
    }

    /// Notes the second that has passed, and checks what a reader sees; returns what was decided, in words.
    pub(super) async fn look(&mut self) -> Result<Vec<String>, Box<dyn Error>> {
        let functions = self.edition.functions();
        let counts = functions.meter.take();
        let passed = self.last_look.elapsed().as_secs_f64().max(0.1);
        self.last_look = Instant::now();
        let at = self.began.elapsed();
        if at.as_secs() >= u64::from(self.ends) * 2 / 3 {
            self.late.add_writes(&counts);
        }
        let soon = || Deadline::now() + METADATA_TIME;
        // A width that could not be read in time is shown as it was.
        let metadata = functions.table.shards(&PartitionKey::new(KEY)?, soon()).await;
        let shards = metadata.map_or_else(
            |_| self.seconds.last().map_or(1, |second| second.shards),
            |metadata| metadata.map_or(1, |metadata| metadata.number_of_shards.get()),
        );
        self.seconds.push(Second {
            at: at.as_secs_f64(),
            accepted: counts.accepted as f64 / passed,
            throttled: counts.throttled as f64 / passed,
            failed: counts.failed as f64 / passed,
            shards,
        });
        Ok(std::iter::from_fn(|| self.events.try_recv().ok())
            .filter_map(|event| words(&Decision::of(&event)))
            .collect())
    }

    pub(super) fn last(&self) -> Option<&Second> {
        self.seconds.last()
    }

    pub(super) fn end(mut self, step_at: u32) -> Outcome {
        self.checks.abort();
        if let Some((task, ..)) = self.load.take() {
            task.abort();
        }
        let (stored, failed, throttled) =
            (self.generated.stored(), self.generated.failed(), self.generated.throttled());
        let before = self.stepped;
        let since = |now: u64, of: fn(&Totals) -> u64| now - before.as_ref().map_or(0, of);
        let stored = since(stored, |totals| totals.stored);
        let failed = since(failed, |totals| totals.failed);
        let offered = before.map_or(0.0, |totals| totals.at.elapsed().as_secs_f64() * f64::from(totals.writes));
        Outcome {
            relieved_after: relieved_after(&self.seconds, f64::from(step_at)),
            stored,
            failed,
            unanswered: (offered as u64).saturating_sub(stored + failed),
            throttled: since(throttled, |totals| totals.throttled),
            latency_ms: self.late.write_latency.quantiles_ms([0.5, 0.99]),
            seconds: self.seconds,
            checked: *self.checked.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// What a decision means; nothing for those that only wait.
fn words(decision: &Decision) -> Option<String> {
    let Decision { from, to, reason, .. } = decision;
    match decision.outcome {
        "expanding" => Some(format!("{reason}: {from} -> {to} shards; readers look there first (expand)")),
        "scaled" => Some(format!("every reader knows the {to} shards: writers use them now (activate)")),
        _ => None,
    }
}

/// Seconds from the step until so little is throttled, lastingly.
fn relieved_after(seconds: &[Second], step_at: f64) -> Option<f64> {
    let hot: Vec<&Second> = seconds.iter().filter(|second| second.at > step_at + 0.5).collect();
    let first = hot.windows(LASTING).find(|window| {
        window.iter().all(|second| second.accepted > 0.0 && second.throttled <= TOLERATED * second.accepted)
    })?;
    first.first().map(|second| (second.at - step_at).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at: u32, throttled: f64) -> Second {
        Second { at: f64::from(at), accepted: 100.0, throttled, failed: 0.0, shards: 1 }
    }

    #[test]
    fn relief_has_to_last() {
        let throttled = [0.0, 0.0, 50.0, 0.0, 0.0, 9.0, 1.0, 0.0, 0.5, 0.0];
        let seconds: Vec<Second> = throttled.iter().zip(1..).map(|(throttled, at)| second(at, *throttled)).collect();
        assert_eq!(relieved_after(&seconds, 2.0), Some(5.0), "the calm of seconds 4 and 5 does not last");
        assert_eq!(relieved_after(&seconds[..6], 2.0), None);
    }
}
