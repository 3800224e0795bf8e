//! Repeated and late changes, found in memory.

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroUsize;

use sha2::{Digest, Sha256};

use super::change::Change;
use super::position::Position;

/// What a tracker knows of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tracked {
    /// It is new, and later than every change of its item that was seen.
    InOrder,
    /// It is new, and a later change of its item was seen before: a log takes it in, a projection of the newest state leaves it out.
    Late,
    /// It was seen before.
    Duplicate,
}

/// Remembers the last changes that it was shown, so that each is given once, with the word whether it is in order.
///
/// It takes about 400 bytes a change, however long its keys are: 40 MB for 100,000. Beyond its capacity the oldest is forgotten. So it
/// is exact for repetitions and late arrivals within so many changes. It lives in one process: Lambda may deliver again to
/// another one, and reads the stream's shards in several at once. What must hold across processes is kept with the data, by
/// [`Change::position`].
///
/// Show it a change after its effect is stored, or forget the tracker where storing fails: Lambda delivers the change again.
///
/// ```
/// use std::num::NonZeroUsize;
/// use serde_json::json;
/// use sharding::TableConfig;
/// use sharding::stream::{ChangeTracker, Decoded, KeyWidths, Reading, StreamDecoder, Tracked};
///
/// let config = TableConfig::new("items", "items-metadata");
/// let decoder = StreamDecoder::new(config.clone());
/// let put = |sequence: &str| {
///     let keys = json!({"partition_key": {"S": "day.1"}, "sort_key": {"S": "a"}});
///     let record = json!({"eventName": "INSERT", "dynamodb": {"ApproximateCreationDateTime": 1_700_000_000, "Keys": keys,
///         "NewImage": keys, "SequenceNumber": sequence, "StreamViewType": "NEW_AND_OLD_IMAGES"}});
///     let Ok(Reading::Item(record)) = decoder.read(&record) else { panic!("it is an item's") };
///     match decoder.decode(record, &KeyWidths::never_grown(&config, 1_700_000_000)) {
///         Ok(Decoded::Change(change)) => change,
///         other => panic!("{other:?}"),
///     }
/// };
/// let mut tracker = ChangeTracker::new(NonZeroUsize::new(1_000).unwrap());
/// assert_eq!(tracker.see(&put("2")), Tracked::InOrder);
/// assert_eq!(tracker.see(&put("2")), Tracked::Duplicate);
/// assert_eq!(tracker.see(&put("1")), Tracked::Late);
/// ```
#[derive(Debug, Clone)]
pub struct ChangeTracker {
    capacity: usize,
    seen: HashSet<Fingerprint>,
    /// The last change of each item among those that are remembered, and how many of those are the item's.
    items: HashMap<Fingerprint, (Position, usize)>,
    /// Each change with its item, oldest first.
    order: VecDeque<(Fingerprint, Fingerprint)>,
}

type Fingerprint = [u8; 16];

impl ChangeTracker {
    /// Remembers so many changes.
    #[must_use]
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self { capacity: capacity.get(), seen: HashSet::new(), items: HashMap::new(), order: VecDeque::new() }
    }

    /// Whether a change is new, and whether it is in order. It is remembered from now on.
    pub fn see(&mut self, change: &Change) -> Tracked {
        let item = fingerprint(&[change.partition_key.as_str(), &change.sort_key.canonical()]);
        // Of a removal, DynamoDB Streams and a copy that expires later each make a record: the item that ends is the same.
        let what = match change.version {
            Some(version) if change.is_end => format!("end of {version}"),
            Some(_) | None => change.position.to_string(),
        };
        let change_itself = fingerprint(&[change.partition_key.as_str(), &change.sort_key.canonical(), &what]);
        if !self.seen.insert(change_itself) {
            return Tracked::Duplicate;
        }
        self.order.push_back((change_itself, item));
        let (last, remembered) = self.items.entry(item).or_insert_with(|| (change.position.clone(), 0));
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

/// Of texts, each with its length in front, so that no two lists share an input.
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
    use crate::core::key::ShardNumber;
    use crate::core::key::tests::{key, text};
    use crate::protocol::version::Version;
    use crate::stream::ChangeKind;

    fn change(sort_key: &str, position: Position, version: u64, is_end: bool) -> Change {
        Change {
            kind: if is_end { ChangeKind::Delete } else { ChangeKind::Put },
            partition_key: key("orders"),
            sort_key: text(sort_key),
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
    fn a_later_era_comes_after_an_earlier_one_whatever_their_sequence_numbers_are() {
        let mut tracker = tracker(10);
        let seen = [put("a", 2, 5), put("a", 1, 9), put("b", 1, 9), put("a", 2, 5), put("a", 2, 10)];
        let told: Vec<Tracked> = seen.iter().map(|change| tracker.see(change)).collect();
        use Tracked::{Duplicate, InOrder, Late};
        assert_eq!(told, [InOrder, Late, InOrder, Duplicate, InOrder]);
    }

    #[test]
    fn an_item_ends_once_however_many_of_its_copies_are_removed() {
        let mut tracker = tracker(10);
        let end = |sequence: &str| change("a", Position::by_sequence(1, sequence), 7, true);
        assert_eq!([tracker.see(&end("1")), tracker.see(&end("2"))], [Tracked::InOrder, Tracked::Duplicate]);
    }

    #[test]
    fn beyond_its_capacity_the_oldest_is_forgotten_and_nothing_is_left_of_it() {
        let mut tracker = tracker(3);
        for sequence in 0..100 {
            assert_eq!(tracker.see(&put(&format!("item-{sequence}"), 1, sequence)), Tracked::InOrder);
        }
        assert_eq!((tracker.seen.len(), tracker.items.len(), tracker.order.len()), (3, 3, 3));
        assert_eq!(tracker.see(&put("item-99", 1, 99)), Tracked::Duplicate);
        assert_eq!(tracker.see(&put("item-0", 1, 0)), Tracked::InOrder, "it was forgotten");
    }

    #[test]
    fn a_change_takes_as_much_memory_as_is_documented() {
        // A fingerprint, its item's, the position's text, and what the tables leave free: at most half, and a byte for each entry.
        let entries = 2 * (size_of::<Fingerprint>() + 1) + 2 * size_of::<(Fingerprint, Fingerprint)>();
        let items = 2 * (size_of::<(Fingerprint, (Position, usize))>() + 1);
        let text = Position::by_time(1, 1, Version::LOWEST, true).as_str().len();
        assert!(entries + items + text <= 400, "{}", entries + items + text);
    }
}
