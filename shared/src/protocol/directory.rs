//! The pages that list the keys that have grown, with their layouts: docs/protocol.md, "The
//! directory".

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::protocol::layout::Layout;
use crate::values::content;
use crate::values::key::PartitionKey;

/// The pages of a new table's directory. Reading a page with up to 35 keys takes one unit. An
/// instance that serves all keys reads all pages.
pub const PAGES: u32 = 4;
pub const MAX_PAGES: u32 = 256;
/// The pages double when one has this size: some 650 keys, and 16 units for a read.
pub const SPLIT_PAGE_BYTES: usize = 64 * 1_024;
pub const MAX_COPIES: u32 = 64;
/// A page of at least this size lists no further key, so none of its other keys can grow. DynamoDB
/// allows 400 KiB. The rest is for the listed keys, whose entries change, and get longer.
pub const FULL_PAGE_BYTES: usize = 256 * 1_024;
/// No key of a page of at least this size changes its width. The rest is for unfinished changes and
/// for drains.
pub const MAX_PAGE_BYTES: usize = 390 * 1_024;
/// The share of [`FULL_PAGE_BYTES`] from which on a page is reported.
pub const REPORTED_SHARE: f64 = 0.5;

/// The first 24 bytes of a key's SHA-256. For two keys with one digest, a caller would have to try
/// 2^96 keys. It needs no secret, so an entry can be found by its key even if the rest of the
/// metadata is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest([u8; 24]);

impl KeyDigest {
    pub fn of(key: &PartitionKey) -> Self {
        Self(content::first(&Sha256::digest(key.as_str())))
    }

    pub fn parse(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }
}

/// 32 letters of base64url.
impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// How the entries of a directory are divided among its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Division {
    pub pages: u32,
    /// The table's secret, a random number. Without it, a caller could choose keys that all have
    /// the same page.
    pub seed: u64,
}

impl Division {
    /// The page of a key, from 0.
    pub fn page_of(self, key: KeyDigest) -> u32 {
        let hash =
            Sha256::new().chain_update(self.seed.to_be_bytes()).chain_update(key.0).finalize();
        u32::try_from(u64::from_be_bytes(content::first(&hash)) % u64::from(self.pages.max(1)))
            .unwrap_or_default()
    }

    /// Twice as many pages. `None` if that is over [`MAX_PAGES`].
    pub fn doubled(self) -> Option<Self> {
        let pages = self.pages.checked_mul(2).filter(|pages| *pages <= MAX_PAGES)?;
        Some(Self { pages, ..self })
    }
}

/// An entry changes to a higher generation only. `table` gives DynamoDB the same condition.
pub fn supersedes(new: &Layout, stored: Option<&Layout>) -> bool {
    stored.is_none_or(|stored| stored.generation < new.generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::key;

    /// Keys with their digests, and their pages of four and of eight.
    const ROWS: [(&str, &str, u32, u32); 4] = [
        ("orders", "HBaK2wDSCOQvkzFFKfH6nAQn62MjPO2p", 0, 0),
        ("2014-07-09", "SBdC0y4p-b2aH4ezPmWDWyP1eht6yZxu", 3, 7),
        ("/shared/firetvGen2.txt", "I3gPupCOkjqMiD6BfMRZEicrg2Vfmhm0", 3, 7),
        ("☃", "UWQzYceeyu8lqN6ALeJPVwuiXZwt8dIt", 3, 3),
    ];

    /// Stored data depends on these values. (`printf orders | sha256sum`, and the same of seed and
    /// digest.)
    #[test]
    fn the_page_of_a_key_is_the_same_for_ever() {
        for (name, digest, of_four, of_eight) in ROWS {
            let stored = KeyDigest::of(&key(name));
            assert_eq!(stored.to_string(), digest, "{name}");
            assert_eq!(KeyDigest::parse(digest), Some(stored));
            let page_of = |pages| Division { pages, seed: 7 }.page_of(stored);
            assert_eq!((page_of(1), page_of(4), page_of(8)), (0, of_four, of_eight), "{name}");
        }
        for other in ["", "orders", "_8aHGUNwpXGaX8nBFmKXXc0CjEBqaxeT_8aHGUNwpXGaX8nBFmKX"] {
            assert_eq!(KeyDigest::parse(other), None, "{other}");
        }
    }

    /// A caller that knows the digests still does not know the pages.
    #[test]
    fn keys_spread_over_the_pages_by_the_secret_of_the_table() {
        let of = |seed, pages| move |key| Division { pages, seed }.page_of(key);
        let keys = (0..64_000).map(|number| KeyDigest::of(&key(&format!("key-{number}"))));
        let chosen: Vec<_> = keys.filter(|key| of(1, 16)(*key) == 0).collect();
        for (seed, pages) in [(2, PAGES), (3, PAGES), (2, 16)] {
            let mut on = vec![0; pages as usize];
            chosen.iter().for_each(|key| on[of(seed, pages)(*key) as usize] += 1);
            let even = chosen.len() / pages as usize;
            assert!(on.iter().all(|on| (even * 3 / 4..even * 5 / 4).contains(on)), "{on:?}");
        }
    }

    #[test]
    fn the_pages_double_up_to_their_limit() {
        let first = Division { pages: PAGES, seed: 7 };
        let divisions = std::iter::successors(Some(first), |division| division.doubled());
        let pages: Vec<u32> = divisions.map(|division| division.pages).collect();
        assert_eq!(pages, [4, 8, 16, 32, 64, 128, 256]);
    }
}
