//! A recorder of the product's metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// The values of the product's metrics, by name.
#[derive(Debug, Default, Clone)]
pub(super) struct MetricRecorder(Arc<Mutex<BTreeMap<String, Arc<Values>>>>);

#[derive(Debug, Default)]
struct Values(Mutex<Vec<f64>>);

impl MetricRecorder {
    pub(super) fn of(&self, name: &str) -> Vec<f64> {
        self.named(name).0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn named(&self, name: &str) -> Arc<Values> {
        let mut metrics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(metrics.entry(name.to_owned()).or_default())
    }
}

impl CounterFn for Values {
    fn increment(&self, value: u64) {
        self.record(value as f64);
    }

    fn absolute(&self, value: u64) {
        self.record(value as f64);
    }
}

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }
}

impl Recorder for MetricRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.named(key.name()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.named(key.name()))
    }
}
