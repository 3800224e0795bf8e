//! The order of one item's changes.

use std::fmt;

use sharding_core::Version;

/// The position of a change among the changes of its item. Of two changes, the one with the greater
/// position is later, in any order of delivery. Its text compares in the same way. So it can be
/// stored beside a projection of the item, and serve as the condition of an update:
/// `attribute_not_exists(#position) OR #position < :position`.
///
/// The era comes first. Within an era, all changes of an item are under one stored key, so the
/// stream's own order counts: the sequence number of DynamoDB Streams, or the time of a Kinesis
/// record and then the version. In an append-only table the version decides.
///
/// Compare only positions of one item, from one type of stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(String);

impl Position {
    /// By the sequence number of DynamoDB Streams: up to 40 digits.
    pub(crate) fn by_sequence(era: u64, sequence: &str) -> Self {
        Self(format!("{era:011}-{sequence:0>40}"))
    }

    /// By the time of a Kinesis record.
    pub(crate) fn by_time(era: u64, micros: u128, version: Version, is_end: bool) -> Self {
        Self(format!("{era:011}-{micros:020}-{}-{}", digits(version), u8::from(is_end)))
    }

    /// By the version alone.
    pub(crate) fn by_version(version: Version, is_end: bool) -> Self {
        Self(format!("{:011}-{}-{}", 0, digits(version), u8::from(is_end)))
    }

    /// The comparable text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn digits(version: Version) -> String {
    format!("{:0>38}", version.to_string())
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
