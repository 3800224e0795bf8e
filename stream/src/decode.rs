//! Decides the meaning of a record from the widths of its key.

use std::time::Duration;

use serde_json::Value as Json;

use crate::change::{Ambiguity, Change, ChangeKind, Decoded, Internal, Position};
use crate::error::StreamError;
use crate::record::{Event, Image, Reading, StreamRecord, read};
use sharding_core::internal::InForce;
use sharding_core::{ShardCount, ShardNumber, TableConfig, Version, WidthHistory, Writes};

/// Decodes the stream of one table.
///
/// ```
/// use serde_json::json;
/// use dynamodb_write_sharding_stream::TableConfig;
/// use dynamodb_write_sharding_stream::{ChangeKind, Decoded, Reading, StreamDecoder, WidthHistory};
///
/// let config = TableConfig::new("items", "items-metadata");
/// let decoder = StreamDecoder::new(config.clone());
/// let record = json!({
///     "eventID": "c4ca4238a0b923820dcc509a6f75849b",
///     "eventName": "INSERT",
///     "eventSource": "aws:dynamodb",
///     "dynamodb": {
///         "ApproximateCreationDateTime": 1_700_000_000, "SequenceNumber": "100000000000000000001",
///         "StreamViewType": "NEW_AND_OLD_IMAGES",
///         "Keys": {"partition_key": {"S": "2014-07-09"}, "sort_key": {"S": "order-1147"}},
///         "NewImage": {
///             "partition_key": {"S": "2014-07-09"}, "sort_key": {"S": "order-1147"},
///             "fruit": {"S": "grape"}, "_sh:v": {"N": "1001700000000000000000000001"},
///         },
///     },
/// });
/// let Reading::Item(record) = decoder.read(&record)? else { panic!("it is about an item") };
/// // In a function: `table.width_history(record.partition_key()).await?`.
/// let widths = WidthHistory::never_grown(&config, 1_700_000_000);
/// let Decoded::Change(change) =
///     decoder.decode(record, &widths)? else { panic!("a user has made it") };
/// assert_eq!((change.kind, change.partition_key.as_str()), (ChangeKind::Put, "2014-07-09"));
/// let new = change.new.expect("a put has a new image");
/// assert_eq!(new.attributes.keys().collect::<Vec<_>>(), ["fruit"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    config: TableConfig,
}

impl StreamDecoder {
    /// A decoder for the table with this configuration, which must equal the functions'
    /// configuration.
    pub const fn new(config: TableConfig) -> Self {
        Self { config }
    }

    /// Parses one element of an event's `Records`: of DynamoDB Streams, or of a Kinesis data
    /// stream. This step recognises records of the metadata table and removals of tombstones.
    ///
    /// # Errors
    /// [`StreamError::Field`] names the first field that is missing or wrong. [`StreamError::View`]
    /// if the stream leaves out images.
    pub fn read(&self, record: &Json) -> Result<Reading, StreamError> {
        read(&self.config, record)
    }

    /// Decides the meaning of a record. `widths` are the widths of its [partition
    /// key](StreamRecord::partition_key).
    ///
    /// # Errors
    /// [`StreamError::WidthsTooOld`] if the widths must be read again.
    pub fn decode(
        &self,
        record: StreamRecord,
        widths: &WidthHistory,
    ) -> Result<Decoded, StreamError> {
        let (at, quiet) = (record.at.as_secs(), self.quiet());
        if at > widths.read_at().saturating_add(quiet.as_secs() / 2) {
            return Err(StreamError::WidthsTooOld { at, read_at: widths.read_at() });
        }
        let judged_at = at.saturating_sub(quiet.as_secs());
        let in_force = widths.at(judged_at);
        let verdict = match (&record.event, self.config.writes()) {
            (Event::Put { old, new }, writes) => match (new.version, writes) {
                (None, _) => Verdict::Change,
                (Some(_), _) if is_mark(old.as_ref(), new) => Verdict::Internal(Internal::Marked),
                (Some(version), _) if is_edited(old.as_ref(), version) => Verdict::Change,
                (Some(version), Writes::Items) => {
                    self.judge_put(&record, version, in_force, widths)
                }
                (Some(version), Writes::Appends | _) => {
                    let may_be_moved = matches!(in_force, InForce::Below(_))
                        || widths.may_have_been_drained(judged_at);
                    judge_append(version, record.at, quiet, may_be_moved)
                }
            },
            (Event::Remove { old, by_time_to_live }, writes) => {
                let is_expired =
                    *by_time_to_live || old.expires_at.is_some_and(|ends| ends > 0 && ends <= at);
                match writes {
                    Writes::Items => self.judge_removal(&record, is_expired, in_force),
                    // Only a drain deletes there.
                    Writes::Appends if !is_expired => Verdict::Internal(Internal::OriginalRemoved),
                    Writes::Appends if *by_time_to_live && self.may_be_home(&record, in_force) => {
                        Verdict::Change
                    }
                    Writes::Appends | _ => Verdict::Ambiguity(Ambiguity::ExpiredCopy),
                }
            }
        };
        Ok(match verdict {
            Verdict::Internal(internal) => Decoded::Internal(internal),
            Verdict::Change => Decoded::Change(self.change(record, in_force, None)),
            Verdict::Ambiguity(ambiguity) => {
                Decoded::Ambiguous(self.change(record, in_force, Some(ambiguity)), ambiguity)
            }
        })
    }

    /// For this long after a change of the width, no drain can change the table; the same time
    /// again allows for other clocks.
    fn quiet(&self) -> Duration {
        self.config.drain.wait_for_requests / 2
    }

    /// A write of an era is stored at the home of that era, and is made during the era. Everything
    /// else is a copy.
    fn judge_put(
        &self,
        record: &StreamRecord,
        version: Version,
        in_force: InForce,
        widths: &WidthHistory,
    ) -> Verdict {
        let written_at = widths.of_era(version.era()).and_then(|width| self.home(record, width));
        if written_at.is_some_and(|home| home != record.shard) {
            return Verdict::Internal(Internal::Moved);
        }
        match in_force {
            InForce::Era { era, .. } if version.era() < era => Verdict::Internal(Internal::Moved),
            InForce::Below(era) if version.era() + 1 < era => {
                Verdict::Ambiguity(Ambiguity::WidthForgotten)
            }
            InForce::Era { .. } | InForce::Below(_) => Verdict::Change,
        }
    }

    /// A user's deletion removes an item at home. Only a drain removes items elsewhere.
    fn judge_removal(
        &self,
        record: &StreamRecord,
        may_be_expiry: bool,
        in_force: InForce,
    ) -> Verdict {
        match in_force {
            InForce::Below(_) => Verdict::Ambiguity(Ambiguity::WidthForgotten),
            InForce::Era { width, .. } if self.home(record, width) == Some(record.shard) => {
                Verdict::Change
            }
            // DynamoDB removed it, or a drain, which does not copy expired items home.
            InForce::Era { .. } if may_be_expiry => Verdict::Ambiguity(Ambiguity::ExpiredCopy),
            InForce::Era { .. } => Verdict::Internal(Internal::OriginalRemoved),
        }
    }

    /// Whether an append may have been placed there under the current width.
    fn may_be_home(&self, record: &StreamRecord, in_force: InForce) -> bool {
        match in_force {
            InForce::Below(_) => false,
            InForce::Era { width, .. } => match self.home(record, width) {
                None => record.shard.get() <= width.get(),
                // An append without a view is placed on shard 1.
                Some(home) => home == record.shard || record.shard == ShardNumber::FIRST,
            },
        }
    }

    fn home(&self, record: &StreamRecord, width: ShardCount) -> Option<ShardNumber> {
        self.config.placement.home(&record.partition_key, &record.sort_key, width)
    }

    fn change(
        &self,
        record: StreamRecord,
        in_force: InForce,
        ambiguity: Option<Ambiguity>,
    ) -> Change {
        let StreamRecord { partition_key, sort_key, shard, at, event, sequence } = record;
        let in_force = match in_force {
            InForce::Era { era, .. } => era,
            InForce::Below(_) => 0,
        };
        let (kind, old, new, version, is_end) = match event {
            Event::Put { old, new } => {
                let kind = if new.is_tombstone { ChangeKind::Delete } else { ChangeKind::Put };
                (kind, old, (!new.is_tombstone).then_some(new.item), new.version, false)
            }
            Event::Remove { old, by_time_to_live } => {
                let is_expiry = by_time_to_live || ambiguity == Some(Ambiguity::ExpiredCopy);
                let kind = if is_expiry { ChangeKind::Expiry } else { ChangeKind::Delete };
                let version = old.version;
                (kind, Some(old), None, version, true)
            }
        };
        let of = version.unwrap_or(Version::NONE);
        // A removal has no version of its own. It is later than the version that it removed, and
        // not before the era in which it was made. An ambiguous removal must not hide a change.
        let era = if is_end && ambiguity.is_none() { of.era().max(in_force) } else { of.era() };
        let position = match (self.config.writes(), &sequence) {
            (Writes::Items, Some(sequence)) => Position::by_sequence(era, sequence),
            (Writes::Items, None) => Position::by_time(era, at.as_micros(), of, is_end),
            (Writes::Appends | _, _) => Position::by_version(of, is_end),
        };
        let old = old.filter(|image| !image.is_tombstone).map(|image| image.item);
        Change { kind, partition_key, sort_key, shard, version, old, new, at, position, is_end }
    }
}

enum Verdict {
    Internal(Internal),
    Change,
    Ambiguity(Ambiguity),
}

/// A repetition marked the item, and changed nothing else.
fn is_mark(old: Option<&Image>, new: &Image) -> bool {
    let is_same = |old: &Image| old.version == new.version && old.item == new.item;
    new.is_marked && old.is_some_and(is_same)
}

/// The item was changed in place: another program kept its version, or an addition raised it by one
/// step. Other writes and moves do neither.
fn is_edited(old: Option<&Image>, version: Version) -> bool {
    old.and_then(|old| old.version).is_some_and(|old| version == old || version == old.stepped())
}

/// An append reaches the table soon after its version was taken. A drain waits for a quarter of an
/// hour, and keeps the version.
fn judge_append(version: Version, at: Duration, quiet: Duration, may_be_moved: bool) -> Verdict {
    let shows_its_time = version != Version::LOWEST;
    if !shows_its_time && may_be_moved {
        Verdict::Ambiguity(Ambiguity::RepeatableAppend)
    } else if shows_its_time && at.as_secs() >= version.epoch_seconds() + quiet.as_secs() {
        Verdict::Internal(Internal::Moved)
    } else {
        Verdict::Change
    }
}
