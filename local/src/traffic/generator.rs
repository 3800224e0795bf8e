//! Generates load at a given rate: that of many clients of the API, each of which waits only for
//! its own response.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, StatusCode};
use lambda_http::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use serde::Serialize;
use serde_json::json;
use sharding::SortKeyType;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::meter::number;
use super::plan::LoadPlan;
use crate::http_api::Functions;

/// The interval at which due requests are sent.
const TICK: Duration = Duration::from_millis(10);
const MAX_PENDING: usize = 20_000;
/// The maximum number of bytes in the items of pending requests.
const MAX_PENDING_BYTES: usize = 64 * 1_024 * 1_024;
/// Requests that are due for longer than this are dropped.
const MAX_DELAY: Duration = Duration::from_secs(1);
const MAX_DURATION: Duration = Duration::from_secs(600);
/// The approximate size of an item beyond its data and twice its key: the names of attributes, the
/// shard, the sort key and the version.
const OVERHEAD_BYTES: usize = 140;
const PAGE: usize = 20;

/// Counts the writes of a load. Clones share their counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generated(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    totals: Totals,
    /// The acknowledged sort keys, if they are kept.
    acknowledged: Option<Vec<u64>>,
}

/// The writes of a load since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    pub(crate) sent: u64,
    /// Due writes that the machine could not send in time.
    pub(crate) not_sent: u64,
    pub(crate) stored: u64,
    /// Throttled attempts.
    pub(crate) throttled: u64,
    pub(crate) failed: u64,
}

impl Generated {
    /// Counts a load and keeps the sort keys of its stored items.
    pub(crate) fn keeping() -> Self {
        Self(Arc::new(Mutex::new(Numbers { acknowledged: Some(Vec::new()), ..Numbers::default() })))
    }

    /// Returns the acknowledged sort keys from this one on, in order.
    pub(crate) fn acknowledged_from(&self, from: u64) -> Vec<u64> {
        let numbers = self.lock();
        let acknowledged = numbers.acknowledged.iter().flatten().copied();
        let mut keys: Vec<u64> = acknowledged.filter(|key| *key >= from).collect();
        drop(numbers);
        keys.sort_unstable();
        keys
    }

    pub(crate) fn sent_one(&self) {
        self.lock().totals.sent += 1;
    }

    /// Counts the response to the write of this sort key, with its throttled attempts.
    pub(crate) fn answered(&self, sort_key: u64, is_stored: bool, throttled: u64) {
        let mut numbers = self.lock();
        numbers.totals.throttled += throttled;
        if !is_stored {
            numbers.totals.failed += 1;
            return;
        }
        numbers.totals.stored += 1;
        if let Some(acknowledged) = &mut numbers.acknowledged {
            acknowledged.push(sort_key);
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.lock().totals
    }

    /// Counts from here on.
    pub(crate) fn restart(&self) {
        self.lock().totals = Totals::default();
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the load until it is dropped or reaches its maximum duration.
pub(crate) async fn generate(functions: Functions, plan: LoadPlan, generated: Generated) {
    let keys = plan.partition_keys();
    let mut choice = Choice::new(&plan);
    let mut sort_key = 0;
    let names = keys.iter().map(String::len).max().unwrap_or_default();
    let bytes = (plan.item_size as usize).saturating_sub(OVERHEAD_BYTES + 2 * names).max(1);
    let slots = Arc::new(Semaphore::new((MAX_PENDING_BYTES / bytes).clamp(1, MAX_PENDING)));
    let data = Arc::<str>::from("x".repeat(bytes));
    let mut pending = JoinSet::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let began = Instant::now();
    let (mut writes, mut reads) = (Due::new(plan.writes, began), Due::new(plan.reads, began));
    while began.elapsed() < MAX_DURATION {
        let now = ticks.tick().await;
        writes.pass(now);
        reads.pass(now);
        loop {
            let is_write = match (writes.late(), reads.late()) {
                (None, None) => break,
                (Some(writes), Some(reads)) => writes >= reads,
                (writes, _) => writes.is_some(),
            };
            let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { break };
            let Some(key) = keys.get(choice.next()) else { break };
            let (functions, key) = (functions.clone(), key.clone());
            if is_write {
                writes.take();
                // The current time makes the sort key unique.
                sort_key = epoch_micros().max(sort_key + 1);
                generated.sent_one();
                let (data, generated, sort_key) = (Arc::clone(&data), generated.clone(), sort_key);
                pending.spawn(async move {
                    let (is_stored, throttled) = post(&functions, &key, sort_key, &data).await;
                    generated.answered(sort_key, is_stored, throttled);
                    drop(slot);
                });
            } else {
                reads.take();
                pending.spawn(async move {
                    drop(functions.respond(read(&key)).await);
                    drop(slot);
                });
            }
        }
        generated.lock().totals.not_sent += writes.drop_late();
        reads.drop_late();
        while pending.try_join_next().is_some() {}
    }
}

/// The due requests of one kind.
struct Due {
    rate: f64,
    requests: f64,
    last: Instant,
}

impl Due {
    fn new(rate: u32, now: Instant) -> Self {
        Self { rate: f64::from(rate), requests: 0.0, last: now }
    }

    fn pass(&mut self, now: Instant) {
        self.requests += now.saturating_duration_since(self.last).as_secs_f64() * self.rate;
        self.last = now;
    }

    /// Returns the seconds since the first of them was due. Returns `None` if none is due.
    fn late(&self) -> Option<f64> {
        (self.requests >= 1.0).then(|| self.requests / self.rate)
    }

    fn take(&mut self) {
        self.requests -= 1.0;
    }

    /// Drops the requests that are due for too long. Returns their number.
    fn drop_late(&mut self) -> u64 {
        let most = (MAX_DELAY.as_secs_f64() * self.rate).max(1.0);
        let dropped = (self.requests - most).max(0.0).floor();
        self.requests -= dropped;
        dropped as u64
    }
}

/// Stores an item through the API. Returns whether it was stored, and the throttled attempts.
async fn post(functions: &Functions, key: &str, sort_key: u64, data: &str) -> (bool, u64) {
    let is_number = functions.table.config().sort_key_type == SortKeyType::Number;
    let sort_key = if is_number { json!(sort_key) } else { json!(sort_key.to_string()) };
    let body = json!({"partition_key": key, "sort_key": sort_key, "attributes": {"data": data}});
    let request = request("POST", "/items", Body::from(body.to_string()));
    let response = functions.respond(request).await;
    let throttled = number(response.headers(), writer::THROTTLED_HEADER);
    (response.status() == StatusCode::CREATED, throttled)
}

struct Choice {
    keys: usize,
    zipf: Option<Zipf<f64>>,
    rng: StdRng,
}

impl Choice {
    fn new(plan: &LoadPlan) -> Self {
        let zipf = Zipf::new(f64::from(plan.keys), plan.skew).ok().filter(|_| plan.skew > 0.0);
        Self { keys: plan.keys as usize, zipf, rng: StdRng::seed_from_u64(1) }
    }

    fn next(&mut self) -> usize {
        let Some(zipf) = &self.zipf else { return self.rng.random_range(0..self.keys) };
        // Samples begin at 1.
        (zipf.sample(&mut self.rng) as usize).saturating_sub(1).min(self.keys - 1)
    }
}

fn read(key: &str) -> Request<Body> {
    let key = utf8_percent_encode(key, NON_ALPHANUMERIC);
    request("GET", &format!("/items?partition_key={key}&limit={PAGE}&order=desc"), Body::Empty)
}

fn request(method: &str, uri: &str, body: Body) -> Request<Body> {
    let request =
        Request::builder().method(method).uri(uri).header("content-type", "application/json");
    request.body(body).unwrap_or_default()
}

pub(crate) fn epoch_micros() -> u64 {
    u64::try_from(api::since_epoch().as_micros()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(keys: u32, skew: f64) -> Vec<usize> {
        let mut choice = Choice::new(&LoadPlan { keys, skew, ..LoadPlan::default() });
        let mut counts = vec![0; keys as usize];
        for _ in 0..10_000 {
            counts[choice.next()] += 1;
        }
        counts
    }

    #[test]
    fn requests_that_are_due_for_long_are_dropped_and_counted() {
        let began = Instant::now();
        let mut due = Due::new(100, began);
        due.pass(began + Duration::from_millis(500));
        assert_eq!((due.late(), due.drop_late()), (Some(0.5), 0));
        due.pass(began + Duration::from_secs(3));
        assert_eq!((due.late(), due.drop_late(), due.late()), (Some(3.0), 200, Some(1.0)));
        let mut none = Due::new(0, began);
        none.pass(began + Duration::from_secs(3));
        assert_eq!((none.late(), none.drop_late()), (None, 0));
    }

    #[test]
    fn the_load_is_even_or_follows_zipfs_law() {
        let even = shares(10, 0.0);
        assert!(even.iter().all(|count| (850..1_150).contains(count)), "{even:?}");
        let skewed = shares(10, 1.0);
        // The harmonic number of 10 is 2.93.
        assert!((3_200..3_600).contains(&skewed[0]) && skewed[0] > 8 * skewed[9], "{skewed:?}");
        assert_eq!(shares(1, 1.0), [10_000]);
    }
}
