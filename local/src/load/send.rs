//! Sends lines to the API in batches, with retries.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::LoadOptions;
use super::lines::{Fields, Line, LoadError, next_line};
use cli::output::bar_style;
use cli::records::Lines;

/// The maximum number of failures in the summary.
const MAX_LISTED_FAILURES: usize = 20;
/// The number of keys whose shards the summary lists.
const MAX_LISTED_KEYS: usize = 5;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The outcome of a load.
#[derive(Debug, Default, Clone)]
pub struct Summary {
    /// Lines of the file.
    pub lines: u64,
    /// Lines with a stored item.
    pub stored: u64,
    /// Items with a throttled attempt.
    pub throttled_items: u64,
    /// Throttled attempts.
    pub throttled_attempts: u64,
    /// Attempts beyond the first of each item.
    pub retries: u64,
    /// Lines that failed or whose outcome is unknown: number and reason.
    pub failed: Vec<(u64, String)>,
    /// The most frequent keys: key, lines, and shards if the API reported them.
    pub keys: Vec<(String, u64, Option<u64>)>,
    /// The duration.
    pub elapsed: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let rate = (self.stored as f64 / seconds.max(0.001)) as u64;
        let (stored, lines) = (HumanCount(self.stored), HumanCount(self.lines));
        writeln!(
            f,
            "stored     {stored} of {lines} lines in {seconds:.1} s ({} a second)",
            HumanCount(rate)
        )?;
        let (items, attempts) =
            (HumanCount(self.throttled_items), HumanCount(self.throttled_attempts));
        writeln!(f, "throttled  {items} writes ({attempts} attempts)")?;
        writeln!(f, "retried    {} attempts", HumanCount(self.retries))?;
        writeln!(f, "failed     {}", HumanCount(self.failed.len() as u64))?;
        for (key, lines, shards) in &self.keys {
            let shards = shards.map_or_else(
                || "number of shards unknown".to_owned(),
                |n| format!("{n} shard{}", if n == 1 { "" } else { "s" }),
            );
            writeln!(f, "  {key}: {} lines, {shards}", HumanCount(*lines))?;
        }
        for (line, why) in self.failed.iter().take(MAX_LISTED_FAILURES) {
            writeln!(f, "  line {line}: {why}")?;
        }
        if self.failed.len() > MAX_LISTED_FAILURES {
            writeln!(
                f,
                "  and {} more",
                HumanCount((self.failed.len() - MAX_LISTED_FAILURES) as u64)
            )?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct BatchResponse {
    failed: Vec<FailedItem>,
}

#[derive(Deserialize)]
struct FailedItem {
    index: usize,
    detail: String,
    retryable: bool,
}

#[derive(Deserialize)]
struct ProblemBody {
    detail: String,
}

/// The outcome of one request.
#[derive(Default)]
struct Outcome {
    stored: u64,
    throttled_items: u64,
    throttled_attempts: u64,
    attempts: u64,
    again: Vec<(Line, String)>,
    failed: Vec<(u64, String)>,
}

struct Api {
    client: reqwest::Client,
    url: String,
    attempts: u16,
}

pub(super) async fn store(
    options: &LoadOptions,
    fields: Fields,
    total: u64,
) -> Result<Summary, LoadError> {
    let unreachable = |cause: String| LoadError::Api { url: options.url.clone(), cause };
    let client = reqwest::Client::builder()
        .timeout(REQUEST_TIMEOUT)
        .build()
        .map_err(|error| unreachable(error.to_string()))?;
    let api = Arc::new(Api {
        client,
        url: options.url.trim_end_matches('/').to_owned(),
        attempts: options.attempts,
    });
    api.client
        .get(format!("{}/shards", api.url))
        .send()
        .await
        .map_err(|error| unreachable(api::with_sources(&error)))?;
    let began = Instant::now();
    let bar = ProgressBar::new(total)
        .with_style(bar_style("storing {wide_bar} {human_pos}/{human_len} {per_sec} {eta}"));
    let mut lines = Lines::open(&options.file, None)?;
    let mut summary = Summary { lines: total, ..Summary::default() };
    let mut by_key: HashMap<String, u64> = HashMap::new();
    let slots = Arc::new(Semaphore::new(usize::from(options.concurrency)));
    let mut requests: JoinSet<Outcome> = JoinSet::new();
    let mut at_end = false;
    while !at_end {
        let mut batch = Vec::with_capacity(usize::from(options.batch));
        while batch.len() < usize::from(options.batch) && !at_end {
            match next_line(&mut lines, &options.file, &fields)? {
                Some(line) => {
                    *by_key.entry(line.partition_key.clone()).or_default() += 1;
                    batch.push(line);
                }
                None => at_end = true,
            }
        }
        let slot = Arc::clone(&slots).acquire_owned().await;
        let api = Arc::clone(&api);
        requests.spawn(async move {
            let outcome = api.store(batch).await;
            drop(slot);
            outcome
        });
        while let Some(done) = requests.try_join_next() {
            summary.add(done.unwrap_or_default(), &bar);
        }
    }
    while let Some(done) = requests.join_next().await {
        summary.add(done.unwrap_or_default(), &bar);
    }
    bar.finish_and_clear();
    summary.elapsed = began.elapsed();
    summary.failed.sort();
    let mut keys: Vec<_> = by_key.into_iter().collect();
    keys.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    for (key, lines) in keys.into_iter().take(MAX_LISTED_KEYS) {
        let shards = api.shards(&key).await;
        summary.keys.push((key, lines, shards));
    }
    Ok(summary)
}

impl Summary {
    fn add(&mut self, outcome: Outcome, bar: &ProgressBar) {
        bar.inc(outcome.stored + outcome.failed.len() as u64);
        self.stored += outcome.stored;
        self.throttled_items += outcome.throttled_items;
        self.throttled_attempts += outcome.throttled_attempts;
        self.retries +=
            outcome.attempts.saturating_sub(outcome.stored + outcome.failed.len() as u64);
        self.failed.extend(outcome.failed);
    }
}

impl Api {
    /// Sends a batch until every item is stored, rejected permanently, or out of attempts.
    async fn store(&self, batch: Vec<Line>) -> Outcome {
        let mut total = Outcome::default();
        let (mut left, mut pause) = (batch, MIN_PAUSE);
        for attempt in 1..=self.attempts {
            if left.is_empty() {
                break;
            }
            let sent = self.send(left).await;
            total.stored += sent.stored;
            total.throttled_items += sent.throttled_items;
            total.throttled_attempts += sent.throttled_attempts;
            total.attempts += sent.attempts;
            total.failed.extend(sent.failed);
            if attempt == self.attempts {
                total
                    .failed
                    .extend(sent.again.iter().map(|(line, why)| (line.number, why.clone())));
                break;
            }
            left = sent.again.into_iter().map(|(line, _)| line).collect();
            if !left.is_empty() {
                sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
        total
    }

    async fn send(&self, batch: Vec<Line>) -> Outcome {
        let items: Vec<&str> = batch.iter().map(|line| line.item.as_str()).collect();
        let body = format!("{{\"items\":[{}]}}", items.join(","));
        let request = self
            .client
            .post(format!("{}/items/batch", self.url))
            .header("content-type", "application/json")
            .body(body);
        let everything = |why: &str| Outcome {
            attempts: batch.len() as u64,
            again: batch.iter().map(|line| (line.clone(), why.to_owned())).collect(),
            ..Outcome::default()
        };
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return everything(&api::with_sources(&error)),
        };
        let status = response.status();
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok()?.parse().ok())
                .unwrap_or(0)
        };
        let mut outcome = Outcome {
            throttled_items: header(writer::THROTTLED_ITEMS_HEADER),
            throttled_attempts: header(writer::THROTTLED_HEADER),
            attempts: header(writer::ATTEMPTS_HEADER),
            ..Outcome::default()
        };
        let body = response.bytes().await.unwrap_or_default();
        if !status.is_success() {
            let why = serde_json::from_slice::<ProblemBody>(&body)
                .map_or_else(|_| status.to_string(), |problem| problem.detail);
            if status.is_server_error() || status.as_u16() == 429 {
                return everything(&why);
            }
            outcome.attempts = batch.len() as u64;
            outcome.failed = batch.iter().map(|line| (line.number, why.clone())).collect();
            return outcome;
        }
        let Ok(batch_response) = serde_json::from_slice::<BatchResponse>(&body) else {
            return everything("the response is not that of POST /items/batch");
        };
        outcome.stored = batch.len().saturating_sub(batch_response.failed.len()) as u64;
        for failed in batch_response.failed {
            let Some(line) = batch.get(failed.index) else { continue };
            if failed.retryable {
                outcome.again.push((line.clone(), failed.detail));
            } else {
                outcome.failed.push((line.number, failed.detail));
            }
        }
        outcome
    }

    async fn shards(&self, key: &str) -> Option<u64> {
        let encoded: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let response = self
            .client
            .get(format!("{}/shards?partition_key={encoded}", self.url))
            .send()
            .await
            .ok()?;
        let shards: serde_json::Value = response.json().await.ok()?;
        shards.get("number_of_shards")?.as_u64()
    }
}
