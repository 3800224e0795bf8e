//! Whether growing helps a key, judged by the share of its attempts that was throttled at each
//! growth.

/// The effect of a key's last growths. All 0 if nothing is known, as after a growth by request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct GrowthRecord {
    /// The share of all attempts, repetitions too, that was rejected at the last growth, in
    /// percent.
    pub rejected_percent: u32,
    /// The consecutive growths before that one after which about as many attempts were rejected for
    /// each accepted one as before.
    pub fruitless: u32,
}

/// A growth has helped if it leaves less than this percentage of the rejections for each accepted
/// attempt.
const MAX_REMAINING_PERCENT: u32 = 75;

impl GrowthRecord {
    /// The record of a key that grows now, while this share of its attempts is rejected.
    pub fn grown(self, rejected_percent: u32) -> Self {
        let accepted = |percent: u32| 100u32.saturating_sub(percent);
        let before = MAX_REMAINING_PERCENT * self.rejected_percent * accepted(rejected_percent);
        let helped = 100 * rejected_percent * accepted(self.rejected_percent) < before;
        let is_known = self.rejected_percent > 0;
        let fruitless = if is_known && !helped { self.fruitless.saturating_add(1) } else { 0 };
        Self { rejected_percent, fruitless }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growth_that_leaves_as_many_rejections_is_fruitless() {
        let grown = GrowthRecord::default().grown(80);
        assert_eq!(grown.grown(70).fruitless, 0, "2.3 rejections for each success, after 4");
        assert_eq!(grown.grown(79).fruitless, 1);
        assert_eq!(grown.grown(79).grown(81).fruitless, 2);
    }
}
