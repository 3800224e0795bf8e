//! The result of a scan of the whole main table: how wide each key must be.
//!
//! Every item shows its place, its width and when it was written. That restores lost widths: every
//! shard with an item is read, every item is at home under some width of the history, and the
//! current width is that of the latest write.

use std::collections::{BTreeMap, HashMap};

use crate::protocol::directory::KeyDigest;
use crate::protocol::history::ShardHistory;
use crate::protocol::layout::FIRST_ERA;
use crate::protocol::metadata::ShardMetadata;
use crate::protocol::version::Version;
use crate::values::key::{PartitionKey, ShardCount, ShardKeys, ShardNumber, SortKey};
use crate::values::placement::Placement;

/// A width is rejected if chance alone leaves its upper shards empty less often than this.
const MIN_CHANCE: f64 = 1e-9;

/// The key and the shard of an item. `None` if this product uses no such place. Only in a table
/// that was sharded by a fixed number, items without a logical key count on every shard.
pub fn place_of(
    keys: &ShardKeys,
    stored: &str,
    logical: Option<&str>,
) -> Option<(PartitionKey, ShardNumber)> {
    keys.parse(stored).filter(|(key, shard)| match logical {
        Some(logical) => logical == key.as_str(),
        None => *keys != ShardKeys::KeyFirst || keys.is_key_itself(*shard),
    })
}

#[derive(Debug, Clone)]
pub(crate) struct Surveyed<'a> {
    pub(crate) key: &'a PartitionKey,
    pub(crate) sort_key: &'a SortKey,
    pub(crate) shard: ShardNumber,
    pub(crate) version: Version,
    /// The width when the item was placed.
    pub(crate) width: ShardCount,
}

/// What was found of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFindings {
    /// When the first of its items was read. `None` if there was none, or if it was damaged.
    known: Option<ShardMetadata>,
    /// By the width under which they were written.
    items: BTreeMap<ShardCount, u64>,
    widest: ShardNumber,
    newest: (Version, ShardCount),
    /// Widths under which items are at home that reads under that metadata would miss, each with its
    /// first version.
    widths: BTreeMap<ShardCount, Version>,
    /// Items on shards where no width would place them: pages contain them, point reads do not.
    pub misplaced: u64,
}

impl KeyFindings {
    fn observe(&mut self, placement: Placement, always: Option<ShardCount>, item: &Surveyed<'_>) {
        *self.items.entry(item.width).or_default() += 1;
        self.widest = self.widest.max(item.shard);
        self.newest = self.newest.max((item.version, item.width));
        let home = placement.homes(item.key, item.sort_key);
        let explains = |width: ShardCount| {
            home(width).map_or(item.shard.get() <= width.get(), |home| home == item.shard)
        };
        if let Some(metadata) = &self.known
            && item.shard.get() <= metadata.read_shards.get()
            && metadata.widths().chain(always).any(explains)
        {
            return;
        }
        // The stored width, or one that explains another item, or for a jump hash the narrowest
        // one, whose last shard it is.
        let known = self.widths.keys().copied();
        let narrowest = ShardCount::new(item.shard.get()).filter(|_| placement.keeps_homes());
        let mut widths = std::iter::once(item.width).chain(known).chain(narrowest);
        let Some(width) = widths.find(|width| explains(*width)) else {
            self.misplaced += 1;
            return;
        };
        let first = self.widths.entry(width).or_insert(item.version);
        *first = item.version.min(*first);
    }

    /// The width of the latest write. If all items of that width are on lower shards, the key was
    /// shrunk since. Never below the highest shard with an item.
    pub fn width(&self) -> ShardCount {
        let widest = ShardCount::new(self.widest.get()).unwrap_or(ShardCount::ONE);
        let latest = self.newest.1;
        let items = self.items.get(&latest).copied().unwrap_or_default();
        let by_chance = (f64::from(widest.get()) / f64::from(latest.get())).powf(items as f64);
        if latest > widest && by_chance > MIN_CHANCE { latest } else { widest }
    }

    /// A write under metadata of an earlier era would be superseded by the items.
    pub(crate) const fn era(&self) -> u64 {
        self.newest.0.era()
    }

    /// With it, every item is on one of its candidates.
    pub(crate) fn history(&self) -> ShardHistory {
        self.widths.iter().fold(ShardHistory::default(), |history, (width, first)| {
            history.with(first.epoch_seconds(), *width)
        })
    }

    /// Whether reads under the known metadata miss no item.
    pub fn is_whole(&self) -> bool {
        self.known.as_ref().is_some_and(|metadata| self.are_within(metadata))
            && self.widths.is_empty()
    }

    /// Whether their shards are read, and their eras are known.
    fn are_within(&self, metadata: &ShardMetadata) -> bool {
        self.widest.get() <= metadata.read_shards.get() && self.era() <= metadata.era
    }

    /// Whether this metadata, which was read later, covers the missed items.
    pub(crate) fn are_covered_by(&self, metadata: &ShardMetadata) -> bool {
        let named = |width: &ShardCount| metadata.widths().any(|known| known == *width);
        self.are_within(metadata) && self.widths.keys().all(named)
    }
}

/// What was found of a table. Only keys with more than one shard are kept, so their number bounds
/// the memory.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// The keys that the directory lists and no metadata item explains, and whether an entry would
    /// hide the items of a key that never grew. Their names are not known before their items are
    /// found.
    pub(crate) listed: HashMap<KeyDigest, bool>,
    /// The number of items read.
    pub items: u64,
    /// Those with more shards than a key without metadata.
    pub keys: BTreeMap<PartitionKey, KeyFindings>,
    /// Items that are damaged, or at no place that this product uses.
    pub unknown: u64,
    /// Items that another program stored.
    pub(crate) foreign: u64,
}

impl Survey {
    /// For a key with a metadata item: whether its entry would hide items.
    pub(crate) fn take_listed(&mut self, key: &PartitionKey) -> bool {
        self.listed.remove(&KeyDigest::of(key)).unwrap_or_default()
    }

    /// Whether an item's key must be known before [`observe`](Self::observe).
    pub(crate) fn asks_for(
        &self,
        (placement, unregistered): (Placement, ShardCount),
        item: &Surveyed<'_>,
    ) -> bool {
        let home = placement.home(item.key, item.sort_key, unregistered);
        // Until a key is found to be wider, its items add nothing to an absent metadata item.
        let is_plain = item.shard.get() <= unregistered.get()
            && item.width == unregistered
            && item.version.era() <= FIRST_ERA
            && home.is_none_or(|home| home == item.shard);
        let is_lost =
            || !self.listed.is_empty() && self.listed.contains_key(&KeyDigest::of(item.key));
        (!is_plain || is_lost()) && !self.keys.contains_key(item.key)
    }

    pub(crate) fn know(
        &mut self,
        key: &PartitionKey,
        known: Option<ShardMetadata>,
        unregistered: ShardCount,
    ) {
        self.keys.entry(key.clone()).or_insert_with(|| KeyFindings {
            known,
            items: BTreeMap::new(),
            widest: ShardNumber::FIRST,
            newest: (Version::NONE, unregistered),
            widths: BTreeMap::new(),
            misplaced: 0,
        });
    }

    pub(crate) fn observe(
        &mut self,
        placement: Placement,
        always: Option<ShardCount>,
        item: &Surveyed<'_>,
    ) {
        self.items += 1;
        self.foreign += u64::from(item.version == Version::NONE);
        if let Some(findings) = self.keys.get_mut(item.key) {
            findings.observe(placement, always, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::Separator;
    use crate::values::key::tests::{count, key, shard, text};
    use crate::values::placement::Placement::{Calculated, ModuloMd5};

    fn sort_key(serial: u64) -> SortKey {
        text(&format!("order-{serial}"))
    }

    fn home(placement: Placement, serial: u64, width: u32) -> ShardNumber {
        placement.home(&key("2014-07-09"), &sort_key(serial), count(width)).unwrap()
    }

    /// The place, version, and write width of an item.
    type Row = (ShardNumber, Version, u32);

    fn survey(placement: Placement, known: Option<&ShardMetadata>, items: &[Row]) -> Survey {
        let (mut survey, of) = (Survey::default(), key("2014-07-09"));
        for (serial, &(shard, version, width)) in (0..).zip(items) {
            let (sort_key, width) = (&sort_key(serial), count(width));
            let item = Surveyed { key: &of, sort_key, shard, version, width };
            if survey.asks_for((placement, ShardCount::ONE), &item) {
                survey.know(&of, known.cloned(), ShardCount::ONE);
            }
            survey.observe(placement, None, &item);
        }
        survey
    }

    fn findings(placement: Placement, known: Option<&ShardMetadata>, items: &[Row]) -> KeyFindings {
        survey(placement, known, items).keys.into_values().next().unwrap()
    }

    #[test]
    fn a_place_is_told_by_the_logical_key() {
        let (first, suffixed) = (ShardKeys::KeyFirst, ShardKeys::Suffixed(Separator::default()));
        let on = |number| Some((key("orders"), shard(number)));
        let rows = [
            (&first, "orders", None, on(1)),
            (&first, "orders", Some("bills"), None),
            (&first, "orders\u{1f}s2", Some("orders"), on(2)),
            // Another program stored it.
            (&first, "orders\u{1f}s2", None, None),
            (&first, "orders\u{1f}s2", Some("bills"), None),
            (&suffixed, "orders.1", Some("orders"), on(1)),
            (&suffixed, "orders.1", None, on(1)),
            (&suffixed, "orders.1", Some("bills"), None),
            (&suffixed, "orders", None, None),
        ];
        for (keys, stored, logical, expected) in rows {
            assert_eq!(place_of(keys, stored, logical), expected, "{stored:?} {logical:?}");
        }
    }

    #[test]
    fn the_widths_of_a_key_are_found_again() {
        for placement in [Calculated, ModuloMd5] {
            let mut written = Vec::new();
            for (items, second, width) in [(50, 100, 1), (60, 200, 5), (3, 300, 16)] {
                for serial in (written.len() as u64..).take(items) {
                    let version = Version::new(1, second * 1_000_000 + serial, 0);
                    written.push((home(placement, serial, width), version, width));
                }
            }
            let found = findings(placement, None, &written);
            assert_eq!(found.width(), count(16), "three items tell, wherever they are");
            assert_eq!((found.misplaced, found.is_whole()), (0, false));
            let unregistered = ShardMetadata::unregistered_with(count(16));
            let rebuilt = ShardMetadata { shard_history: found.history(), ..unregistered };
            assert!(findings(placement, Some(&rebuilt), &written).is_whole());
            assert!(found.are_covered_by(&rebuilt));
            for narrow in [
                ShardMetadata { shard_history: ShardHistory::default(), ..rebuilt.clone() },
                ShardMetadata { number_of_shards: count(2), read_shards: count(2), ..rebuilt },
            ] {
                let found = findings(placement, Some(&narrow), &written);
                assert!(!found.is_whole() && !found.are_covered_by(&narrow), "{narrow:?}");
            }
        }
    }

    /// The state after a settling: each item is at home under 4 shards, though many were placed
    /// under fewer.
    #[test]
    fn metadata_that_tells_of_every_item_is_whole() {
        let settled = ShardMetadata {
            shard_history: ShardHistory::default().with(1, count(4)),
            settled: true,
            ..ShardMetadata::unregistered_with(count(4))
        };
        let item = |serial| {
            let shard = home(Calculated, serial, 4);
            let width = if home(Calculated, serial, 2) == shard { 2 } else { 4 };
            (shard, Version::new(1, serial, 0), width)
        };
        let items: Vec<_> = (0..200).map(item).collect();
        assert!(findings(Calculated, Some(&settled), &items).is_whole());
    }

    #[test]
    fn metadata_of_an_earlier_era_is_not_whole() {
        // A key that has grown and was shrunk to one shard again. Only the era of its items shows
        // that.
        let of_era = |era| ShardMetadata { era, ..ShardMetadata::unregistered() };
        let found = |known: Option<&ShardMetadata>| {
            findings(Calculated, known, &[(ShardNumber::FIRST, Version::new(3, 1, 0), 1)])
        };
        let lost = found(None);
        assert_eq!((lost.era(), lost.width()), (3, ShardCount::ONE));
        assert!(!lost.are_covered_by(&of_era(1)) && lost.are_covered_by(&of_era(3)));
        assert!(found(Some(&of_era(3))).is_whole() && !found(Some(&of_era(1))).is_whole());
    }

    #[test]
    fn a_wrong_formula_invents_no_widths() {
        let items: Vec<_> =
            (0..500).map(|serial| (shard(serial % 10 + 1), Version::NONE, 10)).collect();
        let found = findings(ModuloMd5, None, &items);
        assert_eq!((found.width(), found.history().entries().len()), (count(10), 1));
        assert!(found.misplaced > 300);
    }

    #[test]
    fn a_key_that_was_shrunk_is_not_wide_again() {
        // Written under 16 shards. The items on the removed shards were moved, and have width 4.
        let item = |serial| {
            let wide = home(Calculated, serial, 16);
            let (shard, width) =
                if wide.get() <= 4 { (wide, 16) } else { (home(Calculated, serial, 4), 4) };
            (shard, Version::new(1, 1_000_000 + serial, 0), width)
        };
        let items: Vec<_> = (0..200).map(item).collect();
        assert_eq!(findings(Calculated, None, &items).width(), count(4));
    }

    #[test]
    fn keys_of_one_shard_take_no_memory() {
        let items = [(ShardNumber::FIRST, Version::new(1, 1, 0), 1); 100];
        let survey = survey(Calculated, None, &items);
        assert_eq!((survey.items, survey.keys.len()), (100, 0));
    }
}
