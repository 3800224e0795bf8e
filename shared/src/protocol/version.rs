//! Versions of items. Of two copies of an item, the copy with the higher version is the item.

use std::fmt;

use crate::protocol::layout::FIRST_ERA;

/// An item's version: the era in which it was written, the clock in microseconds, and a random
/// tie-breaker.
///
/// The era comes first. So a copy from a later era supersedes all from earlier eras, wherever they
/// are and whatever clocks their writers had. A version is stored as one number of at most 38
/// digits, DynamoDB's limit: 11 for the era, 18 for the clock, 9 for the tie-breaker.
///
/// A writer takes a version when it sends the write. A repetition in the same era keeps it if an
/// attempt may still arrive, and so do the moves of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u128);

pub const TIE_BREAKERS: u32 = 1_000_000_000;
/// Microseconds of 30,000 years.
const CLOCKS: u128 = 1_000_000_000_000_000_000;
const ERA: u128 = CLOCKS * TIE_BREAKERS as u128;

impl Version {
    /// The version of an item that another program stored. It is below all others.
    pub const NONE: Self = Self(0);

    /// The lowest version of an item that this product stores.
    pub const LOWEST: Self = Self(1);

    /// The version of an item of another program that a drain has copied. It is below all writes of
    /// its era.
    pub const ADOPTED: Self = Self::lowest_of(FIRST_ERA);

    /// Combines an era, microseconds since the Unix epoch, and a tie-breaker below 10^9. The result
    /// is never [`NONE`](Self::NONE).
    #[must_use]
    pub const fn new(era: u64, epoch_micros: u64, tie_breaker: u32) -> Self {
        let clock = epoch_micros as u128 % CLOCKS;
        let version =
            era as u128 * ERA + clock * TIE_BREAKERS as u128 + (tie_breaker % TIE_BREAKERS) as u128;
        if version == 0 { Self::LOWEST } else { Self(version) }
    }

    /// The era in which the version was taken; 0 for append-only tables.
    #[must_use]
    pub const fn era(self) -> u64 {
        (self.0 / ERA) as u64
    }

    /// By its writer's clock, since the Unix epoch.
    const fn epoch_micros(self) -> u64 {
        (self.0 % ERA / TIE_BREAKERS as u128) as u64
    }

    pub const fn epoch_seconds(self) -> u64 {
        self.epoch_micros() / 1_000_000
    }

    /// The next higher version of the same era.
    pub const fn raised(self, tie_breaker: u32) -> Self {
        Self::new(self.era(), self.epoch_micros() + 1, tie_breaker)
    }

    pub const fn lowest_of(era: u64) -> Self {
        Self::new(era, 0, 0)
    }

    /// How much an update in place raises a version: one microsecond. So it need not know the
    /// version that it raises.
    pub const STEP: u32 = TIE_BREAKERS;

    /// The version after an update in place.
    pub const fn stepped(self) -> Self {
        Self(self.0 + Self::STEP as u128)
    }

    /// Parses a stored version. `None` if the text is not a version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_era_decides_then_the_clock_then_the_tie_breaker(
            a in (0..1u64 << 36, 0..1u64 << 59, 0..TIE_BREAKERS),
            b in (0..1u64 << 36, 0..1u64 << 59, 0..TIE_BREAKERS),
        ) {
            let (version, other) = (Version::new(a.0, a.1, a.2), Version::new(b.0, b.1, b.2));
            prop_assert_eq!(version.cmp(&other), a.cmp(&b));
            prop_assert_eq!(version.era(), a.0);
            prop_assert!(version.to_string().len() <= 38);
            prop_assert_eq!(Version::parse(&version.to_string()), Some(version));
            prop_assert!(version.raised(0) > version && version.raised(0).era() == version.era());
        }
    }
}
