//! Where the copies of an item may be, by a view.

use std::collections::BTreeSet;

use crate::config::Writes;
use crate::engine::Inner;
use crate::engine::views::keys::KeyJob;
use crate::protocol::layout::Places;
use crate::protocol::view::View;
use crate::values::key::{PartitionKey, ShardNumber, SortKey};

impl Inner {
    pub(crate) fn places(&self, key: &PartitionKey, sort_key: &SortKey, view: &View) -> Places {
        let home = self.config.placement.homes(key, sort_key);
        view.layout.places(|width| home(width).unwrap_or(ShardNumber::FIRST))
    }

    /// Shard 1, if writers without a view write to it.
    pub(crate) fn always_first(&self) -> Option<ShardNumber> {
        (self.config.writes() == Writes::Appends).then_some(ShardNumber::FIRST)
    }
}

impl KeyJob<'_> {
    /// The shards that a read of one item uses: its places, and with random placement all shards.
    pub(crate) fn candidates(&self, sort_key: &SortKey, view: &View) -> BTreeSet<ShardNumber> {
        if self.inner.config.placement.is_append_only() {
            return view.layout.read_shards.shards().collect();
        }
        let mut candidates = self.inner.places(self.key, sort_key, view).all();
        candidates.extend(self.inner.always_first());
        candidates
    }

    pub(crate) fn is_place(&self, sort_key: &SortKey, shard: ShardNumber, view: &View) -> bool {
        self.inner.config.placement.is_append_only()
            || self.inner.always_first() == Some(shard)
            || self.inner.places(self.key, sort_key, view).contains(shard)
    }
}
