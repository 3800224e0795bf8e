//! Whole numbers that are drawn by chance, such as numbers of requests.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution, Poisson};

/// Draws a whole number with this mean.
pub(super) fn whole(mean: f64, rng: &mut Xoshiro256PlusPlus) -> u64 {
    let floor = mean.floor();
    floor as u64 + u64::from(rng.random::<f64>() < mean - floor)
}

/// Draws the number of a share of `count` requests.
pub(super) fn share_of(count: u64, share: f64, rng: &mut Xoshiro256PlusPlus) -> u64 {
    whole(count as f64 * share, rng).min(count)
}

/// Draws a number of independent arrivals with this mean.
pub(super) fn poisson(mean: f64, rng: &mut Xoshiro256PlusPlus) -> u64 {
    Poisson::new(mean).map_or(0, |poisson| poisson.sample(rng) as u64)
}
