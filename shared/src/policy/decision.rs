//! What the policy decides about a key's shards.

use std::fmt;
use std::time::Duration;

use crate::values::key::ShardCount;

/// When an instance whose key cannot grow any further decides again.
pub const RECHECK_PERIOD: Duration = Duration::from_secs(10);

/// The decision. A negative one contains what the caller needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScalingDecision {
    /// Grow to this count.
    ScaleOut(ShardCount),
    /// The key range was throttled too little to call the key hot.
    Calm,
    /// The key changed recently. The next change is allowed from this epoch second on.
    CoolingDown {
        /// Epoch seconds.
        until: u64,
    },
    /// A change to this width is running. Observe it, and take it over if its actor died.
    Closing(ShardCount),
    /// The key is at the policy's maximum.
    AtMaximum,
    /// More shards would hardly help, and the table is not certainly short of partitions.
    NoGain {
        /// When to decide again, in epoch seconds.
        until: u64,
    },
    /// The key's page of the directory is full, and the key is not listed yet.
    DirectoryFull,
    /// The key is not armed, so it must not grow.
    NotArmed {
        /// The epoch second from which a pattern counts that matches it, if there is one.
        from: Option<u64>,
    },
    /// The key's own writes fill only a small part of its partitions. Other keys fill them, so more
    /// shards do not help.
    Crowded {
        /// When to decide again, in epoch seconds.
        until: u64,
        /// The write units a second that the table would need if all its partitions are full;
        /// `None` if its partitions are not known.
        write_units: Option<u64>,
    },
    /// The throttled writes are of few items, and an item cannot be on several shards.
    HotItems {
        /// Their number, about.
        items: u32,
        /// When to decide again, in epoch seconds.
        until: u64,
    },
    /// More shards do not help, because the table is short of partitions. Decide again from this
    /// epoch second on.
    ShortOfPartitions {
        /// Epoch seconds.
        until: u64,
        /// The write units a second that the table would need; `None` if its partitions are not
        /// known.
        write_units: Option<u64>,
    },
}

impl ScalingDecision {
    /// When to decide again, in epoch seconds; `None` if the decision does not wait for a time.
    #[must_use]
    pub const fn until(self) -> Option<u64> {
        match self {
            Self::CoolingDown { until }
            | Self::Crowded { until, .. }
            | Self::HotItems { until, .. }
            | Self::NoGain { until }
            | Self::ShortOfPartitions { until, .. } => Some(until),
            Self::ScaleOut(_)
            | Self::Calm
            | Self::Closing(_)
            | Self::AtMaximum
            | Self::NotArmed { .. }
            | Self::DirectoryFull => None,
        }
    }
}

impl fmt::Display for ScalingDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ScaleOut(to) => write!(f, "it needs {to} shards"),
            Self::Calm => f.write_str("nothing to do"),
            Self::CoolingDown { .. } => f.write_str("cooling down"),
            Self::Closing(to) => write!(f, "a change to {to} shards is under way"),
            Self::AtMaximum => f.write_str("at MAX_SHARDS"),
            Self::NoGain { .. } => f.write_str("more shards would hardly help"),
            Self::DirectoryFull => f.write_str("its page of the directory is full"),
            Self::NotArmed { from: None } => f.write_str("the key is not armed"),
            Self::NotArmed { from: Some(from) } => {
                write!(f, "the key is not armed before epoch second {from}")
            }
            Self::Crowded { .. } => f.write_str("other keys fill its partitions"),
            Self::HotItems { items, .. } => {
                write!(f, "its throttled writes are of {items} items")
            }
            Self::ShortOfPartitions { write_units: None, .. } => {
                f.write_str("growing did not help: the table is short of partitions")
            }
            Self::ShortOfPartitions { write_units: Some(units), .. } => {
                write!(f, "the table is short of partitions: {units} write units a second would do")
            }
        }
    }
}
