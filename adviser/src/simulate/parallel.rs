//! Many runs at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::outcome::Outcome;
use super::scenario::Scenario;
use super::world;

/// Runs the scenarios on all cores, and calls `ended` after each. The outcomes are in the order of
/// the scenarios.
pub(super) fn run_all(scenarios: &[Scenario], ended: impl Fn() + Sync) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Outcome)>> = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((index, scenario)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|i| Some((i, scenarios.get(i)?)))
                {
                    let outcome = world::run(scenario);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, outcome));
                    ended();
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}
