//! Items that another program has stored under an armed key, where one can be seen: without a
//! version, in the place of an item of the product.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::engine::job::KeyJob;
use crate::values::key::{ShardKeys, SortKey};

/// The largest number of items that an instance remembers to have written.
pub(super) const MAX_WRITTEN_ITEMS: usize = 10_000;

impl KeyJob<'_> {
    /// Whether the key was armed when the table was empty, so that every item without a version is
    /// another program's.
    fn is_ours_from_the_beginning(&self) -> bool {
        let known = self.inner.arming.known();
        known.is_some_and(|view| view.armed.counts_since(self.key) == Some(0))
    }

    fn item(&self, sort_key: &SortKey) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.key, sort_key).hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn note_written(&self, sort_key: &SortKey) {
        if !self.is_ours_from_the_beginning() {
            self.inner.written.insert(self.item(sort_key), ());
        }
    }

    /// Counts an item without a version if another program has stored it in the place of one that
    /// the product has written. A read that may lag may show what was there before.
    pub(crate) fn note_plain(&self, sort_key: &SortKey, consistent: bool) {
        let is_key_first = self.inner.config.shard_keys == ShardKeys::KeyFirst;
        let was_written = || consistent && self.inner.written.get(&self.item(sort_key)).is_some();
        if is_key_first && (self.is_ours_from_the_beginning() || was_written()) {
            metrics::counter!("ShardingForeignItems").increment(1);
        }
    }
}
