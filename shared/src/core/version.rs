//! Versions of items: of two copies of one item, the higher is the item.

use std::fmt;

/// An item's version: the clock in microseconds, then a random tie-breaker of nine digits. Fits DynamoDB's 38 digits for ever.
///
/// Taken once, at the first send, and kept by retries; every put is conditional on "absent, or lower than mine", so a late
/// duplicate of an old put loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u128);

/// One more than the largest tie-breaker.
pub(crate) const TIE_BREAKERS: u32 = 1_000_000_000;

/// Below it, what stands in a version's higher digits is a generation; a rebuilt one goes on from the epoch's seconds. Twelve days after the
/// epoch, in microseconds.
const FIRST_CLOCK_MICROS: u128 = 1_000_000_000_000;

impl Version {
    /// From microseconds since the Unix epoch and a tie-breaker below 10^9. Never [`NONE`](Self::NONE).
    #[must_use]
    pub const fn new(epoch_micros: u64, tie_breaker: u32) -> Self {
        let version = epoch_micros as u128 * TIE_BREAKERS as u128 + (tie_breaker % TIE_BREAKERS) as u128;
        if version == 0 { Self::LOWEST } else { Self(version) }
    }

    /// The version of a create-only write that was planned under this generation of the metadata: below every version by the clock, so
    /// that a create-only write which lands late loses to whatever was written since.
    #[must_use]
    pub const fn create_only(generation: u64, tie_breaker: u32) -> Self {
        Self::new(generation, tie_breaker)
    }

    /// Whether a create-only write took it: no clock since January 1970 gives one as low, and no generation comes as high.
    pub(crate) const fn is_of_creation(self) -> bool {
        self.0 / (TIE_BREAKERS as u128) < FIRST_CLOCK_MICROS
    }

    /// The next version above this one.
    #[must_use]
    pub const fn raised(self, tie_breaker: u32) -> Self {
        let micros = self.0 / TIE_BREAKERS as u128 + 1;
        Self(micros * TIE_BREAKERS as u128 + (tie_breaker % TIE_BREAKERS) as u128)
    }

    /// When it was taken, where it was by a clock.
    pub(crate) const fn epoch_seconds(self) -> u64 {
        (self.0 / (TIE_BREAKERS as u128 * 1_000_000)) as u64
    }

    /// The version of an item that another program stored without one: below all others.
    pub const NONE: Self = Self(0);

    /// The lowest version of an item that this product stores.
    pub(crate) const LOWEST: Self = Self(1);

    /// Reads a stored version; `None` where it is not one.
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

    #[test]
    fn the_clock_decides_and_the_tie_breaker_only_breaks_ties() {
        assert!(Version::new(2, 0) > Version::new(1, 999_999_999));
        assert!(Version::new(1, 2) > Version::new(1, 1));
        assert!(Version::new(1, 0) > Version::NONE);
        assert!(Version::create_only(0, 0) > Version::NONE, "the lowest version there is stands for an item");
        assert!(Version::create_only(2_000_000_000, 999_999_999).is_of_creation());
        assert!(!Version::new(1_000_000_000_000_000, 0).is_of_creation());
        assert!(Version::create_only(1_000_000, 7) < Version::new(1_764_000_000_000_000, 0));
        assert!(Version::new(5, 999_999_999).raised(0) > Version::new(5, 999_999_999));
        assert!(Version::new(5, 9).raised(3) < Version::new(7, 0));
        assert_eq!(Version::parse(&Version::new(u64::MAX, 7).to_string()), Some(Version::new(u64::MAX, 7)));
    }
}
