//! Read replicas: indexes with the table's own keys, which share its eventually consistent page queries.
//!
//! An index has partitions of its own, so every replica adds as much read capacity to a hot key as the table has. One that is
//! throttled or still building rests for a while, and the table answers in its place.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::environment::Environment;
use crate::table::error::TableError;

/// How long a throttled replica rests.
const THROTTLED: Duration = Duration::from_secs(1);
/// How long one rests that cannot be read: it is still building, or is not there.
const UNREADABLE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Replicas {
    /// The indexes, each with the instant of the monotonic clock up to which it rests.
    indexes: Mutex<Vec<(String, Duration)>>,
}

impl Replicas {
    pub(super) fn new(names: &[String]) -> Self {
        Self { indexes: Mutex::new(names.iter().map(|name| (name.clone(), Duration::ZERO)).collect()) }
    }

    /// The index to query, or `None` for the table; each with the same chance.
    pub(super) fn choose(&self, environment: &Environment) -> Option<String> {
        let indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if indexes.is_empty() {
            return None;
        }
        let now = environment.now().monotonic;
        let awake: Vec<&String> = indexes.iter().filter(|(_, rests)| *rests <= now).map(|(name, _)| name).collect();
        let drawn = environment.below(u32::try_from(awake.len()).unwrap_or(u32::MAX).saturating_add(1)) as usize;
        awake.get(drawn).map(|name| (*name).clone())
    }

    /// An index could not answer.
    pub(super) fn rest(&self, index: &str, error: &TableError, environment: &Environment) {
        let rests = if matches!(error, TableError::Capacity(_) | TableError::Transient(_)) {
            THROTTLED
        } else {
            tracing::warn!(index, %error, "a read replica cannot be read; the table answers for it");
            UNREADABLE
        };
        let until = environment.now().monotonic + rests;
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, resting)) = indexes.iter_mut().find(|(name, _)| name == index) {
            *resting = until;
        }
    }
}
