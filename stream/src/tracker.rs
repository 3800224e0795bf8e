//! Detects repeated and late changes, in memory.

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroUsize;

use sha2::{Digest, Sha256};

use crate::change::{Change, Position};

/// The result for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tracked {
    /// The change is new, and later than all changes of its item so far.
    InOrder,
    /// The change is new, but a later change of its item was observed before. A log stores it; a
    /// projection of the newest state ignores it.
    Late,
    /// The change was observed before.
    Duplicate,
}

/// Remembers the last observed changes, so that each is reported once, and whether it is in order.
///
/// It takes about 400 bytes per change, independent of the key's length: 40 MB for 100,000. Beyond
/// its capacity it forgets the oldest change. So it is exact for repetitions and late arrivals
/// within that number of changes. It belongs to one process: Lambda may deliver again to another
/// one, and reads the stream's shards in several at once. For a guarantee across processes, store
/// [`Change::position`] with the data.
///
/// Call this after the effect of a change is stored, or discard the tracker if storing fails:
/// Lambda delivers the change again.
#[derive(Debug, Clone)]
pub struct ChangeTracker {
    capacity: usize,
    seen: HashSet<Fingerprint>,
    /// The last change of each item among the remembered ones, and the number of remembered changes
    /// of the item.
    items: HashMap<Fingerprint, (Position, usize)>,
    /// Each change with its item, oldest first.
    order: VecDeque<(Fingerprint, Fingerprint)>,
}

type Fingerprint = [u8; 16];

impl ChangeTracker {
    /// Remembers this number of changes.
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self {
            capacity: capacity.get(),
            seen: HashSet::new(),
            items: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Whether a change is new, and whether it is in order. The tracker remembers it from now on.
    pub fn see(&mut self, change: &Change) -> Tracked {
        let (key, sort_key) = (change.partition_key.as_str(), change.sort_key.canonical());
        let item = fingerprint(&[key, &sort_key]);
        // A removal has one record in DynamoDB Streams, and a copy that expires later has another.
        // Both end the same item.
        let what = match change.version {
            Some(version) if change.is_end => format!("end of {version}"),
            Some(_) | None => change.position.to_string(),
        };
        let change_itself = fingerprint(&[key, &sort_key, &what]);
        if !self.seen.insert(change_itself) {
            return Tracked::Duplicate;
        }
        self.order.push_back((change_itself, item));
        let (last, remembered) =
            self.items.entry(item).or_insert_with(|| (change.position.clone(), 0));
        *remembered += 1;
        let is_late = change.position < *last;
        if !is_late {
            last.clone_from(&change.position);
        }
        if self.order.len() > self.capacity {
            self.forget_oldest();
        }
        if is_late { Tracked::Late } else { Tracked::InOrder }
    }

    fn forget_oldest(&mut self) {
        let Some((change, item)) = self.order.pop_front() else { return };
        self.seen.remove(&change);
        if let Some((_, remembered)) = self.items.get_mut(&item) {
            *remembered -= 1;
            if *remembered == 0 {
                self.items.remove(&item);
            }
        }
    }
}

/// A digest of texts, each preceded by its length, so that no two lists have the same input.
fn fingerprint(texts: &[&str]) -> Fingerprint {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    }
    let digest = digest.finalize();
    std::array::from_fn(|at| digest[at])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ChangeKind;
    use sharding_core::{PartitionKey, ShardNumber, SortKey, Version};

    fn change(sort_key: &str, position: Position, version: u64, is_end: bool) -> Change {
        Change {
            kind: if is_end { ChangeKind::Delete } else { ChangeKind::Put },
            partition_key: PartitionKey::new("orders").unwrap(),
            sort_key: SortKey::parse(sharding_core::SortKeyType::String, sort_key).unwrap(),
            shard: ShardNumber::FIRST,
            version: Some(Version::new(1, version, 0)),
            old: None,
            new: None,
            at: Duration::ZERO,
            position,
            is_end,
        }
    }

    fn put(sort_key: &str, era: u64, sequence: u64) -> Change {
        change(sort_key, Position::by_sequence(era, &sequence.to_string()), sequence, false)
    }

    fn tracker(capacity: usize) -> ChangeTracker {
        ChangeTracker::new(NonZeroUsize::new(capacity).unwrap())
    }

    #[test]
    fn a_later_era_comes_last_whatever_the_sequence_numbers_are() {
        let mut tracker = tracker(10);
        let seen =
            [put("a", 2, 5), put("a", 1, 9), put("b", 1, 9), put("a", 2, 5), put("a", 2, 10)];
        let results: Vec<Tracked> = seen.iter().map(|change| tracker.see(change)).collect();
        use Tracked::{Duplicate, InOrder, Late};
        assert_eq!(results, [InOrder, Late, InOrder, Duplicate, InOrder]);
    }

    #[test]
    fn an_item_ends_once_however_many_of_its_copies_are_removed() {
        let mut tracker = tracker(10);
        let end = |sequence: &str| change("a", Position::by_sequence(1, sequence), 7, true);
        assert_eq!(tracker.see(&end("1")), Tracked::InOrder);
        assert_eq!(tracker.see(&end("2")), Tracked::Duplicate);
    }

    #[test]
    fn beyond_its_capacity_the_oldest_is_forgotten_entirely() {
        let mut tracker = tracker(3);
        for sequence in 0..100 {
            let change = put(&format!("item-{sequence}"), 1, sequence);
            assert_eq!(tracker.see(&change), Tracked::InOrder);
        }
        assert_eq!((tracker.seen.len(), tracker.items.len(), tracker.order.len()), (3, 3, 3));
        assert_eq!(tracker.see(&put("item-99", 1, 99)), Tracked::Duplicate);
        assert_eq!(tracker.see(&put("item-0", 1, 0)), Tracked::InOrder, "it was forgotten");
    }

    #[test]
    fn a_change_takes_as_much_memory_as_is_documented() {
        // A fingerprint, its item's fingerprint, the position's text, and the unused space of the
        // tables: at most half, and a byte for each entry.
        let entries =
            2 * (size_of::<Fingerprint>() + 1) + 2 * size_of::<(Fingerprint, Fingerprint)>();
        let items = 2 * (size_of::<(Fingerprint, (Position, usize))>() + 1);
        let text = Position::by_time(1, 1, Version::LOWEST, true).as_str().len();
        assert!(entries + items + text <= 400, "{}", entries + items + text);
    }
}
