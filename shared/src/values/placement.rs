//! Placement: the shard of an item.
//!
//! A growing width changes the home of nearly every item under a modulo, so after a few changes a
//! point read has dozens of places to read. The default, a jump hash, moves an item only onto *new*
//! shards: growing from 1 to n by ones gives an item about ln(n) homes. (Lamping and Veach, "A
//! Fast, Minimal Memory, Consistent Hash Algorithm", 2014.)

use md5::Md5;
use sha2::{Digest, Sha256};

use crate::values::content;
use crate::values::key::{PartitionKey, ShardCount, ShardNumber, SortKey};

/// The rule that assigns a table's items to shards, fixed at deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// SHA-256 over both keys, then a jump consistent hash. An item can be found by its key.
    #[default]
    Calculated,
    /// Uniformly at random. Append-only, because an item can be on any shard.
    Random,
    /// SHA-256 of `partition key + "_" + sort key`, modulo the width, plus 1.
    ModuloSha256,
    /// The formula of the blog post "Dynamic write sharding": MD5 of `partition key + "_" + sort
    /// key`, modulo the width, plus 1.
    ModuloMd5,
    /// The formula of "Using write sharding to distribute workloads evenly" in the DynamoDB
    /// developer guide: the product of the sort key's code points, modulo the width, plus 1.
    ///
    /// Unfit for new tables: it places about 75 % of ten-digit order ids on shard 1 of 200, because
    /// most products are multiples of 200.
    CodePoints,
}

#[doc(hidden)]
impl Placement {
    /// Every placement with its name in the configuration.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("calculated", Self::Calculated),
        ("random", Self::Random),
        ("modulo-sha256", Self::ModuloSha256),
        ("modulo-md5", Self::ModuloMd5),
        ("code-points", Self::CodePoints),
    ];

    /// Whether items have no home: they are found by reading all shards, and only appended.
    pub const fn is_append_only(self) -> bool {
        matches!(self, Self::Random)
    }

    /// Whether an item keeps its home when the width grows, unless it moves to a new shard.
    pub(crate) const fn keeps_homes(self) -> bool {
        matches!(self, Self::Calculated)
    }

    /// The shard of a sort key under one width. `None` for random placement.
    pub fn home(
        self,
        key: &PartitionKey,
        sort_key: &SortKey,
        width: ShardCount,
    ) -> Option<ShardNumber> {
        self.homes(key, sort_key)(width)
    }

    /// The homes of a sort key under any width. The keys are hashed once.
    pub(crate) fn homes<'a>(
        self,
        key: &'a PartitionKey,
        sort_key: &'a SortKey,
    ) -> impl Fn(ShardCount) -> Option<ShardNumber> + use<'a> {
        let hash = (self == Self::Calculated).then(|| key_hash(key, sort_key));
        move |width| {
            let width = width.get();
            let index = match self {
                Self::Random => return None,
                Self::Calculated => jump_hash(hash?, width),
                Self::ModuloSha256 => modulo(&Sha256::digest(format!("{key}_{sort_key}")), width),
                Self::ModuloMd5 => modulo(&Md5::digest(format!("{key}_{sort_key}")), width),
                Self::CodePoints => code_points(&sort_key.to_string(), width),
            };
            Some(ShardNumber::from_index(index))
        }
    }
}

/// The first 8 bytes of SHA-256 over both keys. The first key is preceded by its length, so that no
/// two pairs have the same input.
fn key_hash(key: &PartitionKey, sort_key: &SortKey) -> u64 {
    let mut digest = Sha256::new();
    digest.update((key.as_str().len() as u64).to_be_bytes());
    digest.update(key.as_str());
    digest.update(sort_key.canonical().as_bytes());
    u64::from_be_bytes(content::first(&digest.finalize()))
}

/// The zero-based bucket of `key` among `buckets`.
fn jump_hash(mut key: u64, buckets: u32) -> u32 {
    let (mut bucket, mut next) = (0i64, 0i64);
    while next < i64::from(buckets) {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let step = (1u64 << 31) as f64 / ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * step) as i64;
    }
    u32::try_from(bucket).unwrap_or(u32::MAX)
}

/// A digest as one big-endian integer, modulo the width.
fn modulo(digest: &[u8], width: u32) -> u32 {
    let rest =
        digest.iter().fold(0u64, |rest, byte| (rest << 8 | u64::from(*byte)) % u64::from(width));
    u32::try_from(rest).unwrap_or(0)
}

fn code_points(sort_key: &str, width: u32) -> u32 {
    let rest = sort_key
        .chars()
        .fold(1u64, |rest, point| rest * u64::from(u32::from(point)) % u64::from(width));
    u32::try_from(rest % u64::from(width)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::{count, key, number, shard, text};
    use proptest::prelude::*;

    #[test]
    fn jump_hash_agrees_with_the_published_algorithm() {
        // Test vectors of public implementations of the paper.
        let rows = [
            (1, 1, 0),
            (42, 57, 43),
            (0xDEAD_10CC, 1, 0),
            (0xDEAD_10CC, 666, 361),
            (256, 1024, 520),
        ];
        for (hash, buckets, expected) in rows {
            assert_eq!(jump_hash(hash, buckets), expected, "{hash} among {buckets}");
        }
    }

    #[test]
    fn md5_gives_the_row_that_the_blog_publishes() {
        let (path, time) = (key("/shared/firetvGen2.txt"), text("123456789101"));
        assert_eq!(Placement::ModuloMd5.home(&path, &time, count(10)), Some(shard(6)));
    }

    #[test]
    fn code_points_crowd_one_shard() {
        let ids = (0..20_000u64)
            .map(|i| format!("{:010}", i.wrapping_mul(2_654_435_761) % 10_000_000_000));
        let home =
            |id: &String| Placement::CodePoints.home(&key("2014-07-09"), &text(id), count(200));
        let on_first = ids.filter(|id| home(id) == Some(shard(1))).count();
        assert!((14_000..16_000).contains(&on_first), "{on_first}");
    }

    proptest! {
        #[test]
        fn a_home_is_within_its_width(
            k in "\\PC{1,20}", s in "\\PC{1,20}", n in 1u32..1_000, width in 1u32..500,
        ) {
            for (_, placement) in Placement::NAMES {
                let home = placement.home(&key(&k), &text(&s), count(width));
                prop_assert!(home.is_none_or(|home| (1..=width).contains(&home.get())));
                // A number has one home in any spelling.
                let home = |spelt: String| placement.home(&key(&k), &number(spelt), count(97));
                prop_assert_eq!(home(format!("{n}00")), home(format!("{n}e2")));
            }
        }

        #[test]
        fn a_growing_width_moves_items_only_onto_new_shards(
            s in "\\PC{1,20}", n in 1u32..300, more in 1u32..300,
        ) {
            for (_, placement) in Placement::NAMES.iter().filter(|(_, it)| it.keeps_homes()) {
                let home = |width| placement.home(&key("k"), &text(&s), count(width)).unwrap();
                prop_assert!(home(n + more) == home(n) || home(n + more).get() > n);
            }
        }
    }
}
