//! Sends lines to the API in batches, with retries.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use indicatif::{HumanCount, ProgressBar};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::LoadOptions;
use super::lines::{Line, LoadError, next_line};
use crate::traffic::number;
use cli::output::bar_style;
use cli::records::Lines;

const MAX_LISTED_FAILURES: usize = 20;
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
        let rate = HumanCount((self.stored as f64 / seconds.max(0.001)) as u64);
        let (stored, lines) = (HumanCount(self.stored), HumanCount(self.lines));
        writeln!(f, "stored     {stored} of {lines} lines in {seconds:.1} s ({rate} a second)")?;
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
        let unlisted = self.failed.len().saturating_sub(MAX_LISTED_FAILURES);
        if unlisted > 0 {
            writeln!(f, "  and {} more", HumanCount(unlisted as u64))?;
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

struct Api {
    client: reqwest::Client,
    url: String,
    attempts: u16,
}

pub(super) async fn store(options: &LoadOptions, total: u64) -> Result<Summary, LoadError> {
    let unreachable = |cause: String| LoadError::Api { url: options.url.clone(), cause };
    let client = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).build();
    let client = client.map_err(|error| unreachable(error.to_string()))?;
    let url = options.url.trim_end_matches('/').to_owned();
    let api = &Api { client, url, attempts: options.attempts };
    let reached = api.client.get(format!("{}/shards", api.url)).send().await;
    reached.map_err(|error| unreachable(api::with_sources(&error)))?;
    let began = Instant::now();
    let bar = ProgressBar::new(total)
        .with_style(bar_style("storing {wide_bar} {human_pos}/{human_len} {per_sec} {eta}"));
    let mut lines = Lines::open(&options.file, None)?;
    let mut summary = Summary { lines: total, ..Summary::default() };
    let mut by_key: HashMap<String, u64> = HashMap::new();
    let batches = std::iter::from_fn(|| {
        let next = std::iter::from_fn(|| next_line(&mut lines, options).transpose());
        let batch = next.take(options.batch.into()).collect::<Result<Vec<Line>, _>>();
        for line in batch.iter().flatten() {
            *by_key.entry(line.partition_key.clone()).or_default() += 1;
        }
        batch.map(|batch| (!batch.is_empty()).then_some(batch)).transpose()
    });
    let requests = batches.map(|batch| async move {
        Ok::<_, LoadError>(api.store(batch.map_err(LoadError::Changed)?).await)
    });
    let mut outcomes = stream::iter(requests).buffer_unordered(options.concurrency.into());
    while let Some(outcome) = outcomes.next().await {
        summary.add(outcome?, &bar);
    }
    drop(outcomes);
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
    fn add(&mut self, other: Self, bar: &ProgressBar) {
        bar.inc(other.stored + other.failed.len() as u64);
        self.stored += other.stored;
        self.throttled_items += other.throttled_items;
        self.throttled_attempts += other.throttled_attempts;
        self.retries += other.retries;
        self.failed.extend(other.failed);
    }
}

impl Api {
    /// Sends a batch until every item is stored, rejected permanently, or out of attempts.
    async fn store(&self, batch: Vec<Line>) -> Summary {
        let mut total = Summary { lines: batch.len() as u64, ..Summary::default() };
        let (mut left, mut attempts, mut pause) = (batch, 0, MIN_PAUSE);
        for attempt in 1.. {
            let (more, again) = self.send(&left, &mut total).await;
            attempts += more;
            if again.is_empty() {
                break;
            }
            if attempt == self.attempts {
                total.failed.extend(again.into_iter().map(|(line, why)| (line.number, why)));
                break;
            }
            left = again.into_iter().map(|(line, _)| line).collect();
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
        total.retries = attempts.saturating_sub(total.lines);
        total
    }

    /// Sends lines once, and adds their outcomes. Returns the number of attempts, and the lines to
    /// send again with the reasons.
    async fn send(&self, batch: &[Line], total: &mut Summary) -> (u64, Vec<(Line, String)>) {
        let items: Vec<&str> = batch.iter().map(|line| line.item.as_str()).collect();
        let body = format!("{{\"items\":[{}]}}", items.join(","));
        let request = self.client.post(format!("{}/items/batch", self.url)).body(body);
        let everything = |why: &str| {
            let again: Vec<_> = batch.iter().map(|line| (line.clone(), why.to_owned())).collect();
            (batch.len() as u64, again)
        };
        let response = match request.header("content-type", "application/json").send().await {
            Ok(response) => response,
            Err(error) => return everything(&api::with_sources(&error)),
        };
        let status = response.status();
        let header = |name: &str| number(response.headers(), name);
        let attempts = header(writer::ATTEMPTS_HEADER);
        let throttled_items = header(writer::THROTTLED_ITEMS_HEADER);
        let throttled_attempts = header(writer::THROTTLED_HEADER);
        let body = response.bytes().await.unwrap_or_default();
        if !status.is_success() {
            let why = serde_json::from_slice::<ProblemBody>(&body)
                .map_or_else(|_| status.to_string(), |problem| problem.detail);
            if status.is_server_error() || status.as_u16() == 429 {
                return everything(&why);
            }
            total.failed.extend(batch.iter().map(|line| (line.number, why.clone())));
            return (batch.len() as u64, Vec::new());
        }
        let Ok(response) = serde_json::from_slice::<BatchResponse>(&body) else {
            return everything("the response is not that of POST /items/batch");
        };
        total.throttled_items += throttled_items;
        total.throttled_attempts += throttled_attempts;
        total.stored += batch.len().saturating_sub(response.failed.len()) as u64;
        let mut again = Vec::new();
        for failed in response.failed {
            let Some(line) = batch.get(failed.index) else { continue };
            if failed.retryable {
                again.push((line.clone(), failed.detail));
            } else {
                total.failed.push((line.number, failed.detail));
            }
        }
        (attempts, again)
    }

    async fn shards(&self, key: &str) -> Option<u64> {
        let key = utf8_percent_encode(key, NON_ALPHANUMERIC);
        let url = format!("{}/shards?partition_key={key}", self.url);
        let response = self.client.get(url).send().await.ok()?;
        let shards: serde_json::Value = response.json().await.ok()?;
        shards.get("number_of_shards")?.as_u64()
    }
}
