//! The directory: which keys have grown, and their layouts, on a few pages that every instance reads under its lease.
//!
//! A key that its page does not list has never grown, and costs nothing. A page has copies, so that many instances do not make it hot: an
//! instance reads one, and a change is written to all. The key's own item remains the truth: it changes first, and its new layout is
//! *published*, written to every copy of the page, before anybody relies on the change having been seen. An actor may die in between;
//! then whoever finds page and item different publishes what the item says.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::layout::Layout;
use crate::core::key::PartitionKey;

/// The pages of a new table's directory. A page that lists 25 keys is read for one unit; an instance that serves all keys reads them all.
pub const PAGES: u32 = 4;
/// The most copies of a page.
pub const MAX_COPIES: u32 = 64;
/// From this size on a page lists no further key, and such a key cannot grow for the first time. DynamoDB takes 400 KiB. The rest is for the
/// keys that are listed already: their entries change, and get longer.
pub const FULL_PAGE_BYTES: usize = 256 * 1_024;
/// From this size on no key of a page changes its width. The rest up to 400 KiB is for changes that are under way, and for drains.
pub const LARGEST_PAGE_BYTES: usize = 390 * 1_024;
/// From this part of a full page on it is reported.
pub const REPORTED_FILL: f64 = 0.5;

/// The page of a key, from 0.
#[must_use]
pub fn page_of(key: &PartitionKey, pages: u32) -> u32 {
    let digest = Sha256::digest(key.as_str());
    let first = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    u32::try_from(first % u64::from(pages.max(1))).unwrap_or_default()
}

/// Whether an entry may be written where this one stands: an entry changes to a higher generation only. `table` says the same to DynamoDB.
#[must_use]
pub fn supersedes(new: &Layout, stands: Option<&Layout>) -> bool {
    stands.is_none_or(|stands| stands.generation < new.generation)
}

/// A layout on its way to every copy of its page.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Publication {
    layout: Layout,
    missing: BTreeSet<u32>,
}

impl Publication {
    /// To so many copies: their number is read after the item has changed, for whoever adds a copy fills it from the items.
    #[must_use]
    pub fn new(layout: Layout, copies: u32) -> Self {
        Self { layout, missing: (0..copies).collect() }
    }

    /// What is written.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The copies that are not known to have it, or a later one. Nothing may rely on the publication while there are any.
    #[must_use]
    pub const fn missing(&self) -> &BTreeSet<u32> {
        &self.missing
    }

    /// A copy has it, or a later one: it was written, or refused by what stands.
    pub fn is_told(&mut self, copy: u32) {
        self.missing.remove(&copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::ShardCount;
    use crate::core::key::tests::key;

    /// What is stored depends on it: another function would look for a key on another page.
    #[test]
    fn the_page_of_a_key_is_the_same_for_ever() {
        for (name, of_four, of_seven) in
            [("orders", 0, 6), ("2014-07-09", 1, 3), ("/shared/firetvGen2.txt", 2, 4), ("☃", 3, 5)]
        {
            assert_eq!((page_of(&key(name), 4), page_of(&key(name), 7)), (of_four, of_seven), "{name}");
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
            publication.is_told(copy);
            assert_eq!(publication.missing().len(), left, "after {copy}");
        }
    }

    #[test]
    fn an_entry_changes_to_a_higher_generation_only() {
        let of = |generation| Layout { generation, ..Layout::unlisted(ShardCount::ONE) };
        for (new, stands, supersedes_it) in
            [(1, None, true), (2, Some(1), true), (1, Some(1), false), (1, Some(2), false)]
        {
            assert_eq!(supersedes(&of(new), stands.map(of).as_ref()), supersedes_it, "{new} on {stands:?}");
        }
    }
}
