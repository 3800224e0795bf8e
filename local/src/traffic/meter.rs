//! Counts the outcomes of requests to the API.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use lambda_http::{Body, Response};
use serde::Deserialize;

/// The maximum number of latencies between two samples. Further ones are dropped.
const MAX_LATENCIES: usize = 100_000;

/// The requests since the last sample.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// Stored or deleted items.
    pub(crate) accepted: u64,
    /// Throttled attempts of writes.
    pub(crate) throttled: u64,
    /// Writes that failed on the server or whose outcome is unknown. Invalid requests are not
    /// counted.
    pub(crate) failed: u64,
    pub(crate) reads: u64,
    /// Reads that failed on the server. Invalid requests are not counted.
    pub(crate) failed_reads: u64,
    pub(crate) write_latency: Latencies,
    pub(crate) read_latency: Latencies,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|took| self.record(*took));
    }

    fn record(&mut self, took: Duration) {
        if self.0.len() < MAX_LATENCIES {
            self.0.push(took);
        }
    }

    /// Returns the given quantiles, from 0 to 1, in milliseconds. Returns `None` if there was no
    /// request.
    pub(crate) fn quantiles_ms<const N: usize>(mut self, quantiles: [f64; N]) -> Option<[f64; N]> {
        self.0.sort_unstable();
        let last = self.0.len().checked_sub(1)?;
        let value = |quantile: f64| {
            self.0.get((last as f64 * quantile).round() as usize).copied().unwrap_or_default()
        };
        Some(quantiles.map(|quantile| value(quantile).as_secs_f64() * 1e3))
    }
}

/// Counts requests. Clones share their counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Mutex<Counts>>);

#[derive(Deserialize)]
struct BatchResponse {
    written: u64,
    failed: Vec<serde::de::IgnoredAny>,
}

impl Meter {
    /// Returns the counts since the last call.
    pub(crate) fn take(&self) -> Counts {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn read(&self, status: StatusCode, took: Duration) {
        self.count(|counts| {
            counts.read_latency.record(took);
            if status.is_server_error() {
                counts.failed_reads += 1;
            } else {
                counts.reads += 1;
            }
        });
    }

    pub(crate) fn write(&self, response: &Response<Body>, took: Duration) {
        let (stored, failed) = items(response);
        self.writes(stored, failed, number(response.headers(), writer::THROTTLED_HEADER), took);
    }

    /// Counts the items and the throttled attempts of a request.
    pub(crate) fn writes(&self, stored: u64, failed: u64, throttled: u64, took: Duration) {
        self.count(|counts| {
            counts.write_latency.record(took);
            counts.accepted += stored;
            counts.failed += failed;
            counts.throttled += throttled;
        });
    }

    fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Returns the numbers of stored items and failed items of a request.
fn items(response: &Response<Body>) -> (u64, u64) {
    match response.status() {
        status if status.is_server_error() => (0, 1),
        status if !status.is_success() => (0, 0),
        _ => match serde_json::from_slice::<BatchResponse>(response.body()) {
            Ok(batch) => (batch.written, batch.failed.len() as u64),
            Err(_) => (1, 0),
        },
    }
}

pub(crate) fn number(headers: &HeaderMap, name: &str) -> u64 {
    headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, throttled: &str, body: &str) -> Response<Body> {
        let response =
            Response::builder().status(status).header(writer::THROTTLED_HEADER, throttled);
        response.body(Body::from(body)).expect("the parts are valid")
    }

    #[test]
    fn items_are_counted_and_invalid_requests_are_not() {
        let meter = Meter::default();
        let took = Duration::from_millis(7);
        meter.write(&response(201, "0", r#"{"partition_key":"k"}"#), took);
        meter.write(&response(207, "5", r#"{"written":3,"failed":[{"index":1}]}"#), took);
        meter.write(&response(400, "0", "{}"), took);
        meter.write(&response(503, "9", "{}"), took);
        meter.read(StatusCode::OK, took);
        meter.read(StatusCode::SERVICE_UNAVAILABLE, took);
        let counts = meter.take();
        assert_eq!((counts.accepted, counts.failed, counts.throttled), (4, 2, 14));
        assert_eq!((counts.reads, counts.failed_reads), (1, 1));
        assert_eq!(counts.write_latency.quantiles_ms([0.5]), Some([7.0]));
        assert_eq!(meter.take().accepted, 0);
    }

    #[test]
    fn quantiles_are_of_all_requests() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.clone().quantiles_ms([0.5]), None);
        (0..=100).rev().for_each(|ms| latencies.record(Duration::from_millis(ms)));
        assert_eq!(latencies.quantiles_ms([0.0, 0.5, 0.99, 1.0]), Some([0.0, 50.0, 99.0, 100.0]));
    }
}
