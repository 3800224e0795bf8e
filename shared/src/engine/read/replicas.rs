//! Read replicas: indexes with the table's own keys. They share its eventually consistent page
//! queries.
//!
//! An index has its own partitions, so every replica adds as much read capacity to a hot key as the
//! table has. A replica that is throttled or still building rests for a while, and the table serves
//! its queries.

use std::sync::Mutex;
use std::time::Duration;

use crate::engine::environment::Environment;
use crate::engine::locked;
use crate::table::error::TableError;

const THROTTLED_REST_PERIOD: Duration = Duration::from_secs(1);
/// How long a replica rests that cannot be read, because it is still building or does not exist.
const UNREADABLE_REST_PERIOD: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Replicas {
    /// The indexes, each with the instant of the monotonic clock until which it rests.
    indexes: Mutex<Vec<(String, Duration)>>,
}

impl Replicas {
    pub(crate) fn new(names: &[String]) -> Self {
        let indexes = names.iter().map(|name| (name.clone(), Duration::ZERO)).collect();
        Self { indexes: Mutex::new(indexes) }
    }

    /// The index to query, or `None` for the table, each with the same probability.
    pub(crate) fn choose(&self, environment: &Environment) -> Option<String> {
        let indexes = locked(&self.indexes);
        if indexes.is_empty() {
            return None;
        }
        let now = environment.now().monotonic;
        let awake: Vec<&String> =
            indexes.iter().filter(|(_, rests)| *rests <= now).map(|(name, _)| name).collect();
        let all = u32::try_from(awake.len()).unwrap_or(u32::MAX).saturating_add(1);
        awake.get(environment.below(all) as usize).map(|name| (*name).clone())
    }

    pub(crate) fn rest(&self, index: &str, error: &TableError, environment: &Environment) {
        let rests = if matches!(error, TableError::Capacity(_) | TableError::Transient(_)) {
            THROTTLED_REST_PERIOD
        } else {
            tracing::warn!(index, %error, "a read replica cannot be read; the table answers for it");
            UNREADABLE_REST_PERIOD
        };
        let until = environment.now().monotonic + rests;
        let mut indexes = locked(&self.indexes);
        if let Some((_, resting)) = indexes.iter_mut().find(|(name, _)| name == index) {
            *resting = until;
        }
    }
}
