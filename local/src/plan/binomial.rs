//! The binomial distribution: how many of some balls fall into one of some bins.

/// Counts this much less likely than the likeliest are left out.
const NEGLIGIBLE: f64 = 1e-15;

/// Every count that matters, with its probability; they add up to 1.
///
/// It starts at the likeliest count and goes outwards by the ratio of neighbours, so that nothing under- or overflows.
pub(super) fn binomial(trials: u64, chance: f64) -> Vec<(u64, f64)> {
    if trials == 0 || chance <= 0.0 {
        return vec![(0, 1.0)];
    }
    if chance >= 1.0 {
        return vec![(trials, 1.0)];
    }
    let odds = chance / (1.0 - chance);
    let mode = (((trials + 1) as f64 * chance) as u64).min(trials);
    let mut counts = vec![(mode, 1.0)];
    let mut likelihood = 1.0;
    for count in (0..mode).rev() {
        likelihood *= (count + 1) as f64 / ((trials - count) as f64 * odds);
        if likelihood < NEGLIGIBLE {
            break;
        }
        counts.push((count, likelihood));
    }
    likelihood = 1.0;
    for count in mode..trials {
        likelihood *= (trials - count) as f64 * odds / (count + 1) as f64;
        if likelihood < NEGLIGIBLE {
            break;
        }
        counts.push((count + 1, likelihood));
    }
    let whole: f64 = counts.iter().map(|(_, likelihood)| likelihood).sum();
    for (_, likelihood) in &mut counts {
        *likelihood /= whole;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fair_coin_falls_as_in_the_triangle() {
        let mut counts = binomial(4, 0.5);
        counts.sort_by_key(|(count, _)| *count);
        let expected = [1.0, 4.0, 6.0, 4.0, 1.0].map(|ways| ways / 16.0);
        for ((count, probability), (at, expected)) in counts.iter().zip(expected.into_iter().enumerate()) {
            assert!(*count == at as u64 && (probability - expected).abs() < 1e-12, "{counts:?}");
        }
    }

    proptest! {
        #[test]
        fn it_has_its_mean_and_variance(trials in 0u64..20_000, chance in 0.0f64..=1.0) {
            let counts = binomial(trials, chance);
            let mean: f64 = counts.iter().map(|(count, p)| *count as f64 * p).sum();
            let variance: f64 = counts.iter().map(|(count, p)| (*count as f64 - mean).powi(2) * p).sum();
            let n = trials as f64;
            prop_assert!((mean - n * chance).abs() < 1e-6 * (1.0 + n));
            prop_assert!((variance - n * chance * (1.0 - chance)).abs() < 1e-6 * (1.0 + n));
        }
    }
}
