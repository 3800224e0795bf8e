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
///
/// ```
/// use serde_json::json;
/// use dynamodb_write_sharding_stream::TableConfig;
/// use dynamodb_write_sharding_stream::{Decoded, WidthHistory, Reading, StreamDecoder};
///
/// let config = TableConfig::new("items", "items-metadata");
/// let decoder = StreamDecoder::new(config.clone());
/// let put = |era: u64, sequence: &str| {
///     let image = json!({"partition_key": {"S": "day"}, "sort_key": {"S": "a"},
///         "_sh:v": {"N": format!("{era}000000000000000007000000001")}});
///     let record = json!({"eventID": "1", "eventName": "INSERT", "dynamodb": {
///         "ApproximateCreationDateTime": 1_700_000_000,
///         "Keys": {"partition_key": {"S": "day"}, "sort_key": {"S": "a"}}, "NewImage": image,
///         "SequenceNumber": sequence, "StreamViewType": "NEW_AND_OLD_IMAGES"}});
///     let Ok(Reading::Item(record)) = decoder.read(&record) else { panic!("it is an item's") };
///     match decoder.decode(record, &WidthHistory::never_grown(&config, 1_700_000_000)) {
///         Ok(Decoded::Change(change)) => change.position,
///         other => panic!("{other:?}"),
///     }
/// };
/// assert!(put(1, "900000000000000000002") > put(1, "900000000000000000001"));
/// assert!(
///     put(2, "100000000000000000000") > put(1, "900000000000000000002"),
///     "another stored key",
/// );
/// ```
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
    #[must_use]
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
