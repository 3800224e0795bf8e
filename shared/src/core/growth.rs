//! Whether growing helps a key: what its writers saw rejected at each growth.
//!
//! Where a table is a little short of partitions, a tenth or a quarter of a key's demand is rejected at any width. No single growth shows
//! that, for demand may have risen meanwhile; two in a row do.

/// What a key's last growths have brought. All 0 where nothing is known, as after a growth that was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct GrowthRecord {
    /// The part of the demand, in percent, that was rejected when the key last grew.
    pub rejected_percent: u32,
    /// Growths in a row, before that one, after which about as much was rejected as before.
    pub fruitless: u32,
}

/// A growth has helped if less than this part, in percent, of what was rejected before is rejected after it. It is meant to let all in.
const LEFT_PERCENT: u32 = 75;

impl GrowthRecord {
    /// Growths in a row without effect, the last one included, now that this part of the demand is rejected.
    ///
    /// ```
    /// use sharding::internal::GrowthRecord;
    /// let grown = GrowthRecord::default().grown(20);
    /// assert_eq!(grown.fruitless_by(2), 0, "it helped");
    /// assert_eq!(grown.fruitless_by(19), 1);
    /// assert_eq!(grown.grown(19).fruitless_by(21), 2);
    /// ```
    #[must_use]
    pub const fn fruitless_by(self, rejected_percent: u32) -> u32 {
        let known = self.rejected_percent > 0;
        let helped = rejected_percent.saturating_mul(100) < self.rejected_percent.saturating_mul(LEFT_PERCENT);
        if known && !helped { self.fruitless.saturating_add(1) } else { 0 }
    }

    /// The record of a key that grows now, while this part of its demand is rejected.
    #[must_use]
    pub const fn grown(self, rejected_percent: u32) -> Self {
        Self { rejected_percent, fruitless: self.fruitless_by(rejected_percent) }
    }
}
