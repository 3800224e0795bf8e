//! Whether growing helps a key, judged by the share of writes that was rejected at each growth.
//!
//! If a table is a little short of partitions, a tenth or a quarter of a key's demand is rejected
//! at any width. A single growth does not show that, because the demand may have risen meanwhile.
//! Two growths in a row do.

/// The effect of a key's last growths. All 0 if nothing is known, as after a growth by request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct GrowthRecord {
    /// The share of the demand, in percent, that was rejected when the key last grew.
    pub rejected_percent: u32,
    /// The number of consecutive growths before that one after which about the same share was
    /// rejected as before.
    pub fruitless: u32,
}

/// A growth has helped if the rejected share afterwards is less than this percentage of the share
/// before. Its goal is to accept everything.
const LEFT_PERCENT: u32 = 75;

impl GrowthRecord {
    /// The number of consecutive growths without effect, including the last one, given that this
    /// share of the demand is rejected now.
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
        let helped = rejected_percent.saturating_mul(100)
            < self.rejected_percent.saturating_mul(LEFT_PERCENT);
        if known && !helped { self.fruitless.saturating_add(1) } else { 0 }
    }

    /// The record of a key that grows now, while this share of its demand is rejected.
    #[must_use]
    pub const fn grown(self, rejected_percent: u32) -> Self {
        Self { rejected_percent, fruitless: self.fruitless_by(rejected_percent) }
    }
}
