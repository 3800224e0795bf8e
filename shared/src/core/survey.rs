//! What a look at the whole main table says of its keys: how wide they must be, and which items stand under bare keys.
//!
//! Every item says where it stands, when it was written, and under which width. That is enough to find the widths again when the metadata is
//! lost: every shard that holds an item is read again, every item is at home under some width of the history, and the width in force is the
//! one of the latest write.

use std::collections::BTreeMap;

use super::history::ShardHistory;
use super::key::{PartitionKey, ShardCount, ShardKeys, ShardNumber, SortKey};
use super::metadata::ShardMetadata;
use super::placement::Placement;
use super::version::Version;

/// A width is not believed where chance alone leaves its upper shards empty less often than this.
const NOT_BY_CHANCE: f64 = 1e-9;

/// Where a stored item belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a shard of a key, or under the bare key.
    Of(PartitionKey, ShardNumber),
    /// Nowhere that this product knows.
    Unknown,
}

impl Place {
    /// From the stored key, and the logical one where the item has it. Without it, an item of a table that is adopted with bare keys is one
    /// of those, whatever its key looks like.
    pub(crate) fn of(keys: &ShardKeys, adopting: bool, stored: &str, logical: Option<&str>) -> Self {
        let parsed = keys.parse(stored);
        let bare = || PartitionKey::new(stored).map_or(Self::Unknown, |key| Self::Of(key, ShardNumber::UNSHARDED));
        match (logical, parsed) {
            (Some(logical), _) if logical == stored => {
                if adopting {
                    bare()
                } else {
                    Self::Unknown
                }
            }
            (Some(logical), Some((key, shard))) if key.as_str() == logical => Self::Of(key, shard),
            (Some(_), _) => Self::Unknown,
            (None, _) if adopting => bare(),
            (None, Some((key, shard))) => Self::Of(key, shard),
            (None, None) => Self::Unknown,
        }
    }
}

/// An item, as far as a survey looks at it.
#[derive(Debug, Clone)]
pub(crate) struct Surveyed<'a> {
    pub(crate) sort_key: &'a SortKey,
    pub(crate) shard: ShardNumber,
    pub(crate) version: Version,
    /// The width in force when it was placed.
    pub(crate) width: ShardCount,
}

/// What was seen of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFindings {
    /// What its metadata said when the first of its items was seen.
    known: Known,
    /// Items that reads by that metadata would miss.
    missed: u64,
    /// Items by the width that they were written under.
    items: BTreeMap<ShardCount, u64>,
    widest: ShardNumber,
    newest: (Version, ShardCount),
    /// Widths under which missed items are at home, each with its first version.
    widths: BTreeMap<ShardCount, Version>,
    /// Items that no width explains: pages have them, point reads do not.
    astray: u64,
}

/// A key's metadata, as a survey finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    /// It has none.
    Absent,
    /// It cannot be read.
    Damaged,
    /// It has this.
    Is(Box<ShardMetadata>),
}

impl KeyFindings {
    fn new(known: Known, width: ShardCount) -> Self {
        Self {
            known,
            missed: 0,
            items: BTreeMap::new(),
            widest: ShardNumber::FIRST,
            newest: (Version::NONE, width),
            widths: BTreeMap::new(),
            astray: 0,
        }
    }

    fn observe(&mut self, placement: Placement, always: Option<ShardCount>, key: &PartitionKey, item: &Surveyed<'_>) {
        *self.items.entry(item.width).or_default() += 1;
        self.widest = self.widest.max(item.shard);
        self.newest = self.newest.max((item.version, item.width));
        if let Known::Is(metadata) = &self.known
            && item.shard.get() <= metadata.read_shards.get()
            && placement.candidates(key, item.sort_key, metadata.widths().chain(always)).contains(&item.shard)
        {
            return;
        }
        self.missed += 1;
        let explains = |width: ShardCount| {
            placement.home(key, item.sort_key, width).map_or(item.shard.get() <= width.get(), |home| home == item.shard)
        };
        // The stored width, one that explains another item, or by a jump hash the narrowest of all, which has the shard as its last.
        let known = self.widths.keys().copied();
        let narrowest = ShardCount::new(item.shard.get()).filter(|_| placement == Placement::Calculated);
        let width = std::iter::once(item.width).chain(known).chain(narrowest).find(|width| explains(*width));
        match width {
            Some(width) => {
                let first = self.widths.entry(width).or_insert(item.version);
                *first = item.version.min(*first);
            }
            None => self.astray += 1,
        }
    }

    /// How many shards the key has, as far as its items tell.
    ///
    /// That of the latest write; but where all the items of that width keep to lower shards, the key was shrunk since. Never below the highest
    /// shard that holds an item.
    #[must_use]
    pub fn width(&self) -> ShardCount {
        let widest = ShardCount::new(self.widest.get()).unwrap_or(ShardCount::ONE);
        let told = self.newest.1;
        let items = self.items.get(&told).copied().unwrap_or_default();
        let by_chance = (f64::from(widest.get()) / f64::from(told.get())).powf(items as f64);
        if told > widest && by_chance > NOT_BY_CHANCE { told } else { widest }
    }

    /// Items on shards on which no width would place them.
    #[must_use]
    pub const fn astray(&self) -> u64 {
        self.astray
    }

    /// The entries of a history under which every item has its place among the candidates.
    pub(crate) fn history(&self) -> ShardHistory {
        self.widths
            .iter()
            .fold(ShardHistory::default(), |history, (width, first)| history.with(first.epoch_seconds(), *width))
    }

    /// Whether reads by the metadata that was known miss none of the items.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.known, Known::Is(_)) && self.widest_is_read() && self.missed == self.astray
    }

    fn widest_is_read(&self) -> bool {
        matches!(&self.known, Known::Is(metadata) if self.widest.get() <= metadata.read_shards.get())
    }

    /// Whether this metadata, read later, names what was missed.
    pub(crate) fn are_told_by(&self, metadata: &ShardMetadata) -> bool {
        let named = |width: &ShardCount| metadata.widths().any(|known| known == *width);
        self.widest.get() <= metadata.read_shards.get() && self.widths.keys().all(named)
    }
}

/// What was seen of a table so far. It holds the keys that have more than one shard, and no others: their number bounds its memory.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    items: u64,
    keys: BTreeMap<PartitionKey, KeyFindings>,
    unsharded: BTreeMap<PartitionKey, u64>,
    looks_sharded: u64,
    unknown: u64,
}

impl Survey {
    /// Whether an item's key has to be known before [`observe`](Self::observe).
    pub(crate) fn asks_for<'a>(
        &self,
        (placement, unregistered): (Placement, ShardCount),
        place: &'a Place,
        item: &Surveyed<'_>,
    ) -> Option<&'a PartitionKey> {
        let Place::Of(key, shard) = place else { return None };
        // Until a key is seen to be wider, its items say nothing that an absent item does not.
        let is_plain = shard.get() <= unregistered.get()
            && item.width == unregistered
            && placement.home(key, item.sort_key, unregistered).is_none_or(|home| home == *shard);
        let is_new = *shard != ShardNumber::UNSHARDED && !is_plain && !self.keys.contains_key(key);
        is_new.then_some(key)
    }

    /// Takes a key in.
    pub(crate) fn know(&mut self, key: &PartitionKey, known: Known, unregistered: ShardCount) {
        self.keys.entry(key.clone()).or_insert_with(|| KeyFindings::new(known, unregistered));
    }

    pub(crate) fn observe(
        &mut self,
        (placement, keys): (Placement, &ShardKeys),
        always: Option<ShardCount>,
        place: Place,
        item: &Surveyed<'_>,
    ) {
        self.items += 1;
        match place {
            Place::Unknown => self.unknown += 1,
            Place::Of(key, ShardNumber::UNSHARDED) => {
                self.looks_sharded += u64::from(keys.parse(key.as_str()).is_some());
                *self.unsharded.entry(key).or_default() += 1;
            }
            Place::Of(key, _) => {
                if let Some(findings) = self.keys.get_mut(&key) {
                    findings.observe(placement, always, &key, item);
                }
            }
        }
    }

    /// Takes in a key whose metadata cannot be read, whatever its items say.
    pub(crate) fn know_damaged(&mut self, key: &PartitionKey, unregistered: ShardCount) {
        self.know(key, Known::Damaged, unregistered);
    }

    /// Counts an item that cannot be read.
    pub(crate) fn observe_damaged(&mut self) {
        self.items += 1;
        self.unknown += 1;
    }

    /// Items looked at.
    #[must_use]
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// Items that stand under bare keys which look like shard keys. They were taken as bare keys.
    #[must_use]
    pub const fn looks_sharded(&self) -> u64 {
        self.looks_sharded
    }

    /// Items that stand where this product would not look for them.
    #[must_use]
    pub const fn unknown(&self) -> u64 {
        self.unknown
    }

    /// The keys that have more shards than one without metadata, with what was seen of them.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = (&PartitionKey, &KeyFindings)> {
        self.keys.iter()
    }

    /// The bare keys that have items, with their number; they are forgotten.
    pub fn take_unsharded(&mut self) -> BTreeMap<PartitionKey, u64> {
        std::mem::take(&mut self.unsharded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::SortKeyType;

    fn count(n: u32) -> ShardCount {
        ShardCount::new(n).unwrap()
    }

    fn key() -> PartitionKey {
        PartitionKey::new("2014-07-09").unwrap()
    }

    fn take_in(survey: &mut Survey, placement: Placement, known: &Known, item: &Surveyed<'_>) {
        let place = Place::Of(key(), item.shard);
        if let Some(key) = survey.asks_for((placement, ShardCount::ONE), &place, item) {
            survey.know(key, known.clone(), ShardCount::ONE);
        }
        survey.observe((placement, &ShardKeys::default()), None, place, item);
    }

    /// Items of one key, each written under a width at a second.
    fn surveyed(placement: Placement, known: &Known, written: &[(u32, u64, u32)]) -> KeyFindings {
        let mut survey = Survey::default();
        let mut serial = 0u32;
        for (items, second, width) in written {
            for _ in 0..*items {
                serial += 1;
                let sort_key = SortKey::parse(SortKeyType::String, &format!("order-{serial}")).unwrap();
                let shard = placement.home(&key(), &sort_key, count(*width)).unwrap();
                let version = Version::new(second * 1_000_000 + u64::from(serial), 0);
                let item = Surveyed { sort_key: &sort_key, shard, version, width: count(*width) };
                take_in(&mut survey, placement, known, &item);
            }
        }
        survey.keys().next().map(|(_, findings)| findings.clone()).unwrap()
    }

    #[test]
    fn a_place_is_told_by_the_logical_key() {
        let keys = ShardKeys::default();
        let of = |stored: &str, logical: Option<&str>, adopting| Place::of(&keys, adopting, stored, logical);
        let on = |key: &str, shard| {
            Place::Of(PartitionKey::new(key).unwrap(), ShardNumber::new(shard).unwrap_or(ShardNumber::UNSHARDED))
        };
        for adopting in [true, false] {
            assert_eq!(of("orders.1", Some("orders"), adopting), on("orders", 1));
            assert_eq!(of("orders.1", Some("bills"), adopting), Place::Unknown);
        }
        assert_eq!(of("orders.1", Some("orders.1"), true), on("orders.1", 0));
        assert_eq!(of("orders.1", Some("orders.1"), false), Place::Unknown, "nobody reads it");
        assert_eq!(of("orders.1", None, true), on("orders.1", 0), "bare, though it looks like a shard");
        assert_eq!(of("orders.1", None, false), on("orders", 1), "of a table with a fixed number of shards");
        assert_eq!(of("orders", None, true), on("orders", 0));
        assert_eq!(of("orders", None, false), Place::Unknown);
    }

    #[test]
    fn the_widths_of_a_key_are_found_again() {
        for placement in [Placement::Calculated, Placement::ModuloMd5] {
            let written = [(50, 100, 1), (60, 200, 5), (3, 300, 16)];
            let findings = surveyed(placement, &Known::Absent, &written);
            assert_eq!(findings.width(), count(16), "three items tell, wherever they are");
            assert_eq!((findings.astray(), findings.is_whole()), (0, false));
            let rebuilt = ShardMetadata {
                number_of_shards: count(16),
                read_shards: count(16),
                shard_history: findings.history(),
                ..ShardMetadata::unregistered()
            };
            let by = |metadata: &ShardMetadata| surveyed(placement, &Known::Is(Box::new(metadata.clone())), &written);
            assert!(by(&rebuilt).is_whole() && findings.are_told_by(&rebuilt), "{rebuilt:?}");
            for narrow in [
                ShardMetadata { shard_history: ShardHistory::default(), ..rebuilt.clone() },
                ShardMetadata { number_of_shards: count(2), read_shards: count(2), ..rebuilt },
            ] {
                let findings = by(&narrow);
                assert!(!findings.is_whole() && !findings.are_told_by(&narrow), "{narrow:?}");
            }
        }
    }

    /// What a settling leaves behind: each item at home under 4 shards, though many say that they were placed under fewer.
    #[test]
    fn metadata_that_tells_of_every_item_is_whole() {
        let mut survey = Survey::default();
        let mut history = ShardHistory::default();
        history = history.with(1, count(4));
        let settled = ShardMetadata {
            number_of_shards: count(4),
            read_shards: count(4),
            shard_history: history,
            settled: true,
            ..ShardMetadata::unregistered()
        };
        for serial in 0..200u32 {
            let sort_key = SortKey::parse(SortKeyType::String, &format!("order-{serial}")).unwrap();
            let shard = Placement::Calculated.home(&key(), &sort_key, count(4)).unwrap();
            let before = Placement::Calculated.home(&key(), &sort_key, count(2)).unwrap();
            let width = if before == shard { count(2) } else { count(4) };
            let item = Surveyed { sort_key: &sort_key, shard, version: Version::new(u64::from(serial), 0), width };
            take_in(&mut survey, Placement::Calculated, &Known::Is(Box::new(settled.clone())), &item);
        }
        assert_eq!(survey.keys().map(|(_, findings)| findings.is_whole()).collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn a_wrong_formula_invents_no_widths() {
        let mut survey = Survey::default();
        for serial in 0..500u32 {
            let sort_key = SortKey::parse(SortKeyType::String, &format!("order-{serial}")).unwrap();
            let shard = ShardNumber::from_index(serial % 10);
            let item = Surveyed { sort_key: &sort_key, shard, version: Version::NONE, width: count(10) };
            take_in(&mut survey, Placement::ModuloMd5, &Known::Absent, &item);
        }
        let (_, findings) = survey.keys().next().unwrap();
        assert_eq!((findings.width(), findings.history().entries().len()), (count(10), 1));
        assert!(findings.astray() > 300);
    }

    #[test]
    fn a_key_that_was_shrunk_is_not_wide_again() {
        // Written under 16 shards; those on the shards that were given up were moved, and say 4.
        let mut survey = Survey::default();
        for serial in 0..200u32 {
            let sort_key = SortKey::parse(SortKeyType::String, &format!("order-{serial}")).unwrap();
            let wide = Placement::Calculated.home(&key(), &sort_key, count(16)).unwrap();
            let (shard, width) = match wide.get() {
                1..=4 => (wide, count(16)),
                _ => (Placement::Calculated.home(&key(), &sort_key, count(4)).unwrap(), count(4)),
            };
            let version = Version::new(1_000_000 + u64::from(serial), 0);
            let item = Surveyed { sort_key: &sort_key, shard, version, width };
            take_in(&mut survey, Placement::Calculated, &Known::Absent, &item);
        }
        assert_eq!(survey.keys().next().map(|(_, findings)| findings.width()), Some(count(4)));
    }

    #[test]
    fn keys_of_one_shard_take_no_memory() {
        let mut survey = Survey::default();
        for serial in 0..100 {
            let sort_key = SortKey::parse(SortKeyType::String, &serial.to_string()).unwrap();
            let shard = ShardNumber::FIRST;
            let item = Surveyed { sort_key: &sort_key, shard, version: Version::new(1, 0), width: ShardCount::ONE };
            take_in(&mut survey, Placement::Calculated, &Known::Absent, &item);
        }
        assert_eq!((survey.items(), survey.keys().len()), (100, 0));
    }
}
