//! Where the items of a key may be stored: the part of the metadata that writers and readers use.

use std::collections::BTreeSet;

use crate::values::key::{ShardCount, ShardNumber};

/// The era of a key that has never changed its width.
pub const FIRST_ERA: u64 = 1;

/// The longest lag of an index behind its table that is assumed, in seconds. Usually it is a
/// fraction of a second, but DynamoDB gives no bound. (DynamoDB developer guide, "Using global
/// secondary indexes".)
pub const MAX_INDEX_LAG_SECONDS: u64 = 900;

/// A field that the metadata has, too, has the same meaning.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    /// 0 for a key that is not listed.
    pub generation: u64,
    pub era: u64,
    pub number_of_shards: ShardCount,
    pub read_shards: ShardCount,
    /// The width of the next era, while writers wait for it.
    pub closing: Option<ShardCount>,
    /// While writers wait: the actor that closed does not open before this instant (epoch
    /// milliseconds, by its clock). Used for pacing only.
    pub opens_at: Option<u64>,
    pub draining: bool,
    pub settled: bool,
    /// Every width under which an item may be stored, the write width, too.
    pub widths: BTreeSet<ShardCount>,
    pub last_updated: u64,
    pub drain_stopped_at: Option<u64>,
    pub drained_at: Option<u64>,
}

/// With a fixed number of digits, entries compare as their generations do.
const GENERATION_DIGITS: usize = 12;
/// The highest generation that fits into an entry.
pub const MAX_GENERATION: u64 = 999_999_999_999;

impl Layout {
    /// A listed key stays listed, because its era never decreases.
    pub fn is_listed(&self, unlisted: ShardCount) -> bool {
        self.era > FIRST_ERA
            || self.closing.is_some()
            || self.read_shards != unlisted
            || self.widths.iter().any(|width| *width != unlisted)
    }

    /// The places of an item. `home` gives its home under a width.
    pub fn places(&self, home: impl Fn(ShardCount) -> ShardNumber) -> Places {
        let at = home(self.number_of_shards);
        let mut old: BTreeSet<ShardNumber> =
            self.widths.iter().copied().chain(self.closing).map(home).collect();
        old.remove(&at);
        Places { home: at, old }
    }

    /// Whether an index may still show items at the place that a drain has moved them from. Then
    /// pages are read from the table.
    pub fn may_lag_in_indexes(&self, now_seconds: u64) -> bool {
        let lags = |at: u64| now_seconds < at.saturating_add(MAX_INDEX_LAG_SECONDS);
        self.draining || self.drained_at.is_some_and(lags)
    }

    pub fn entry_generation(&self) -> String {
        format!("{:0GENERATION_DIGITS$}", self.generation)
    }

    /// The entry as a page of the directory stores it: `"generation era number_of_shards
    /// read_shards state settled last_updated drain_stopped_at drained_at widths"`, with `-` for a
    /// value that is not set. The state is `open`, `draining` or `closing:width:opens_at`.
    pub fn to_entry(&self) -> String {
        let at = |at: Option<u64>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        let state = match (self.closing, self.draining) {
            (Some(to), _) => format!("closing:{to}:{}", at(self.opens_at)),
            (None, true) => "draining".to_owned(),
            (None, false) => "open".to_owned(),
        };
        let widths: Vec<String> = self.widths.iter().map(ToString::to_string).collect();
        format!(
            "{} {} {} {} {state} {} {} {} {} {}",
            self.entry_generation(),
            self.era,
            self.number_of_shards,
            self.read_shards,
            if self.settled { "settled" } else { "-" },
            self.last_updated,
            at(self.drain_stopped_at),
            at(self.drained_at),
            widths.join(",")
        )
    }

    pub fn from_entry(entry: &str) -> Option<Self> {
        let words: Vec<&str> = entry.split(' ').collect();
        let [generation, era, written, read, state, settled, updated, stopped, drained, widths] =
            words[..]
        else {
            return None;
        };
        let count = |word: &str| ShardCount::new(word.parse().ok()?);
        let at = |word: &str| if word == "-" { Some(None) } else { word.parse().ok().map(Some) };
        let (closing, opens_at, draining) = match state {
            "open" => (None, None, false),
            "draining" => (None, None, true),
            closing => {
                let (to, opens_at) = closing.strip_prefix("closing:")?.split_once(':')?;
                (Some(count(to)?), at(opens_at)?, false)
            }
        };
        Some(Self {
            generation: generation.parse().ok()?,
            era: era.parse().ok()?,
            number_of_shards: count(written)?,
            read_shards: count(read)?,
            closing,
            opens_at,
            draining,
            settled: settled == "settled",
            widths: widths.split(',').map(count).collect::<Option<_>>()?,
            last_updated: updated.parse().ok()?,
            drain_stopped_at: at(stopped)?,
            drained_at: at(drained)?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Places {
    /// Where it is written in this era.
    pub home: ShardNumber,
    /// Its homes under all other widths. Only a drain writes there.
    pub old: BTreeSet<ShardNumber>,
}

impl Places {
    /// All places: the *candidates*.
    pub fn all(&self) -> BTreeSet<ShardNumber> {
        self.old.iter().copied().chain([self.home]).collect()
    }

    pub fn contains(&self, shard: ShardNumber) -> bool {
        shard == self.home || self.old.contains(&shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::count;

    fn grown() -> Layout {
        Layout {
            generation: 12,
            era: 3,
            number_of_shards: count(8),
            read_shards: count(16),
            widths: BTreeSet::from([count(1), count(8), count(16)]),
            last_updated: 1_700_000_000,
            ..Layout::unlisted(ShardCount::ONE)
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let closing = || Layout { closing: Some(count(16)), ..grown() };
        let rows = [
            (grown(), "000000000012 3 8 16 open - 1700000000 - - 1,8,16"),
            (
                Layout { draining: true, settled: true, ..grown() },
                "000000000012 3 8 16 draining settled 1700000000 - - 1,8,16",
            ),
            (
                Layout { opens_at: Some(1_700_000_001_120), ..closing() },
                "000000000012 3 8 16 closing:16:1700000001120 - 1700000000 - - 1,8,16",
            ),
            (
                Layout { drain_stopped_at: Some(7), drained_at: Some(9), ..closing() },
                "000000000012 3 8 16 closing:16:- - 1700000000 7 9 1,8,16",
            ),
            (Layout::unlisted(count(5)), "000000000000 1 5 5 open - 0 - - 5"),
        ];
        for (layout, entry) in rows {
            assert_eq!(layout.to_entry(), entry);
            assert_eq!(Layout::from_entry(entry), Some(layout));
        }
    }

    #[test]
    fn what_is_no_entry_is_not_read() {
        for entry in [
            "",
            "12",
            "000000000012 3 8 16 open - 1700000000 - -",
            "000000000012 3 8 16 open - 1700000000 - - 1,8,16 more",
            "000000000012 3 0 16 open - 1700000000 - - 1,8,16",
            "000000000012 3 8 16 closing - 1700000000 - - 1,8,16",
            "000000000012 3 8 16 closing:0:- - 1700000000 - - 1,8,16",
            "000000000012 3 8 16 open - 1700000000 - - ",
            "000000000012 3 8 16 open - 1700000000 x - 1",
        ] {
            assert_eq!(Layout::from_entry(entry), None, "{entry}");
        }
    }

    #[test]
    fn the_entry_of_the_higher_generation_is_the_greater_text() {
        let entry = |generation, era| Layout { generation, era, ..grown() }.to_entry();
        for pair in [1, 2, 9, 10, 1_700_000_000, MAX_GENERATION].windows(2) {
            assert!(entry(pair[0], 9) < entry(pair[1], 1), "{pair:?}");
        }
    }

    #[test]
    fn a_key_is_listed_once_it_has_begun_to_grow() {
        let one = ShardCount::ONE;
        let new = || Layout::unlisted(one);
        let rows = [
            (new(), false),
            // Registered, or drained without a change of its width.
            (Layout { generation: 4, draining: true, drained_at: Some(9), ..new() }, false),
            (Layout { generation: 1, closing: Some(count(2)), ..new() }, true),
            (Layout { generation: 9, era: 2, ..new() }, true),
            // Another program has stored its width.
            (Layout { generation: 1, ..Layout::unlisted(count(2)) }, true),
            (Layout { widths: BTreeSet::from([one, count(3)]), ..new() }, true),
        ];
        for (layout, is_listed) in rows {
            assert_eq!(layout.is_listed(one), is_listed, "{layout:?}");
        }
        // A table that has had ten shards from the beginning.
        assert!(!Layout::unlisted(count(10)).is_listed(count(10)));
    }
}
