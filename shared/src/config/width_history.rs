//! The widths of a key, each with its start.

use crate::config::TableConfig;
use crate::protocol::layout::FIRST_ERA;
use crate::protocol::metadata::ShardMetadata;
use crate::values::key::ShardCount;

/// The widths of a key, from its metadata item. They determine the meaning of the stream's records.
///
/// A record is judged by the era that was current half of `wait_for_requests` before it (eight
/// minutes), because no drain moves anything until the whole of it has passed after a change of the
/// width. So widths may be cached: they decide every record that was made up to a quarter of
/// `wait_for_requests` (four minutes) after they were read. A younger record fails with
/// `StreamError::WidthsTooOld`, so outdated widths never give a wrong result.
///
/// Widths that were read long after a record decide it, too, unless the key has changed its width
/// since *and* a drain has ended, which forgets the earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WidthHistory {
    /// The eras with their starts and their widths, the last one first. Never empty.
    eras: Vec<(u64, u64, ShardCount)>,
    /// Epoch seconds at which a drain last ended or was cancelled: the end of time while one runs.
    drained_at: Option<u64>,
    read_at: u64,
}

/// The state at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InForce {
    /// An era and its width.
    Era {
        /// The era.
        era: u64,
        /// Its width.
        width: ShardCount,
    },
    /// The width is forgotten: an era below this one.
    Below(u64),
}

impl WidthHistory {
    /// For a key without a metadata item.
    pub fn never_grown(config: &TableConfig, read_at: u64) -> Self {
        Self { eras: vec![(FIRST_ERA, 0, config.adopt_shards)], drained_at: None, read_at }
    }
}

#[doc(hidden)]
impl WidthHistory {
    /// From a key's metadata, read strongly consistent. `read_at` is the epoch second *before* the
    /// request.
    pub fn of(metadata: &ShardMetadata, read_at: u64) -> Self {
        let last = metadata.last_updated;
        let before = metadata.shard_history.entries().filter(|entry| entry.at < last);
        let before = before.map(|entry| (entry.at, entry.count));
        let since = before.chain([(last, metadata.number_of_shards)]).rev();
        let eras = (FIRST_ERA..=metadata.era).rev().chain(std::iter::repeat(FIRST_ERA));
        Self {
            eras: eras.zip(since).map(|(era, (at, width))| (era, at, width)).collect(),
            drained_at: metadata.draining().map(|_| u64::MAX).or(metadata.drained_at),
            read_at,
        }
    }

    /// When the widths were read, in epoch seconds.
    pub const fn read_at(&self) -> u64 {
        self.read_at
    }

    /// The state at an epoch second.
    pub fn at(&self, seconds: u64) -> InForce {
        let oldest = self.eras.last();
        // There was no width before the first one of all.
        let first = oldest.filter(|(era, ..)| *era == FIRST_ERA);
        match self.eras.iter().find(|(_, at, _)| *at <= seconds).or(first) {
            Some((era, _, width)) => InForce::Era { era: *era, width: *width },
            None => InForce::Below(oldest.map_or(FIRST_ERA, |(era, ..)| *era)),
        }
    }

    /// The width of an era, if it is known.
    pub fn of_era(&self, era: u64) -> Option<ShardCount> {
        self.eras.iter().find(|(of, ..)| *of == era).map(|(.., width)| *width)
    }

    /// Whether a drain may have been active at an epoch second, or later.
    pub fn may_have_been_drained(&self, seconds: u64) -> bool {
        self.drained_at.is_some_and(|at| at >= seconds)
    }
}
