//! Moving items home: what a shrink, a settling and a migration have in common, as far as it needs no IO.
//!
//! All copy every item that is not at home to its home, wait out the reads that may have missed the copy, delete the originals, and look once
//! more. A shrink gives up the shards above a lower write width. A settling keeps the width; after it, every item is at its home under
//! that width, so that its candidates are one again. A migration empties the bare key of a table that is adopted.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::history::ShardHistory;
use super::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use super::metadata::ShardMetadata;
use super::placement::Placement;

/// What a drain is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainGoal {
    /// Give up the shards above the write width.
    Shrink,
    /// Bring every item home under the present width.
    Settle,
    /// Bring home what stands under the bare key, since before the table was sharded.
    Migrate,
}

/// The steps, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainStep {
    /// The mark was sent. It counts from when somebody has seen it, for a request may be applied late.
    Mark,
    /// Until nobody can write by an older view.
    WaitOutWriters,
    /// Each item that is not at home is copied there.
    CopyHome,
    /// Until every read that may have missed a copy has ended.
    WaitOutReads,
    /// The originals go.
    DeleteOldCopies,
    /// Whether nothing is left.
    Verify,
}

/// Where in a step: items after this sort key of this shard come next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainPosition {
    /// The shard.
    pub shard: ShardNumber,
    /// The sort key's text; `None` at the shard's beginning.
    pub after: Option<String>,
}

/// How far a drain is: it is cut into invocations, and whoever comes next goes on from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// What it is for.
    pub goal: DrainGoal,
    /// Epoch seconds of the drain's beginning; 0 where it is not told.
    pub began: u64,
    /// What is done now.
    pub step: DrainStep,
    /// Epoch seconds of the step's beginning.
    pub since: u64,
    /// Where in the step; `None` at its beginning.
    pub position: Option<DrainPosition>,
}

/// A stored drain that cannot be read. The metadata is damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the drain {0:?} is not \"goal@epoch_seconds step epoch_seconds [shard [sort key]]\"")]
pub struct DrainError(String);

const GOALS: [(&str, DrainGoal); 3] =
    [("shrink", DrainGoal::Shrink), ("settle", DrainGoal::Settle), ("migrate", DrainGoal::Migrate)];
const STEPS: [(&str, DrainStep); 6] = [
    ("mark", DrainStep::Mark),
    ("wait_out_writers", DrainStep::WaitOutWriters),
    ("copy_home", DrainStep::CopyHome),
    ("wait_out_reads", DrainStep::WaitOutReads),
    ("delete_old_copies", DrainStep::DeleteOldCopies),
    ("verify", DrainStep::Verify),
];

impl DrainGoal {
    /// As it is stored and told.
    #[must_use]
    pub fn name(self) -> &'static str {
        GOALS.iter().find(|(_, goal)| *goal == self).map_or("", |(name, _)| name)
    }
}

impl DrainStep {
    /// As it is stored and told.
    #[must_use]
    pub fn name(self) -> &'static str {
        STEPS.iter().find(|(_, step)| *step == self).map_or("", |(name, _)| name)
    }
}

impl Drain {
    /// A drain that begins.
    #[must_use]
    pub const fn begin(goal: DrainGoal, now_seconds: u64) -> Self {
        Self { goal, began: now_seconds, step: DrainStep::Mark, since: now_seconds, position: None }
    }

    /// At the beginning of another step.
    #[must_use]
    pub const fn at(&self, step: DrainStep, now_seconds: u64) -> Self {
        Self { goal: self.goal, began: self.began, step, since: now_seconds, position: None }
    }

    /// The shards whose items may have to move.
    pub fn sources(&self, metadata: &ShardMetadata) -> impl Iterator<Item = ShardNumber> + use<> {
        let (lowest, bare) = match self.goal {
            DrainGoal::Shrink => (metadata.number_of_shards.get().saturating_add(1), None),
            DrainGoal::Settle => (1, None),
            DrainGoal::Migrate => (u32::MAX, Some(ShardNumber::UNSHARDED)),
        };
        bare.into_iter().chain(metadata.read_shards.shards().filter(move |shard| shard.get() >= lowest))
    }

    /// From when the wait for writers counts, in epoch seconds: from the step's beginning; of a migration, from the key's last change. Under a
    /// view of the present widths the home of every bare item is among its candidates, so only requests by views from before are waited
    /// for, and a key that has never changed has none. The change's own request may be applied late: its width was a candidate before it was
    /// sent, as the read width of an expansion or as an announced one.
    #[must_use]
    pub fn writers_since(&self, metadata: &ShardMetadata) -> u64 {
        match self.goal {
            DrainGoal::Shrink | DrainGoal::Settle => self.since,
            DrainGoal::Migrate => metadata.last_change().unwrap_or_default(),
        }
    }

    /// The history once it is done: widths under which no item can lie any more are left out.
    ///
    /// A jump hash gives an item on one of the lower shards the same home under a lower width, so a shrink may forget every higher width. By a
    /// modulo an item that stays may be anywhere, so there only a settling forgets.
    #[must_use]
    pub fn history_after(&self, metadata: &ShardMetadata, placement: Placement) -> ShardHistory {
        let width = metadata.number_of_shards;
        let forgets = match self.goal {
            DrainGoal::Settle => |entry: ShardCount, width: ShardCount| entry != width,
            DrainGoal::Shrink if matches!(placement, Placement::Calculated | Placement::Random) => {
                |entry: ShardCount, width: ShardCount| entry > width
            }
            DrainGoal::Shrink | DrainGoal::Migrate => |_: ShardCount, _: ShardCount| false,
        };
        let kept = metadata.shard_history.entries().filter(|entry| !forgets(entry.count, width));
        // The first entry, and of each width the last: keys that grow and shrink again and again keep a short history.
        let last: BTreeMap<ShardCount, u64> = kept.clone().map(|entry| (entry.count, entry.at)).collect();
        let first = kept.take(1).map(|entry| (entry.count, entry.at));
        let history = first.chain(last).fold(ShardHistory::default(), |history, (count, at)| history.with(at, count));
        // The width in force is always told.
        if history.entries().any(|entry| entry.count == width) {
            history
        } else {
            history.with(metadata.last_updated, width)
        }
    }
}

/// The shard on which a drain wants an item. Random placement has no homes; there any shard will do that all agree on.
#[must_use]
pub(crate) fn home(placement: Placement, key: &PartitionKey, sort_key: &SortKey, width: ShardCount) -> ShardNumber {
    let home = placement.home(key, sort_key, width);
    home.or_else(|| Placement::Calculated.home(key, sort_key, width)).unwrap_or(ShardNumber::FIRST)
}

impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} {} {}", self.goal.name(), self.began, self.step.name(), self.since)?;
        match &self.position {
            None => Ok(()),
            Some(DrainPosition { shard, after: None }) => write!(f, " {shard}"),
            Some(DrainPosition { shard, after: Some(after) }) => write!(f, " {shard} {after}"),
        }
    }
}

impl FromStr for Drain {
    type Err = DrainError;

    fn from_str(text: &str) -> Result<Self, DrainError> {
        let read = || {
            let mut parts = text.splitn(5, ' ');
            let (goal, began) = match parts.next()?.split_once('@') {
                Some((goal, began)) => (named(&GOALS, goal)?, began.parse().ok()?),
                None => (named(&GOALS, text.split(' ').next()?)?, 0),
            };
            let step = named(&STEPS, parts.next()?)?;
            let since = parts.next()?.parse().ok()?;
            let position = match parts.next() {
                None => None,
                Some(shard) => Some(DrainPosition {
                    shard: match shard.parse().ok()? {
                        0 => ShardNumber::UNSHARDED,
                        number => ShardNumber::new(number)?,
                    },
                    after: parts.next().map(str::to_owned),
                }),
            };
            Some(Self { goal, began, step, since, position })
        };
        read().ok_or_else(|| DrainError(text.to_owned()))
    }
}

fn named<T: Copy>(names: &[(&str, T)], name: &str) -> Option<T> {
    names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::SortKeyType;
    use proptest::prelude::*;

    fn count(n: u32) -> ShardCount {
        ShardCount::new(n).unwrap()
    }

    fn metadata(write: u32, read: u32, history: &[(u64, u32)]) -> ShardMetadata {
        ShardMetadata {
            number_of_shards: count(write),
            read_shards: count(read),
            shard_history: history.iter().fold(ShardHistory::default(), |h, (at, n)| h.with(*at, count(*n))),
            draining: true,
            ..ShardMetadata::unregistered()
        }
    }

    #[test]
    fn a_shrink_empties_what_it_gives_up_and_a_settling_looks_everywhere() {
        let metadata = metadata(2, 5, &[]);
        let shards = |goal| Drain::begin(goal, 0).sources(&metadata).map(ShardNumber::get).collect::<Vec<_>>();
        assert_eq!(shards(DrainGoal::Shrink), [3, 4, 5]);
        assert_eq!(shards(DrainGoal::Settle), [1, 2, 3, 4, 5]);
        assert_eq!(shards(DrainGoal::Migrate), [0], "the bare key");
    }

    #[test]
    fn a_width_is_forgotten_only_where_no_item_can_lie_by_it() {
        let metadata = metadata(4, 16, &[(1, 1), (2, 3), (3, 4), (4, 16)]);
        let kept = |goal, placement| {
            let history = Drain::begin(goal, 0).history_after(&metadata, placement);
            history.entries().map(|entry| entry.count.get()).collect::<Vec<_>>()
        };
        assert_eq!(kept(DrainGoal::Shrink, Placement::Calculated), [1, 3, 4]);
        assert_eq!(kept(DrainGoal::Shrink, Placement::ModuloMd5), [1, 3, 4, 16]);
        assert_eq!(kept(DrainGoal::Settle, Placement::Calculated), [4]);
        let again = self::metadata(4, 8, &[(1, 1), (2, 8), (3, 4), (4, 8), (5, 4), (6, 8), (7, 4)]);
        let history = Drain::begin(DrainGoal::Shrink, 0).history_after(&again, Placement::Calculated);
        assert_eq!(history.to_strings(), ["1:1", "7:4"], "a width that came again and again is told once");
        let unknown = self::metadata(4, 4, &[]);
        let history = Drain::begin(DrainGoal::Settle, 0).history_after(&unknown, Placement::Calculated);
        assert_eq!(history.entries().map(|entry| entry.count.get()).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn a_damaged_drain_is_named() {
        for text in
            ["", "shrink", "shrink copy_home", "shrink copy_home x", "grow copy_home 1", "shrink copy_home 1 -1"]
        {
            assert_eq!(text.parse::<Drain>(), Err(DrainError(text.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn a_drain_is_read_as_it_was_stored(goal in 0usize..3, step in 0usize..6, since: u64, shard in 0u32..9, after in proptest::option::of("\\PC{1,20}")) {
            let shard = ShardNumber::new(shard).unwrap_or(ShardNumber::UNSHARDED);
            let position = (since % 2 == 0).then_some(DrainPosition { shard, after });
            let drain = Drain { goal: GOALS[goal].1, began: since / 2, step: STEPS[step].1, since, position };
            prop_assert_eq!(drain.to_string().parse::<Drain>(), Ok(drain));
        }

        /// What a shrink relies on when it forgets the higher widths.
        #[test]
        fn an_item_on_a_lower_shard_has_the_same_home_under_a_lower_width(key in "[a-z]{1,8}", sort_key in "[a-z0-9]{1,12}", wide in 2u32..300, narrow in 1u32..300) {
            let key = PartitionKey::new(&key).unwrap();
            let sort_key = SortKey::parse(SortKeyType::String, &sort_key).unwrap();
            let narrow = narrow.min(wide);
            let home = |width| Placement::Calculated.home(&key, &sort_key, count(width)).unwrap();
            if home(wide).get() <= narrow {
                prop_assert_eq!(home(wide), home(narrow));
            }
        }
    }
}
