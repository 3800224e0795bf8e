//! Where the copies of an item may be, by a view.

use std::collections::BTreeSet;

use crate::config::Writes;
use crate::engine::Inner;
use crate::protocol::layout::Places;
use crate::protocol::merge::Stored;
use crate::protocol::view::View;
use crate::values::key::{PartitionKey, ShardNumber, SortKey};
use crate::values::value::Item;

impl Inner {
    pub(in crate::engine) fn places(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        view: &View,
    ) -> Places {
        let home = self.config.placement.homes(key, sort_key);
        view.layout.places(|width| home(width).unwrap_or(ShardNumber::FIRST))
    }

    /// The shards that a read of one item uses: its places, and with random placement all shards.
    pub(in crate::engine) fn candidates(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        view: &View,
    ) -> BTreeSet<ShardNumber> {
        if self.config.placement.is_append_only() {
            return view.layout.read_shards.shards().collect();
        }
        let mut candidates = self.places(key, sort_key, view).all();
        candidates.extend(self.always_first());
        candidates
    }

    pub(in crate::engine) fn is_at_a_place(
        &self,
        key: &PartitionKey,
        stored: &Stored<Item>,
        shard: ShardNumber,
        view: &View,
    ) -> bool {
        self.config.placement.is_append_only()
            || self.always_first() == Some(shard)
            || self.places(key, &stored.sort_key, view).contains(shard)
    }

    /// Shard 1, if writers without a view write to it.
    pub(in crate::engine) fn always_first(&self) -> Option<ShardNumber> {
        (self.config.writes() == Writes::Appends).then_some(ShardNumber::FIRST)
    }
}
