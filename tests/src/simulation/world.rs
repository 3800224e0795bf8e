//! The shared state of a run's actors: the references for their responses, and the time of the run.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use embedded_dynamodb::Engine;
use rand::RngExt;
use rand::rngs::StdRng;
use sharding::internal::TableEngine;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::failure::{Classified, Finding};
use super::history::KeyHistory;
use super::network::Instance;
use super::record::Record;
use super::registers::Registers;
use super::replaced_counters::Replaced;
use super::slow_metadata::Stretch;
use super::totals::Totals;
use super::updating::Counters;
use super::{HOT, KEYS, Plan, key, locked};

/// The lifetime of registers that are only created, or stored once and put. Few writers use the
/// same one, some of them before and some after the key has grown.
const WINDOW: Duration = Duration::from_secs(3);
/// The same in a run in which requests arrive minutes late.
const WINDOW_OF_MINUTES: Duration = Duration::from_secs(300);
/// The lifetime of the other registers of such a run: long enough for a drain, its purge, writes
/// after them, and late requests from before.
const LIFETIME: Duration = Duration::from_secs(1_200);

/// An instance at work: its number, and what it works on.
#[derive(Clone)]
pub(super) struct Actor {
    pub(super) index: usize,
    pub(super) instance: Arc<Instance>,
    pub(super) table: TableEngine,
    pub(super) world: Arc<World>,
}

impl Actor {
    pub(super) fn goes_on(&self) -> bool {
        self.world.goes_on() && !self.instance.is_dead()
    }

    /// Waits for its requests under way. Those of a dead instance do not end.
    pub(super) async fn end(&self, under_way: JoinSet<()>) {
        if !self.instance.is_dead() {
            under_way.join_all().await;
        }
    }
}

#[derive(Debug)]
pub(super) struct World {
    histories: [Mutex<KeyHistory>; KEYS],
    registers: [Mutex<Registers>; KEYS],
    violation: Mutex<Option<String>>,
    pub(super) engine: Engine,
    pub(super) record: Mutex<Record>,
    /// The present stretch of slow requests to the metadata table.
    pub(super) stretch: Mutex<Option<Stretch>>,
    pub(super) plan: Plan,
    pub(super) counters: Mutex<Counters>,
    pub(super) replaced: Mutex<Replaced>,
    pub(super) began: Instant,
    ends: Instant,
    /// Until then items are moved, so reads are more frequent.
    moving_until: Mutex<Instant>,
}

impl World {
    pub(super) fn new(engine: Engine, plan: Plan) -> Self {
        let began = Instant::now();
        Self {
            histories: Default::default(),
            registers: Default::default(),
            violation: Mutex::default(),
            engine,
            record: Mutex::default(),
            stretch: Mutex::default(),
            plan,
            counters: Mutex::default(),
            replaced: Mutex::default(),
            began,
            ends: began + plan.lasts(),
            moving_until: Mutex::new(began),
        }
    }

    pub(super) fn history(&self, key: usize) -> MutexGuard<'_, KeyHistory> {
        locked(&self.histories[key % KEYS])
    }

    pub(super) fn registers(&self, key: usize) -> MutexGuard<'_, Registers> {
        locked(&self.registers[key % KEYS])
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut locked(&self.record).totals);
    }

    /// Records the first broken promise of a key, and ends the run.
    pub(super) fn check(&self, which: usize, checked: Result<(), Finding>) {
        if let Err(finding) = checked {
            let violation = self.violation(which, finding);
            locked(&self.violation).get_or_insert(violation);
        }
    }

    /// Records an error that the simulation never causes.
    pub(super) fn check_error(&self, which: usize, step: &str, error: &impl Classified) {
        if !error.is_transient() {
            self.check(which, Err(Finding::new(format!("I6: {step} fails for good: {error}"))));
        }
    }

    /// The failure for a broken promise about a key, with the writes that reached the table.
    pub(super) fn violation(&self, which: usize, finding: Finding) -> String {
        let arrivals = finding
            .sort_key
            .map(|sort_key| locked(&self.record).of_item(key(which).as_str(), &sort_key));
        finding.what + &arrivals.unwrap_or_default()
    }

    /// The first violation, or the counts of the run.
    pub(super) fn verdict(&self) -> Result<Totals, String> {
        if let Some(violation) = locked(&self.violation).take() {
            return Err(violation);
        }
        locked(&self.record).verdict()
    }

    pub(super) fn age(&self) -> Duration {
        Instant::now().saturating_duration_since(self.began)
    }

    pub(super) fn note_moving(&self, until: Instant) {
        let mut moving_until = locked(&self.moving_until);
        *moving_until = until.max(*moving_until);
    }

    pub(super) fn is_moving(&self) -> bool {
        Instant::now() < *locked(&self.moving_until)
    }

    /// A pause between two operations: the given range under high load, forty times as long in the
    /// calm after it, and shorter while items are moved.
    pub(super) fn pause(&self, rng: &mut StdRng, ms: std::ops::Range<u64>) -> Duration {
        let calm = match (self.age() < HOT, self.is_moving()) {
            (true, _) => 1,
            (false, true) => 4,
            (false, false) => 40,
        };
        // Minutes need as many operations as seconds.
        let longer = if self.plan.minutes_late { 6 } else { 1 };
        Duration::from_millis(rng.random_range(ms) * calm).min(Duration::from_secs(5)) * longer
    }

    /// The calm of a run in which requests arrive minutes late.
    pub(super) fn is_calm_of_minutes(&self) -> bool {
        self.plan.minutes_late && self.age() >= HOT
    }

    /// The number of the period in which registers that few writers use are written. Then new ones
    /// follow.
    pub(super) fn window(&self) -> u64 {
        let length = if self.plan.minutes_late { WINDOW_OF_MINUTES } else { WINDOW };
        self.age().as_secs() / length.as_secs()
    }

    /// The name of a register with operations of all kinds. If requests arrive minutes late, it has
    /// a lifetime, too: otherwise too many requests would be outstanding.
    pub(super) fn register(&self, kind: &str, number: u32) -> String {
        if self.plan.minutes_late {
            format!("~{kind}-{}-{number}", self.age().as_secs() / LIFETIME.as_secs())
        } else {
            format!("~{kind}-{number}")
        }
    }

    /// Draws a key. The first key is the hot one. In the calm, the others are drawn as often: they
    /// have few items, so they move them fast.
    pub(super) fn draw_key(&self, rng: &mut StdRng) -> usize {
        if self.age() >= HOT {
            return rng.random_range(0..KEYS);
        }
        match rng.random_range(0..50) {
            0..44 => 0,
            44..49 => 1,
            _ => 2,
        }
    }

    pub(super) fn goes_on(&self) -> bool {
        Instant::now() < self.ends && locked(&self.violation).is_none()
    }
}
