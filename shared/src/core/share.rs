//! The share of a page that each shard is asked for.

/// How many items to ask each of some shards for, when so many are wanted in all.
///
/// A hash spreads the items binomially, so a shard's part is about `wanted / shards`, give or take its square root.
pub(crate) struct Share {
    pub(crate) wanted: usize,
    pub(crate) shards: usize,
    /// How many items the smallest amount that is billed pays for.
    pub(crate) items_per_unit: f64,
}

impl Share {
    /// Part of the standard deviation that is asked for on top of the mean: more would cost more than a second question.
    const SLACK: f64 = 0.4;
    /// The same where the range of the request keeps the cost down.
    const AMPLE: f64 = 3.0;

    /// Rounded up to whole read units, which are paid for anyway.
    pub(crate) fn unbounded(&self) -> usize {
        let units = ((self.mean() + Self::SLACK * self.mean().sqrt()) / self.items_per_unit).ceil();
        self.clamped((units * self.items_per_unit).floor())
    }

    /// For a request whose range keeps the cost down.
    pub(crate) fn bounded(&self) -> usize {
        self.clamped((self.mean() + Self::AMPLE * self.mean().sqrt()).ceil() + 1.0)
    }

    fn mean(&self) -> f64 {
        self.wanted as f64 / self.shards.max(1) as f64
    }

    fn clamped(&self, ask: f64) -> usize {
        let most = self.wanted.max(1);
        if self.shards <= 1 { most } else { (ask as usize).clamp(1, most) }
    }
}
