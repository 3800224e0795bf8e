//! What a schedule begins for a key.

use std::time::Duration;

use crate::config::{TableConfig, Writes};
use crate::protocol::drain::may_purge;
use crate::protocol::metadata::ShardMetadata;
use crate::values::key::ShardCount;

/// How many seconds a key keeps its width before it is settled in a table with a time to live, by
/// default. Until then, an expired item may reveal an older copy.
const EXPIRING_SETTLE_SECONDS: u64 = 3_600;

/// What is due for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Due {
    /// Give up shards: it has been calm.
    Shrink(ShardCount),
    /// Move its items home.
    Settle,
    /// Remove the tombstones of a settled key.
    Purge,
    /// Finish a change whose process stopped halfway.
    Open,
}

/// When keys shrink and settle by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShrinkAndSettle {
    /// A key that has kept its width for this time, and that its demand no longer needs, gives up
    /// half of its shards; zero, the default, for never.
    pub shrink_after: Duration,
    /// A key that has kept its width for this time is settled; zero, the default, for never, or for
    /// an hour in a table with a time to live.
    pub settle_after: Duration,
}

impl ShrinkAndSettle {
    /// What is due for a key. Only a calm one shrinks.
    pub(crate) fn due(
        &self,
        table: &TableConfig,
        metadata: &ShardMetadata,
        is_calm: bool,
        now_seconds: u64,
    ) -> Option<Due> {
        let shrink_after = self.shrink_after.as_secs();
        if metadata.closing().is_some() {
            return Some(Due::Open);
        }
        if may_purge(metadata, &table.waits(), now_seconds) {
            return Some(Due::Purge);
        }
        // A caller's own request can try it again.
        if metadata.has_unmovable() {
            return None;
        }
        // Writers do not record the load of a key that the directory does not list.
        if is_calm
            && shrink_after > 0
            && metadata.layout().is_listed(table.adopt_shards)
            && let Some(to) = table.policy.decide_shrink(metadata, shrink_after, now_seconds)
        {
            return Some(Due::Shrink(to));
        }
        let since = metadata.last_change().unwrap_or_default();
        let is_due = self
            .settles_after(metadata, table)
            .is_some_and(|after| now_seconds >= since.saturating_add(after));
        (is_due && metadata.wants_settling()).then_some(Due::Settle)
    }

    /// How many seconds a key keeps its width before it is settled. `None` if it is not settled
    /// automatically.
    fn settles_after(&self, metadata: &ShardMetadata, table: &TableConfig) -> Option<u64> {
        if table.writes() != Writes::Items {
            return None;
        }
        // The drain of a shrink has not begun, or was cancelled: readers read shards that are not
        // written to.
        if metadata.read_shards > metadata.number_of_shards {
            return Some(table.policy.cooldown_seconds);
        }
        if self.settle_after.is_zero() {
            table.ttl_attribute.is_some().then_some(EXPIRING_SETTLE_SECONDS)
        } else {
            Some(self.settle_after.as_secs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_settle_where_items_expire_and_after_a_partial_shrink() {
        let items = TableConfig::new("items", "items-metadata");
        let expiring = items.clone().with(|config| config.ttl_attribute = Some("expires".into()));
        let appends = expiring.clone().with(|config| config.writes = Writes::Appends);
        let whole = ShardMetadata::unregistered();
        let left = ShardMetadata { read_shards: ShardCount::new(8).unwrap(), ..whole.clone() };
        let rows = [
            (&whole, &items, 0, None),
            (&whole, &items, 600, Some(600)),
            (&whole, &expiring, 0, Some(3_600)),
            (&whole, &expiring, 600, Some(600)),
            (&whole, &appends, 600, None),
            (&left, &items, 0, Some(items.policy.cooldown_seconds)),
            (&left, &appends, 0, None),
        ];
        for (metadata, table, configured, expected) in rows {
            let (read, writes) = (metadata.read_shards, table.writes());
            let settle_after = Duration::from_secs(configured);
            let plan = ShrinkAndSettle { settle_after, ..ShrinkAndSettle::default() };
            let settles = plan.settles_after(metadata, table);
            assert_eq!(settles, expected, "{read} {writes:?} {configured}");
        }
    }
}
