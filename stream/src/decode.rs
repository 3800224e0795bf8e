//! Reads records, and decides the meaning of each from the widths of its key.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

use crate::change::{Change, ChangeKind, Decoded, Position};
use crate::error::StreamError;
use crate::record::{Delivered, Image, StreamRecord, parse};
use sharding_core::internal::InForce;
use sharding_core::{ShardCount, ShardNumber, TableConfig, Version, WidthHistory, Writes};

/// Decodes the stream of one table.
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
    /// stream. `None` for what no user has changed, whatever the widths are: a record of the metadata
    /// table, the removal of a tombstone, and an item of another program that no read returns.
    ///
    /// # Errors
    /// [`StreamError::Field`] names the first field that is missing or wrong, such as the view of a
    /// stream that leaves out images.
    pub fn read(&self, record: &Json) -> Result<Option<StreamRecord>, StreamError> {
        let Some(kinesis) = record.get("kinesis") else {
            return parse::<Delivered>(record)?.read(&self.config, false);
        };
        let is = |problem: String| StreamError::field("kinesis.data", problem);
        let data = kinesis.get("data").and_then(Json::as_str);
        let data = data.ok_or_else(|| is("is missing or is not a string".to_owned()))?;
        let bytes = STANDARD.decode(data).map_err(|_| is("is not base64".to_owned()))?;
        let inner: Json =
            serde_json::from_slice(&bytes).map_err(|error| is(format!("is not JSON: {error}")))?;
        let read = parse::<Delivered>(&inner).and_then(|inner| inner.read(&self.config, true));
        read.map_err(|mut error| {
            if let StreamError::Field { field, .. } = &mut error {
                field.insert_str(0, "kinesis.data.");
            }
            error
        })
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
        let old = record.old.as_ref();
        let verdict = if let Some(new) = &record.new {
            match (new.version, self.config.writes()) {
                (None, _) => Verdict::Change,
                (Some(_), _) if is_mark(old, new) => Verdict::Internal,
                (Some(version), _) if is_edited(old, version) => Verdict::Change,
                (Some(version), Writes::Items) => {
                    self.judge_put(&record, version, in_force, widths)
                }
                (Some(version), Writes::Appends | _) => {
                    let may_be_moved = matches!(in_force, InForce::Below(_))
                        || widths.may_have_been_drained(judged_at);
                    judge_append(version, record.at, quiet, may_be_moved)
                }
            }
        } else {
            match self.config.writes() {
                Writes::Items => self.judge_removal(&record, in_force),
                // Only a drain deletes there.
                Writes::Appends if !has_expired(&record) => Verdict::Internal,
                Writes::Appends
                    if record.by_time_to_live && self.may_be_home(&record, in_force) =>
                {
                    Verdict::Change
                }
                // A copy that a width change left behind may have expired.
                Writes::Appends | _ => Verdict::Ambiguous,
            }
        };
        Ok(match verdict {
            Verdict::Internal => Decoded::Internal,
            Verdict::Change => Decoded::Change(self.change(record, in_force, false)),
            Verdict::Ambiguous => Decoded::Ambiguous(self.change(record, in_force, true)),
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
            return Verdict::Internal;
        }
        match in_force {
            InForce::Era { era, .. } if version.era() < era => Verdict::Internal,
            InForce::Below(era) if version.era() + 1 < era => Verdict::Ambiguous,
            InForce::Era { .. } | InForce::Below(_) => Verdict::Change,
        }
    }

    /// A user's deletion removes an item at home. Only a drain removes items elsewhere.
    fn judge_removal(&self, record: &StreamRecord, in_force: InForce) -> Verdict {
        match in_force {
            InForce::Below(_) => Verdict::Ambiguous,
            InForce::Era { width, .. } if self.home(record, width) == Some(record.shard) => {
                Verdict::Change
            }
            // DynamoDB removed it, or a drain, which does not copy expired items home.
            InForce::Era { .. } if has_expired(record) => Verdict::Ambiguous,
            InForce::Era { .. } => Verdict::Internal,
        }
    }

    /// Whether an append may have been placed there under the current width.
    fn may_be_home(&self, record: &StreamRecord, in_force: InForce) -> bool {
        let InForce::Era { width, .. } = in_force else { return false };
        match self.home(record, width) {
            None => record.shard.get() <= width.get(),
            // An append without a view is placed on shard 1.
            Some(home) => home == record.shard || record.shard == ShardNumber::FIRST,
        }
    }

    fn home(&self, record: &StreamRecord, width: ShardCount) -> Option<ShardNumber> {
        self.config.placement.home(&record.partition_key, &record.sort_key, width)
    }

    fn change(&self, record: StreamRecord, in_force: InForce, is_ambiguous: bool) -> Change {
        // Where the home is forgotten, a user may have deleted an item that had expired.
        let (in_force, may_be_deletion) = match in_force {
            InForce::Era { era, .. } => (era, false),
            InForce::Below(_) => (0, self.config.writes() == Writes::Items),
        };
        let is_expiry =
            record.by_time_to_live || (is_ambiguous && !may_be_deletion && has_expired(&record));
        let StreamRecord { partition_key, sort_key, at, old, new, sequence, .. } = record;
        let kind = match &new {
            Some(new) if !new.is_tombstone => ChangeKind::Put,
            None if is_expiry => ChangeKind::Expiry,
            Some(_) | None => ChangeKind::Delete,
        };
        let is_end = new.is_none();
        let version = new.as_ref().or(old.as_ref()).and_then(|image| image.version);
        let of = version.unwrap_or(Version::NONE);
        // A removal has no version of its own. It is later than the version that it removed, and
        // not before the era in which it was made. An ambiguous removal must not hide a change.
        let era = if is_end && !is_ambiguous { of.era().max(in_force) } else { of.era() };
        let by_version = format!("{of:0>38}-{}", u8::from(is_end));
        let position = Position(match (self.config.writes(), sequence) {
            (Writes::Items, Some(sequence)) => format!("{era:011}-{sequence:0>40}"),
            (Writes::Items, None) => format!("{era:011}-{:020}-{by_version}", at.as_micros()),
            (Writes::Appends | _, _) => format!("{:011}-{by_version}", 0),
        });
        let item = |image: Option<Image>| {
            image.filter(|image| !image.is_tombstone).map(|image| image.item)
        };
        let (old, new) = (item(old), item(new));
        Change { kind, partition_key, sort_key, version, old, new, at, position }
    }
}

enum Verdict {
    Internal,
    Change,
    Ambiguous,
}

/// DynamoDB removed the item because its time to live had ended, or may have.
fn has_expired(record: &StreamRecord) -> bool {
    let ends = record.old.as_ref().and_then(|old| old.expires_at);
    record.by_time_to_live || ends.is_some_and(|ends| (1..=record.at.as_secs()).contains(&ends))
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
        Verdict::Ambiguous
    } else if shows_its_time && at.as_secs() >= version.epoch_seconds() + quiet.as_secs() {
        Verdict::Internal
    } else {
        Verdict::Change
    }
}
