//! Armed keys, those that may grow: docs/protocol.md, "Armed keys".

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::protocol::view::Moment;
use crate::values::key::PartitionKey;

pub const PATTERN_LEASE: Duration = Duration::from_secs(60);
/// How long after it was stored a pattern begins to count: a lease of the patterns, the time for
/// which signed requests are applied, and a margin for clocks.
pub const ARMING_WAIT: Duration = Duration::from_secs(18 * 60);
/// The largest difference of two processes' clocks that is assumed.
pub(crate) const CLOCK_MARGIN: Duration = Duration::from_secs(60);
pub(crate) const MAX_PATTERNS: usize = 100;

/// The keys that an operator arms: all, those with a prefix, or one.
///
/// ```
/// use dynamodb_write_sharding::maintenance::KeyPattern;
///
/// let pattern: KeyPattern = "prefix:tenant#".parse()?;
/// assert!(pattern.matches(&"tenant#7".try_into()?));
/// assert_eq!(pattern.to_string(), "prefix:tenant#");
/// assert!("tenant#".parse::<KeyPattern>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum KeyPattern {
    /// Every key.
    All,
    /// The keys that begin with this text.
    Prefix(String),
    /// One key.
    Key(PartitionKey),
}

/// A text that is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is {0:?}; allowed: *, prefix: and the beginning of keys, or key: and a key, without U+001F"
)]
pub struct PatternError(String);

impl KeyPattern {
    /// Whether the pattern arms the key.
    #[must_use]
    pub fn matches(&self, key: &PartitionKey) -> bool {
        match self {
            Self::All => true,
            Self::Prefix(prefix) => key.as_str().starts_with(prefix),
            Self::Key(named) => named == key,
        }
    }
}

impl FromStr for KeyPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let pattern = match text.split_once(':') {
            _ if text.contains('\u{1f}') => None,
            _ if text == "*" => Some(Self::All),
            Some(("prefix", text)) => {
                PartitionKey::new(text).is_ok().then(|| Self::Prefix(text.to_owned()))
            }
            Some(("key", key)) => PartitionKey::new(key).ok().map(Self::Key),
            _ => None,
        };
        pattern.ok_or_else(|| PatternError(text.to_owned()))
    }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "prefix:{prefix}"),
            Self::Key(key) => write!(f, "key:{key}"),
        }
    }
}

/// The patterns, each with the epoch second from which it counts; `None` if it has none yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Armed(BTreeMap<KeyPattern, Option<u64>>);

impl Armed {
    /// Every key is armed from the beginning.
    pub fn all() -> Self {
        Self::default().with(KeyPattern::All, Some(0))
    }

    /// For a table whose patterns are lost: reads look at the page of every key, and no key is
    /// armed that the directory does not list.
    pub fn lost() -> Self {
        Self::default().with(KeyPattern::All, None)
    }

    pub fn with(mut self, pattern: KeyPattern, from: Option<u64>) -> Self {
        self.0.insert(pattern, from);
        self
    }

    pub fn without(mut self, pattern: &KeyPattern) -> Self {
        self.0.remove(pattern);
        self
    }

    pub fn patterns(&self) -> impl ExactSizeIterator<Item = (&KeyPattern, Option<u64>)> {
        self.0.iter().map(|(pattern, from)| (pattern, *from))
    }

    /// Whether the key's page says where its items are.
    pub fn matches(&self, key: &PartitionKey) -> bool {
        self.0.keys().any(|pattern| pattern.matches(key))
    }

    /// The epoch second from which the key is armed, by the earliest of its patterns; `None` if
    /// none of them has a time.
    pub fn counts_since(&self, key: &PartitionKey) -> Option<u64> {
        let matching = self.0.iter().filter(|(pattern, _)| pattern.matches(key));
        matching.filter_map(|(_, from)| *from).min()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ArmedView {
    pub armed: Armed,
    /// Taken before the request was sent.
    pub asked_at: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayGrow {
    Yes,
    /// Not before this epoch second; `None` if no pattern with a time matches.
    NotBefore(Option<u64>),
    /// The lease has expired: read the patterns first.
    Look,
}

impl ArmedView {
    pub fn is_valid(&self, now: Moment, lease: Duration) -> bool {
        now.since(self.asked_at).is_some_and(|age| age < lease)
    }

    /// What counted when it was read counts for ever, because such a pattern is never removed while
    /// processes run.
    pub fn may_grow(&self, key: &PartitionKey, now: Moment, lease: Duration) -> MayGrow {
        let from = self.armed.counts_since(key);
        let counts_at = |at: Moment| from.is_some_and(|from| from <= at.epoch_seconds());
        if counts_at(self.asked_at) {
            MayGrow::Yes
        } else if !self.is_valid(now, lease) {
            MayGrow::Look
        } else if counts_at(now) {
            MayGrow::Yes
        } else {
            MayGrow::NotBefore(from)
        }
    }
}

/// The epoch second from which a pattern counts that is stored now.
pub const fn counts_from(now: Moment, wait: Duration) -> u64 {
    now.epoch_seconds().saturating_add(wait.as_secs()).saturating_add(1)
}

/// A pattern may be removed while processes run if no clock counts it before this epoch second,
/// even for processes that have not seen that it is gone.
pub fn removable_from(now: Moment, lease: Duration) -> u64 {
    now.epoch_seconds().saturating_add((lease.min(PATTERN_LEASE) + CLOCK_MARGIN).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::key;

    fn armed(patterns: &[(&str, Option<u64>)]) -> Armed {
        patterns
            .iter()
            .fold(Armed::default(), |armed, (text, from)| armed.with(text.parse().unwrap(), *from))
    }

    #[test]
    fn a_text_is_one_pattern_or_none() {
        for text in ["*", "prefix:a", "prefix:*", "key:a", "key:*", "key:prefix:a"] {
            assert_eq!(text.parse::<KeyPattern>().unwrap().to_string(), text);
        }
        for text in ["", "a", "a*", "prefix:", "key:", "prefix:a\u{1f}", "key:_sharding:table"] {
            assert!(text.parse::<KeyPattern>().is_err(), "{text:?}");
        }
        let star: KeyPattern = "key:*".parse().unwrap();
        assert!(star.matches(&key("*")) && !star.matches(&key("a")));
    }

    #[test]
    fn of_patterns_that_overlap_the_earliest_counts() {
        let armed = armed(&[("*", None), ("prefix:a", Some(900)), ("key:ab", Some(500))]);
        let rows = [("b", None), ("a", Some(900)), ("ab", Some(500))];
        for (text, from) in rows {
            assert_eq!(
                (armed.matches(&key(text)), armed.counts_since(&key(text))),
                (true, from),
                "{text}"
            );
        }
        assert!(!Armed::default().matches(&key("a")));
    }
}
