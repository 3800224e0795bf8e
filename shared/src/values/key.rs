//! Logical keys, shards, and the shard keys that the table stores.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use crate::values::number::{Number, NumberError};

/// The largest size of a stored partition key in bytes. (DynamoDB developer guide, "Quotas in
/// Amazon DynamoDB".)
pub const MAX_PARTITION_KEY_BYTES: usize = 2_048;
/// The same for a sort key.
pub const MAX_SORT_KEY_BYTES: usize = 1_024;
/// The largest size of the partition key of a key that can grow: the longest suffix of a shard still
/// fits.
pub const MAX_SHARDED_KEY_BYTES: usize = 2_040;
/// "Unit separator", which begins the suffix of a shard. Keys do not have it.
pub const SUFFIX_MARK: char = '\u{1f}';
const SUFFIX: &str = "\u{1f}s";
/// The prefix of the product's own items in the metadata table.
const RESERVED_PREFIX: &str = "_sharding:";

/// Why a key is invalid. The text says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A key has at least one byte.
    #[error("it is empty; a key has at least one byte")]
    Empty,
    /// The key is too long, or would be with its shard suffix.
    #[error("it has {bytes} bytes; at most {allowed} are allowed")]
    TooLong {
        /// The key's size in bytes.
        bytes: usize,
        /// The largest size that is allowed here.
        allowed: usize,
    },
    /// Partition keys with this prefix are reserved for the product.
    #[error("it begins with _sharding:, which is reserved")]
    Reserved,
    /// Shards of a key have this character in their stored keys.
    #[error("it contains U+001F, which separates a key and its shard")]
    HasSuffixMark,
    /// The table's sort key is a number, and this text is not.
    #[error("it must be a number: {0}")]
    NotANumber(NumberError),
    /// The table's sort key is a string, and this is a number.
    #[error("it must be a string: the table's sort keys are strings")]
    NotAString,
}

/// Makes conversions that cannot fail fit where a fallible conversion is expected.
impl From<Infallible> for KeyError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// What converts into a key: text and keys, and integers into a sort key.
pub trait IntoKey<K = PartitionKey> {
    /// The key, or why it is invalid.
    fn into_key(self) -> Result<K, KeyError>;
}

impl<K, T: TryInto<K, Error: Into<KeyError>>> IntoKey<K> for T {
    fn into_key(self) -> Result<K, KeyError> {
        self.try_into().map_err(Into::into)
    }
}

/// The caller's own partition key: 1 to 2,048 bytes of UTF-8 that do not begin with `_sharding:`.
/// Each request checks that a shard's suffix still fits, and that the key does not contain the
/// character that begins one, U+001F.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey(Arc<str>);

impl PartitionKey {
    /// Validates a key as the caller writes it.
    ///
    /// # Errors
    /// [`KeyError::Empty`], [`KeyError::TooLong`] and [`KeyError::Reserved`]. Whether a shard
    /// suffix still fits is checked when one is added.
    pub fn new(key: &str) -> Result<Self, KeyError> {
        if key.starts_with(RESERVED_PREFIX) {
            return Err(KeyError::Reserved);
        }
        sized(key, MAX_PARTITION_KEY_BYTES).map(|key| Self(key.into()))
    }

    /// The key as the caller wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! from_text {
    ($key:ident, $parse:path, $($text:ty),*) => {
        $(impl TryFrom<$text> for $key {
            type Error = KeyError;

            fn try_from(text: $text) -> Result<Self, KeyError> {
                $parse(&text)
            }
        })*

        impl From<&Self> for $key {
            fn from(key: &Self) -> Self {
                key.clone()
            }
        }
    };
}
from_text!(PartitionKey, PartitionKey::new, &str, &String, String);
from_text!(SortKey, string_key, &str, &String, String);

fn string_key(text: &str) -> Result<SortKey, KeyError> {
    SortKey::parse(SortKeyType::String, text)
}

fn sized(text: &str, allowed: usize) -> Result<&str, KeyError> {
    match text.len() {
        0 => Err(KeyError::Empty),
        bytes if bytes > allowed => Err(KeyError::TooLong { bytes, allowed }),
        _ => Ok(text),
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The type of a table's sort key, fixed at deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortKeyType {
    /// A string, ordered by its UTF-8 bytes.
    String,
    /// A number, ordered by value.
    Number,
}

/// The caller's sort key. All keys of a table have one type, and DynamoDB's order.
///
/// Text becomes a string key; in a table with numeric sort keys, a request parses it as a number.
/// Integers become number keys.
///
/// ```
/// use dynamodb_write_sharding::SortKey;
///
/// let (nine, ten) = (SortKey::from(9), SortKey::from(10));
/// assert!(nine < ten);
/// let text: SortKey = "order-1147".try_into()?;
/// assert_eq!(text.to_string(), "order-1147");
/// # Ok::<(), dynamodb_write_sharding::KeyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SortKey {
    /// The sort key of a string table.
    String(Arc<str>),
    /// The sort key of a number table.
    Number(Number),
}

impl SortKey {
    /// Parses a sort key of the given type.
    ///
    /// # Errors
    /// [`KeyError`] if the text is empty or over 1,024 bytes, or not a number where one is
    /// required.
    pub fn parse(key_type: SortKeyType, text: &str) -> Result<Self, KeyError> {
        match key_type {
            SortKeyType::String => {
                sized(text, MAX_SORT_KEY_BYTES).map(|text| Self::String(text.into()))
            }
            SortKeyType::Number if text.is_empty() => Err(KeyError::Empty),
            SortKeyType::Number => text.parse().map(Self::Number).map_err(KeyError::NotANumber),
        }
    }

    /// One text per value, for the placements to hash.
    pub(crate) fn canonical(&self) -> Cow<'_, str> {
        match self {
            Self::String(text) => Cow::Borrowed(text),
            Self::Number(number) => Cow::Owned(number.canonical()),
        }
    }
}

impl<N: Into<Number>> From<N> for SortKey {
    fn from(number: N) -> Self {
        Self::Number(number.into())
    }
}

impl fmt::Display for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// A shard of a logical partition key, numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardNumber(u32);

impl ShardNumber {
    /// The shard that every width contains.
    pub const FIRST: Self = Self(1);

    /// `None` for 0, because shards are numbered from 1.
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    pub(crate) const fn from_index(index: u32) -> Self {
        Self(index.saturating_add(1))
    }

    /// The number, from 1.
    pub const fn get(self) -> u32 {
        self.0
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for ShardNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of shards of a key: a width, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardCount(u32);

impl ShardCount {
    /// The width of a key that was never scaled.
    pub const ONE: Self = Self(1);

    /// `None` for 0, because a key has at least one shard.
    pub const fn new(count: u32) -> Option<Self> {
        if count == 0 { None } else { Some(Self(count)) }
    }

    /// The count, at least 1.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Every shard of this width: 1 to the count.
    pub fn shards(self) -> impl Iterator<Item = ShardNumber> + Clone {
        (0..self.get()).map(ShardNumber::from_index)
    }
}

impl fmt::Display for ShardCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text between the partition key and the shard number in a shard key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Separator(Arc<str>);

impl Separator {
    /// `None` unless the text has 1 to 16 bytes and no ASCII digit: a digit would make shard keys
    /// ambiguous.
    pub fn new(text: &str) -> Option<Self> {
        let good = (1..=16).contains(&text.len()) && !text.bytes().any(|b| b.is_ascii_digit());
        good.then(|| Self(text.into()))
    }

    /// The separator's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Separator {
    fn default() -> Self {
        Self(".".into())
    }
}

/// Builds and parses the values of the table's partition-key attribute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ShardKeys {
    /// The first shard is the key itself. The others have a suffix that no key contains.
    #[default]
    KeyFirst,
    /// Every shard has a suffix: this separator and its number, as in a table that another program
    /// has sharded.
    Suffixed(Separator),
}

impl ShardKeys {
    /// The stored key of a shard, with the errors of [`check`](Self::check).
    pub fn build(&self, key: &PartitionKey, shard: ShardNumber) -> Result<String, KeyError> {
        if self.is_key_itself(shard) {
            return Ok(key.as_str().to_owned());
        }
        self.check(key, shard.get())?;
        Ok(match self {
            Self::KeyFirst => format!("{key}{SUFFIX}{shard}"),
            Self::Suffixed(separator) => format!("{key}{}{shard}", separator.as_str()),
        })
    }

    /// Whether the stored key of a shard is the key itself.
    pub fn is_key_itself(&self, shard: ShardNumber) -> bool {
        *self == Self::KeyFirst && shard == ShardNumber::FIRST
    }

    /// Every shard key up to a shard must fit, and differ from other keys. [`KeyError::TooLong`]
    /// counts the partition key alone.
    pub fn check(&self, key: &PartitionKey, shard: u32) -> Result<(), KeyError> {
        let allowed = match self {
            Self::KeyFirst => MAX_SHARDED_KEY_BYTES,
            Self::Suffixed(separator) => {
                let suffix = separator.as_str().len() + shard.to_string().len();
                MAX_PARTITION_KEY_BYTES.saturating_sub(suffix)
            }
        };
        if *self == Self::KeyFirst && key.as_str().contains(SUFFIX_MARK) {
            return Err(KeyError::HasSuffixMark);
        }
        sized(key.as_str(), allowed).map(|_| ())
    }

    /// `None` if no shard has this stored key.
    pub fn parse(&self, stored: &str) -> Option<(PartitionKey, ShardNumber)> {
        let (key, shard) = match self {
            Self::KeyFirst => match stored.split_once(SUFFIX) {
                Some((key, number)) => {
                    (key, shard_number(number).filter(|shard| *shard > ShardNumber::FIRST)?)
                }
                None => (stored, ShardNumber::FIRST),
            },
            // A logical key may itself look like a shard key: only the last suffix is the shard.
            Self::Suffixed(separator) => {
                let (key, number) = stored.rsplit_once(separator.as_str())?;
                (key, shard_number(number)?)
            }
        };
        let key = PartitionKey::new(key).ok()?;
        self.check(&key, shard.get()).ok()?;
        Some((key, shard))
    }
}

fn shard_number(text: &str) -> Option<ShardNumber> {
    let canonical = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    canonical.then(|| text.parse().ok()).flatten().and_then(ShardNumber::new)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn suffixed(separator: &str) -> ShardKeys {
        ShardKeys::Suffixed(Separator::new(separator).unwrap())
    }

    #[test]
    fn what_is_no_shard_key_is_not_parsed() {
        for stored in
            ["plain", "a.", ".1", "a.0", "a.01", "a.-1", "a.+1", "a.1x", "a.4294967296", "a. 1"]
        {
            assert_eq!(suffixed(".").parse(stored), None, "{stored}");
        }
        for number in ["", "0", "1", "02", "-2", "+2", "2x", "4294967296", " 2", "2\u{1f}s2"] {
            assert_eq!(ShardKeys::default().parse(&format!("a\u{1f}s{number}")), None, "{number}");
        }
        for stored in ["a\u{1f}", "a\u{1f}2", "\u{1f}s2", "_sharding:table"] {
            assert_eq!(ShardKeys::default().parse(stored), None, "{stored}");
        }
    }

    #[test]
    fn the_suffix_counts_towards_the_length() {
        let check = |bytes, width| suffixed(".").check(&key(&"k".repeat(bytes)), width);
        let too_long = |bytes, allowed| Err(KeyError::TooLong { bytes, allowed });
        assert_eq!((check(2_045, 99), check(2_045, 100)), (Ok(()), too_long(2_045, 2_044)));
        // The first layout leaves room for every width, so a key need not be shorter to grow.
        for width in [1, 10_000] {
            let check = |text: &str| ShardKeys::default().check(&key(text), width);
            assert_eq!(check(&"k".repeat(2_040)), Ok(()));
            assert_eq!(check(&"k".repeat(2_041)), too_long(2_041, 2_040));
            assert_eq!(check("a\u{1f}s2"), Err(KeyError::HasSuffixMark));
        }
    }

    proptest! {
        /// So no two shards, of one key or of two, have the same stored key.
        #[test]
        fn shard_keys_round_trip(
            k in "(\\PC{1,40}|[a.#0-9s]{1,6})(\\.[0-9]{1,3})?",
            separator in "[^0-9]{1,4}",
            n in 1u32..,
        ) {
            for keys in [ShardKeys::default(), suffixed("."), suffixed(&separator)] {
                prop_assert_eq!(
                    keys.parse(&keys.build(&key(&k), shard(n)).unwrap()),
                    Some((key(&k), shard(n))),
                );
            }
        }

        #[test]
        fn string_sort_keys_order_by_bytes(a in "\\PC{1,8}", b in "\\PC{1,8}") {
            prop_assert_eq!(text(&a).cmp(&text(&b)), a.as_bytes().cmp(b.as_bytes()));
        }
    }

    pub(crate) fn key(text: &str) -> PartitionKey {
        PartitionKey::new(text).unwrap()
    }

    pub(crate) fn text(text: &str) -> SortKey {
        SortKey::parse(SortKeyType::String, text).unwrap()
    }

    pub(crate) fn number(text: impl ToString) -> SortKey {
        SortKey::parse(SortKeyType::Number, &text.to_string()).unwrap()
    }

    pub(crate) fn count(n: u32) -> ShardCount {
        ShardCount::new(n).unwrap()
    }

    pub(crate) fn shard(n: u32) -> ShardNumber {
        ShardNumber::new(n).unwrap()
    }
}
