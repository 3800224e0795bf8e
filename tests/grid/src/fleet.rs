//! The processes that write.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use sharding::internal::TableEngine;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout_at};

use crate::scenario::{Fleet, Scenario};
use crate::table::Table;

/// The start of a Lambda instance.
const COLD_START: Duration = Duration::from_millis(300);
/// Lambda starts this many instances at once, and then a tenth of it each second. (Lambda developer
/// guide, "Lambda scaling behavior".)
const STARTED_AT_ONCE: u32 = 1_000;

/// The instances of a run.
#[derive(Debug)]
pub(crate) struct Instances {
    table: Table,
    fleet: Fleet,
    state: Mutex<State>,
    /// Lambda's instances that may run now.
    slots: Arc<Semaphore>,
}

#[derive(Debug)]
struct State {
    started: Vec<TableEngine>,
    idle: Vec<usize>,
    rng: Xoshiro256PlusPlus,
}

/// An instance while it serves a request.
#[derive(Debug)]
pub(crate) struct Busy<'a> {
    pub(crate) engine: TableEngine,
    returned: Option<(&'a Instances, usize, OwnedSemaphorePermit)>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if let Some((instances, number, _)) = &self.returned {
            instances.state().idle.push(*number);
        }
    }
}

impl Instances {
    pub(crate) fn new(table: Table, scenario: &Scenario) -> Arc<Self> {
        let scaled = |count: u32| (count / scenario.scale).max(1);
        let fleet = match scenario.fleet {
            // One process stays one process.
            Fleet::Shared(count) => Fleet::Shared(scaled(count)),
            Fleet::Lambda(most) => Fleet::Lambda(scaled(most)),
        };
        let (slots, most) = match fleet {
            Fleet::Lambda(most) => (most.min(scaled(STARTED_AT_ONCE)), most),
            Fleet::Shared(_) => (0, 0),
        };
        let slots = Arc::new(Semaphore::new(slots as usize));
        if most > 0 {
            let (slots, mut free) = (Arc::clone(&slots), most - most.min(scaled(STARTED_AT_ONCE)));
            let a_second = scaled(STARTED_AT_ONCE / 10);
            tokio::spawn(async move {
                while free > 0 {
                    sleep(Duration::from_secs(1)).await;
                    let more = free.min(a_second);
                    slots.add_permits(more as usize);
                    free -= more;
                }
            });
        }
        let rng = Xoshiro256PlusPlus::seed_from_u64(scenario.seed);
        let state = State { started: Vec::new(), idle: Vec::new(), rng };
        let instances = Self { table, fleet, state: Mutex::new(state), slots };
        if let Fleet::Shared(count) = fleet {
            let started = (0..count).map(|number| instances.table.instance(number)).collect();
            instances.state().started = started;
        }
        Arc::new(instances)
    }

    pub(crate) const fn table(&self) -> &Table {
        &self.table
    }

    /// All instances that have started.
    pub(crate) fn started(&self) -> Vec<TableEngine> {
        self.state().started.clone()
    }

    /// An instance for a request; `None` if none is free in time.
    pub(crate) async fn get(&self, until: Instant) -> Option<Busy<'_>> {
        if let Fleet::Shared(count) = self.fleet {
            let mut state = self.state();
            let number = state.rng.random_range(0..count as usize);
            return Some(Busy { engine: state.started[number].clone(), returned: None });
        }
        let permit = timeout_at(until, Arc::clone(&self.slots).acquire_owned()).await.ok()?.ok()?;
        let (number, engine, is_new) = {
            let mut state = self.state();
            match state.idle.pop() {
                Some(number) => (number, state.started[number].clone(), false),
                None => {
                    let number = state.started.len();
                    let engine = self.table.instance(u32::try_from(number).unwrap_or(u32::MAX));
                    state.started.push(engine.clone());
                    (number, engine, true)
                }
            }
        };
        if is_new {
            sleep(COLD_START).await;
        }
        Some(Busy { engine, returned: Some((self, number, permit)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
