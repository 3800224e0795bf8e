//! What the endpoint sees of keys that are not armed: which of them are throttled, how many shards
//! they would need, and what would be refused for them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use cli::observed::{HotKey, Observations};
use http_body_util::{BodyExt, Limited};
use metrics::counter;
use quick_cache::sync::Cache;
use serde_json::json;
use sharding::CapacityScope;
use sharding::internal::policy::rules::ScalingPolicy;
use tokio::time::timeout;

use crate::reply::Reply;
use crate::upstream::connector;

/// The largest number of keys that are counted. The cache keeps those that are written often.
const MAX_KEYS: usize = 4_096;
/// How often the log says which keys were throttled.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
/// The most keys in one report.
const REPORTED_KEYS: usize = 20;
/// The reports that are kept: those of an hour.
const REPORTS: usize = 60;
/// The most that is noted as refused of one key.
const MAX_REFUSED: usize = 32;

/// The counts of one key in a period.
#[derive(Debug, Default)]
struct Counts {
    units: u64,
    throttled: u64,
    /// What its clients use that is refused for armed keys.
    refused: BTreeSet<String>,
}

/// Where an endpoint shows what it has observed.
pub(crate) const PATH: &str = "/observed";
/// The longest that an endpoint may take to show it, and far more bytes than that has.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
const MAX_SHOWN_BYTES: usize = 32 * 1_024 * 1_024;

type Keys = Cache<(String, String), Arc<Mutex<Counts>>>;

/// The counts of all keys. Clones share them.
#[derive(Debug, Clone)]
pub struct Observed {
    keys: Arc<Keys>,
    reports: Arc<Mutex<VecDeque<Vec<HotKey>>>>,
}

impl Default for Observed {
    fn default() -> Self {
        Self { keys: Arc::new(Cache::new(MAX_KEYS)), reports: Arc::default() }
    }
}

impl Observed {
    /// Changes the counts of a key.
    fn count(&self, (table, key): (&str, &str), change: impl FnOnce(&mut Counts)) {
        let of_key = (table.to_owned(), key.to_owned());
        let Ok(counts) =
            self.keys.get_or_insert_with(&of_key, || Ok::<_, Infallible>(Arc::default()));
        change(&mut locked(&counts));
    }

    /// Counts a write of this many write units.
    pub(crate) fn note(&self, key: (&str, &str), units: u64, throttled: Option<CapacityScope>) {
        let is_cured = throttled.is_some_and(CapacityScope::is_cured_by_shards);
        if is_cured {
            counter!("ShardingThrottlesOfUnarmedKeys").increment(1);
        }
        self.count(key, |counts| {
            counts.units += units;
            counts.throttled += u64::from(is_cured);
        });
    }

    /// Notes what is refused for armed keys.
    pub(crate) fn note_refused(&self, key: (&str, &str), what: &str) {
        self.count(key, |counts| {
            if counts.refused.len() < MAX_REFUSED {
                counts.refused.insert(what.to_owned());
            }
        });
    }

    /// The keys that were throttled since the last call, hottest first, and begins a new period.
    #[must_use]
    pub fn take(&self, period: Duration) -> Vec<HotKey> {
        let mut hot: Vec<HotKey> = self
            .keys
            .iter()
            .filter_map(|((table, key), counts)| {
                let mut counts = locked(&counts);
                let (units, throttled) =
                    (mem::take(&mut counts.units), mem::take(&mut counts.throttled));
                let rate = units as f64 / period.as_secs_f64();
                let shards = ScalingPolicy::default().shards_if_throttled(rate);
                let write_units = rate.ceil() as u64;
                let refused = counts.refused.clone();
                let hot = HotKey { table, key, write_units, throttled, shards, refused };
                (throttled > 0).then_some(hot)
            })
            .collect();
        hot.sort_by_key(|hot| Reverse(hot.write_units));
        hot.truncate(REPORTED_KEYS);
        let mut reports = locked(&self.reports);
        reports.truncate(REPORTS - 1);
        reports.push_front(hot.clone());
        hot
    }

    /// The keys of the reports of the last hour, hottest first, each with its hottest period.
    pub(crate) fn of_last_hour(&self) -> Vec<HotKey> {
        let mut by_key = BTreeMap::<_, HotKey>::new();
        for hot in locked(&self.reports).iter().flatten() {
            let of_key = (hot.table.clone(), hot.key.clone());
            let known = by_key.entry(of_key).or_insert_with(|| hot.clone());
            let refused = &known.refused | &hot.refused;
            if hot.write_units > known.write_units {
                *known = hot.clone();
            }
            known.refused = refused;
        }
        let mut hot: Vec<HotKey> = by_key.into_values().collect();
        hot.sort_by_key(|hot| Reverse(hot.write_units));
        hot
    }

    /// These keys as the response of `GET /observed`.
    pub(crate) fn shown(&self) -> Reply {
        let line = format!("{}\n", json!(Observations { not_armed: self.of_last_hour() }));
        Reply::of_type("application/json", &line)
    }
}

/// What an endpoint has observed in the last hour, as text.
pub async fn observations(address: SocketAddr) -> String {
    let nothing =
        |why: &str| format!("{why} at {address}: nothing is known of keys that are not armed\n");
    let Some(answer) = timeout(SHOWN_WITHIN, ask(address)).await.ok().flatten() else {
        return nothing("no endpoint answers");
    };
    let Ok(observed) = Observations::of_line(&answer) else {
        return nothing("no endpoint of this version answers");
    };
    if observed.not_armed.is_empty() {
        return "not armed: no key was throttled in the last hour\n".to_owned();
    }
    let mut text = "not armed, and throttled in the last hour:\n".to_owned();
    for hot in observed.not_armed {
        let HotKey { table, key, write_units, shards, .. } = &hot;
        text += &format!("  {table} {key:?}: {write_units} write units a second, {shards} shards");
        text += &match hot.refused().as_str() {
            "" => "\n".to_owned(),
            refused => format!("; refused once it is armed: {refused}\n"),
        };
    }
    text
}

async fn ask(address: SocketAddr) -> Option<String> {
    let mut request = HttpRequest::empty();
    request.set_uri(format!("http://{address}{PATH}")).ok()?;
    let response = connector().call(request).await.ok()?.try_into_http1x().ok()?;
    let body = Limited::new(response.into_body(), MAX_SHOWN_BYTES).collect().await.ok()?;
    String::from_utf8(body.to_bytes().into()).ok()
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_period_of_an_hour_is_kept() {
        let observed = Observed::default();
        for writes in [10, 5_000, 20] {
            for _ in 0..writes {
                observed.note(("t", "hot"), 1, Some(CapacityScope::KeyRange));
                observed.note(("t", "cold"), 1, None);
                observed.note(("t", "short"), 1, Some(CapacityScope::Table));
            }
            assert_eq!(observed.take(Duration::from_secs(1)).len(), 1);
        }
        let [hot] = &observed.of_last_hour()[..] else { panic!("{observed:?}") };
        assert_eq!((hot.key.as_str(), hot.write_units, hot.shards), ("hot", 5_000, 9));
        for _ in 0..REPORTS {
            assert!(observed.take(Duration::from_secs(1)).is_empty(), "a new period");
        }
        assert!(observed.of_last_hour().is_empty(), "an hour later");
    }
}
