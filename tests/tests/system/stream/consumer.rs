//! The consumer of the stream, and a broken one that the test must detect.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{Clock, TableEngine};
use sharding_stream::{Change, Decoded, StreamDecoder, StreamError, WidthHistory};
use system_tests::{OneItem, soon, value_of};
use tokio::time::sleep;

use super::Run;
use super::log::Taken;
use super::recording::{Made, Stream};
use crate::one_key::key;

/// The longest delay of the consumer: less than half of a drain's wait for requests.
const MOST_LAG: Duration = Duration::from_secs(400);

/// Reads the stream as Lambda does, and takes each change once.
pub(super) struct Consumer {
    table: TableEngine,
    decoder: StreamDecoder,
    stream: Arc<Stream>,
    widths: Option<WidthHistory>,
    /// What identifies each change that was taken, with its sort key.
    seen: HashSet<(String, String)>,
    rng: StdRng,
    /// The number of delivered records of each stored key.
    delivered: HashMap<String, usize>,
    /// The decision about each record, by its number in the stream.
    pub(super) decided: BTreeMap<String, Decoded>,
    pub(super) taken: Taken,
    pub(super) repeated: u64,
    pub(super) ambiguous: u64,
}

impl Consumer {
    pub(super) fn new(run: &Run) -> Self {
        Self {
            table: run.instance(90, 0.0),
            decoder: run.decoder(),
            stream: Arc::clone(&run.stream),
            widths: None,
            seen: HashSet::new(),
            rng: StdRng::seed_from_u64(run.seed ^ 0xC0),
            delivered: HashMap::new(),
            decided: BTreeMap::new(),
            taken: Taken::new(),
            repeated: 0,
            ambiguous: 0,
        }
    }

    pub(super) async fn consume(mut self, ended: Arc<AtomicBool>) -> Self {
        loop {
            let is_last = ended.load(Ordering::Acquire);
            self.deliver_some(is_last).await;
            if is_last {
                return self;
            }
            sleep(Duration::from_secs(self.rng.random_range(5..60))).await;
        }
    }

    /// Delivers some records of some stored keys, and every record that must not wait longer. The
    /// last delivery has all records.
    async fn deliver_some(&mut self, all: bool) {
        let now = self.stream.clock.now().wall;
        let mut of_keys: BTreeMap<String, Vec<Arc<Made>>> = BTreeMap::new();
        for made in self.stream.records() {
            of_keys.entry(made.stored_key.clone()).or_default().push(made);
        }
        let mut order: Vec<String> = of_keys.keys().cloned().collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.rng.random_range(0..=at));
        }
        for stored_key in order {
            let records = &of_keys[&stored_key];
            let done = self.delivered.get(&stored_key).copied().unwrap_or(0);
            let must = records.iter().take_while(|made| all || made.at + MOST_LAG < now).count();
            let is_early = self.rng.random_bool(0.5);
            let may = if is_early { self.rng.random_range(done..=records.len()) } else { done };
            let upto = must.max(may);
            // A failed batch is delivered again, from the middle.
            let recent =
                records[..done].iter().rev().take_while(|made| made.at + MOST_LAG > now).count();
            let again =
                if self.rng.random_bool(0.3) { self.rng.random_range(0..6).min(recent) } else { 0 };
            for made in &records[done - again..upto] {
                self.take(made).await;
            }
            self.delivered.insert(stored_key, upto);
        }
    }

    async fn take(&mut self, made: &Made) {
        let decoded = loop {
            let Some(record) =
                self.decoder.read(&made.json).unwrap_or_else(|error| panic!("{error}: {made:?}"))
            else {
                return;
            };
            let widths = match self.widths.clone() {
                Some(widths) => widths,
                None => {
                    let read_at = self.stream.clock.now().wall.as_secs();
                    widths(&self.table, read_at).await
                }
            };
            match self.decoder.decode(record, self.widths.insert(widths)) {
                Ok(decoded) => break decoded,
                Err(StreamError::WidthsTooOld { .. }) => self.widths = None,
                Err(error) => panic!("{error}: {made:?}"),
            }
        };
        self.decided.insert(identity(made), decoded.clone());
        let change = match decoded {
            Decoded::Internal => return,
            Decoded::Change(change) => change,
            Decoded::Ambiguous(change) => {
                self.ambiguous += 1;
                let stored = self.table.get(&key(), &change.sort_key, true, soon()).await;
                let stored = stored.expect("a response");
                if stored.is_some() == change.new.is_none() {
                    return;
                }
                change
            }
            other => panic!("{other:?}"),
        };
        // A removal has one record, and a copy that expires later has another. Both end the item.
        let what = match change.version {
            Some(version) if change.new.is_none() => format!("end of {version}"),
            Some(_) | None => change.position.to_string(),
        };
        if self.seen.insert((change.sort_key.to_string(), what)) {
            note(&mut self.taken, &change);
        } else {
            self.repeated += 1;
        }
    }
}

fn note(taken: &mut Taken, change: &Change) {
    let value = change.new.as_ref().and_then(|item| value_of(&item.attributes));
    let one = (change.position.to_string(), change.kind, value);
    taken.entry(change.sort_key.to_string()).or_default().push(one);
}

/// As of an epoch second by the clock of the stream.
async fn widths(table: &TableEngine, read_at: u64) -> WidthHistory {
    match table.until(soon()).metadata(&key()).await.expect("metadata") {
        Some(metadata) => WidthHistory::of(&metadata, read_at),
        None => WidthHistory::never_grown(table.config(), read_at),
    }
}

fn identity(made: &Made) -> String {
    made.json["dynamodb"]["SequenceNumber"].as_str().expect("a number").to_owned()
}

/// Checks that a consumer that is hours behind makes the same decisions, or reports that it cannot.
pub(super) async fn is_never_wrong_behind(run: &Run, consumer: &Consumer) {
    let (decoder, table) = (run.decoder(), run.instance(91, 0.0));
    let widths = widths(&table, run.stream.clock.now().wall.as_secs()).await;
    for made in run.stream.records() {
        let Ok(Some(record)) = decoder.read(&made.json) else { continue };
        let now = decoder.decode(record, &widths).expect("widths of now");
        let then = &consumer.decided[&identity(&made)];
        let same = match (&now, then) {
            (Decoded::Ambiguous(..), _) | (Decoded::Internal, Decoded::Internal) => true,
            (Decoded::Change(now), Decoded::Change(then)) => {
                now.kind == then.kind && now.version == then.version
            }
            (Decoded::Internal | Decoded::Change(_) | _, _) => false,
        };
        assert!(same, "{now:?} was {then:?}: {made:?}");
    }
}

/// The changes that a consumer takes if it assumes that the key never grew: they include the moves.
pub(super) fn without_widths(run: &Run) -> Taken {
    let (decoder, mut taken) = (run.decoder(), Taken::new());
    let never = WidthHistory::never_grown(&run.tables.config, u64::MAX);
    for made in run.stream.records() {
        let Ok(Some(record)) = decoder.read(&made.json) else { continue };
        if let Ok(Decoded::Change(change)) = decoder.decode(record, &never) {
            note(&mut taken, &change);
        }
    }
    taken
}
