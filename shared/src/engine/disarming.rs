//! Disarming of keys whose pattern counts, while no process of the product runs.
//!
//! First the pattern loses its time, so that its keys cannot grow. Once no earlier request can
//! arrive, a scan removes what the product has stored in their items, and then the pattern goes.
//! [docs/adopting.md, Disarming]

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::engine::{Deadline, Inner, Maintenance};
use crate::protocol::armed::{Armed, KeyPattern, counts_from};
use crate::protocol::version::Version;
use crate::table::error::TableError;

const CONCURRENCY: usize = 16;

/// A pattern that [`begin_disarming`](crate::maintenance::Maintenance::begin_disarming) has begun
/// to disarm.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Disarming {
    pattern: KeyPattern,
    mark: String,
    left: Armed,
    /// From this epoch second on, no request of a stopped process can arrive.
    pub may_continue_at: u64,
}

/// What [`disarm_items`](crate::maintenance::Maintenance::disarm_items) has looked at and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PlainItems {
    /// All items of the main table.
    pub items: u64,
    /// Items of which attributes were removed.
    pub changed: u64,
    /// Removed tombstones.
    pub tombstones: u64,
}

impl Maintenance {
    /// Begins to disarm a pattern that counts. Stop all processes of the product before. From
    /// [`Disarming::may_continue_at`] on, 18 minutes later or after a
    /// shorter [`TableConfig::drain_wait`](crate::TableConfig), call
    /// [`disarm_items`](Self::disarm_items), and then [`end_disarming`](Self::end_disarming).
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] if there is no such pattern; [`TableError::Rejected`] if one of
    /// its keys has grown.
    pub async fn begin_disarming(&self, pattern: &KeyPattern) -> Result<Disarming, TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        let (from, left) = inner.stored_pattern(pattern, deadline).await?;
        inner.check_covered(&left, deadline).await?;
        let mark = inner.mark();
        inner.retrying(deadline, || inner.tables.mark_pattern(pattern, &mark, from)).await?;
        let may_continue_at = counts_from(inner.environment.now(), inner.config.arming_wait());
        Ok(Disarming { pattern: pattern.clone(), mark, left, may_continue_at })
    }

    /// Removes the product's attributes and tombstones from the items of disarmed keys. A
    /// repetition that changes nothing shows that no process has written meanwhile. Calls
    /// `looked_at` after each page with the number of items so far. A timeout counts for each page.
    ///
    /// # Errors
    /// [`TableError::Rejected`] before [`Disarming::may_continue_at`], or if an item shows that a key
    /// has grown or that a process still writes.
    pub async fn disarm_items(
        &self,
        disarming: &Disarming,
        mut looked_at: impl FnMut(u64),
    ) -> Result<PlainItems, TableError> {
        if self.engine.now().epoch_seconds() < disarming.may_continue_at {
            let why = "an earlier request may still arrive: wait until `may_continue_at`";
            return Err(TableError::Rejected(why.into()));
        }
        let inner = &self.engine.inner;
        let (mut plain, mut after) = (PlainItems::default(), None);
        loop {
            let deadline = self.until();
            let page = inner.retrying(deadline, || inner.tables.scan(after.as_ref())).await?;
            plain.items += page.items.len() as u64;
            let mut ours = Vec::new();
            for item in page.items.into_iter().flatten() {
                let Some((key, shard)) = item.place(&inner.config.shard_keys) else { continue };
                let is_disarmed = disarming.pattern.matches(&key) && !disarming.left.matches(&key);
                if !is_disarmed || item.version == Version::NONE {
                    continue;
                }
                if shard.get() > inner.config.adopt_shards.get() {
                    let why = format!("the key {key} has an item on shard {shard}: it has grown");
                    return Err(TableError::Rejected(why.into()));
                }
                plain.tombstones += u64::from(item.is_tombstone);
                plain.changed += u64::from(!item.is_tombstone);
                ours.push(item);
            }
            let changes = ours
                .iter()
                .map(|item| inner.retrying(deadline, move || inner.tables.make_plain(item)));
            let changed = stream::iter(changes.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY);
            match changed.try_collect::<Vec<()>>().await {
                Ok(_) => {}
                Err(TableError::ConditionFailed) => {
                    let why = "an item was changed meanwhile: stop all processes that write";
                    return Err(TableError::Rejected(why.into()));
                }
                Err(error) => return Err(error),
            }
            looked_at(plain.items);
            after = page.next;
            if after.is_none() {
                return Ok(plain);
            }
        }
    }

    /// Removes the pattern, once its items are plain.
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] if the pattern was armed again; [`TableError::Rejected`] if
    /// one of its keys has grown.
    pub async fn end_disarming(&self, disarming: Disarming) -> Result<(), TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        inner.check_covered(&disarming.left, deadline).await?;
        inner.remove_pattern(&disarming.pattern, &disarming.mark, deadline).await
    }
}

impl Inner {
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
