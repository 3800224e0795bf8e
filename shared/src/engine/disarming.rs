//! Disarming of keys whose pattern counts, while no process of the product runs.
//!
//! First the pattern loses its time, so that its keys cannot grow any more. Once no earlier request
//! can arrive, a scan removes what the product has stored in their items. Then the pattern is
//! removed. [docs/adopting.md, Disarming]

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::engine::{Deadline, TableEngine};
use crate::protocol::armed::{Armed, KeyPattern, counts_from};
use crate::protocol::survey::place_of;
use crate::protocol::version::Version;
use crate::table::ScanPosition;
use crate::table::error::TableError;

const CONCURRENCY: usize = 16;

/// A pattern that is being disarmed.
///
/// See [`begin_disarming`](crate::maintenance::Maintenance::begin_disarming).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Disarming {
    pattern: KeyPattern,
    mark: String,
    left: Armed,
    /// From this epoch second on, no earlier request of a stopped process can arrive.
    pub may_continue_at: u64,
}

/// A page of the main table whose disarmed items are as they were without the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PlainPage {
    /// The items of the page.
    pub items: u64,
    /// The items of which attributes were removed.
    pub changed: u64,
    /// The tombstones that were removed.
    pub tombstones: u64,
}

impl TableEngine {
    /// Takes the time from a pattern.
    pub async fn begin_disarming(
        &self,
        pattern: &KeyPattern,
        deadline: Deadline,
    ) -> Result<Disarming, TableError> {
        let inner = &self.inner;
        let (from, left) = self.stored_pattern(pattern, deadline).await?;
        self.check_covered(&left, deadline).await?;
        let mark = inner.mark();
        inner.retrying(deadline, || inner.tables.mark_pattern(pattern, &mark, from)).await?;
        let may_continue_at = counts_from(inner.environment.now(), inner.config.arming_wait());
        Ok(Disarming { pattern: pattern.clone(), mark, left, may_continue_at })
    }

    /// Removes what the product stored from the disarmed keys of one page of the main table.
    pub async fn disarm_page(
        &self,
        disarming: &Disarming,
        after: Option<&ScanPosition>,
        deadline: Deadline,
    ) -> Result<(PlainPage, Option<ScanPosition>), TableError> {
        let inner = &self.inner;
        if self.epoch_seconds() < disarming.may_continue_at {
            let why = "an earlier request may still arrive: wait until `may_continue_at`";
            return Err(TableError::Rejected(why.into()));
        }
        let scanned = inner.retrying(deadline, || inner.tables.scan(after)).await?;
        let (mut page, mut ours) = (PlainPage::default(), Vec::new());
        for item in scanned.items {
            page.items += 1;
            let Some(item) = item else { continue };
            let logical = item.logical_key.as_deref();
            let place = place_of(&inner.config.shard_keys, &item.stored_key, logical);
            let Some((key, shard)) = place else { continue };
            let is_disarmed = disarming.pattern.matches(&key) && !disarming.left.matches(&key);
            if !is_disarmed || item.version == Version::NONE {
                continue;
            }
            if shard.get() > inner.config.adopt_shards.get() {
                let why = format!("the key {key} has an item on shard {shard}: it has grown");
                return Err(TableError::Rejected(why.into()));
            }
            page.tombstones += u64::from(item.is_tombstone);
            page.changed += u64::from(!item.is_tombstone);
            ours.push(item);
        }
        let changes =
            ours.iter().map(|item| inner.retrying(deadline, move || inner.tables.make_plain(item)));
        let changed = stream::iter(changes.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY);
        match changed.try_collect::<Vec<()>>().await {
            Ok(_) => Ok((page, scanned.next)),
            Err(TableError::ConditionFailed) => {
                let why = "an item was changed meanwhile: stop all processes that write";
                Err(TableError::Rejected(why.into()))
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the pattern.
    pub async fn end_disarming(
        &self,
        disarming: Disarming,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        self.check_covered(&disarming.left, deadline).await?;
        self.remove_pattern(&disarming.pattern, &disarming.mark, deadline).await
    }

    /// Fails if a key has grown that none of these patterns matches.
    pub(crate) async fn check_covered(
        &self,
        left: &Armed,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        let Some(key) = self.uncovered_key(left, deadline).await? else { return Ok(()) };
        let why = format!("the key {key} has grown, and no other pattern matches it");
        Err(TableError::Rejected(why.into()))
    }
}
