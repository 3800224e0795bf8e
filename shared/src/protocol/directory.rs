//! The directory: a few pages that list the keys that have grown, with their layouts. Every
//! instance reads pages under its lease.
//!
//! A key that its page does not list has never grown, and costs nothing. A page has copies, so that
//! many instances do not make it hot: an instance reads one copy, and a change is written to all.
//! The key's own item remains the source of truth. It changes first; then its new layout is
//! *published*, that is, written to every copy of the page, before any actor relies on the change.
//! If an actor dies in between, the next actor that finds page and item different publishes the
//! item's layout.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::layout::Layout;
use crate::core::key::PartitionKey;

/// The number of pages of a new table's directory. Reading a page with up to 25 keys takes one
/// unit. An instance that serves all keys reads all pages.
pub const PAGES: u32 = 4;
/// The largest number of copies of a page.
pub const MAX_COPIES: u32 = 64;
/// A page of at least this size lists no further key, so a key of this page cannot grow for the
/// first time. DynamoDB allows 400 KiB. The rest is for the keys that are already listed: their
/// entries change, and get longer.
pub const FULL_PAGE_BYTES: usize = 256 * 1_024;
/// No key of a page of at least this size changes its width. The rest up to 400 KiB is for
/// unfinished changes and for drains.
pub const LARGEST_PAGE_BYTES: usize = 390 * 1_024;
/// The share of [`FULL_PAGE_BYTES`] from which on a page is reported.
pub const REPORTED_FILL: f64 = 0.5;

/// The page of a key, from 0.
#[must_use]
pub fn page_of(key: &PartitionKey, pages: u32) -> u32 {
    let digest = Sha256::digest(key.as_str());
    let first = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    u32::try_from(first % u64::from(pages.max(1))).unwrap_or_default()
}

/// Whether an entry may replace this one. An entry changes to a higher generation only. `table`
/// gives DynamoDB the same condition.
#[must_use]
pub fn supersedes(new: &Layout, stored: Option<&Layout>) -> bool {
    stored.is_none_or(|stored| stored.generation < new.generation)
}

/// A layout that is being written to every copy of its page.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Publication {
    layout: Layout,
    missing: BTreeSet<u32>,
}

impl Publication {
    /// The number of copies to write. It is read after the item has changed, because an actor that
    /// adds a copy fills it from the items.
    #[must_use]
    pub fn new(layout: Layout, copies: u32) -> Self {
        Self { layout, missing: (0..copies).collect() }
    }

    /// The layout to write.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The copies that are not yet known to have this layout or a later one. While there are any,
    /// no actor may rely on the publication.
    #[must_use]
    pub const fn missing(&self) -> &BTreeSet<u32> {
        &self.missing
    }

    /// Records that a copy has this layout or a later one: the entry was written, or refused by a
    /// newer one.
    pub fn note_written(&mut self, copy: u32) {
        self.missing.remove(&copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::ShardCount;
    use crate::core::key::tests::key;

    /// Stored data depends on this value: another function would search for a key on another page.
    #[test]
    fn the_page_of_a_key_is_the_same_for_ever() {
        for (name, of_four, of_seven) in
            [("orders", 0, 6), ("2014-07-09", 1, 3), ("/shared/firetvGen2.txt", 2, 4), ("☃", 3, 5)]
        {
            assert_eq!(
                (page_of(&key(name), 4), page_of(&key(name), 7)),
                (of_four, of_seven),
                "{name}"
            );
        }
        assert_eq!(page_of(&key("k"), 1), 0);
    }

    #[test]
    fn keys_spread_over_the_pages() {
        let mut keys = [0; PAGES as usize];
        for number in 0..4_000 {
            keys[page_of(&key(&format!("key-{number}")), PAGES) as usize] += 1;
        }
        assert!(keys.iter().all(|keys| (900..1_100).contains(keys)), "{keys:?}");
    }

    #[test]
    fn a_publication_is_over_when_every_copy_has_it() {
        let layout = Layout { generation: 3, ..Layout::unlisted(ShardCount::ONE) };
        let mut publication = Publication::new(layout.clone(), 3);
        assert_eq!((publication.layout(), publication.missing().len()), (&layout, 3));
        for (copy, left) in [(1, 2), (1, 2), (0, 1), (2, 0)] {
            publication.note_written(copy);
            assert_eq!(publication.missing().len(), left, "after {copy}");
        }
    }

    #[test]
    fn an_entry_changes_to_a_higher_generation_only() {
        let of = |generation| Layout { generation, ..Layout::unlisted(ShardCount::ONE) };
        for (new, stored, supersedes_it) in
            [(1, None, true), (2, Some(1), true), (1, Some(1), false), (1, Some(2), false)]
        {
            assert_eq!(
                supersedes(&of(new), stored.map(of).as_ref()),
                supersedes_it,
                "{new} on {stored:?}"
            );
        }
    }
}
