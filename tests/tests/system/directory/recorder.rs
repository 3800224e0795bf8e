//! A recorder of the product's metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// The values of the product's metrics, by name.
#[derive(Debug, Default, Clone)]
pub(super) struct MetricRecorder(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

impl MetricRecorder {
    /// All values of that name, in order.
    pub(super) fn of(&self, name: &str) -> Vec<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned().unwrap_or_default()
    }

    fn named(&self, key: &Key) -> Arc<Named> {
        Arc::new(Named { recorder: self.clone(), name: key.name().to_owned() })
    }
}

struct Named {
    recorder: MetricRecorder,
    name: String,
}

impl Named {
    fn note(&self, value: f64) {
        let mut values = self.recorder.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.entry(self.name.clone()).or_default().push(value);
    }
}

impl CounterFn for Named {
    fn increment(&self, value: u64) {
        self.note(value as f64);
    }

    fn absolute(&self, value: u64) {
        self.note(value as f64);
    }
}

impl HistogramFn for Named {
    fn record(&self, value: f64) {
        self.note(value);
    }
}

impl Recorder for MetricRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.named(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.named(key))
    }
}
