//! The share of its demand that one partition refuses.
//!
//! A partition is a token bucket. It gains `rate` units per second, saves up to `holds` of them,
//! accepts a request while it has any token, and then charges the real cost of the request. Writes
//! arrive as a Poisson process. The bucket's missing tokens are the work of a queue with Poisson
//! arrivals, equal jobs and one server (M/D/1) that rejects arrivals while it has `holds` or more
//! work. Below that bound, the work is distributed as in the queue that rejects no arrivals, up to
//! a factor. This gives a delay equation:
//!
//! F'(x) = rho / k (F(x) - F(x - k)),  F(0) = 1,  and the accepted share is F(holds) / (1 + rho
//! F(holds))
//!
//! Here rho is the demand over the rate, and k is the units of a request. (Level crossings: P. H.
//! Brill, "Level Crossing Methods in Stochastic Models".) For small items, the result hardly
//! differs from 1 - 1/rho. But ten writes of 100 KB fill a partition's second, and then the
//! partition refuses a share of a demand that is well below its rate.

/// The number of steps of the tabulated demand between zero and the rate.
const STEPS_PER_RATE: usize = 100;
/// Beyond this many times the rate, a partition accepts exactly its rate.
const TABLED_RATES: usize = 4;
/// The sum ends when it has grown to this, or no longer grows.
const DECIDED: f64 = 1e12;

/// The share of a demand that one partition refuses in the long run, without retries.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    rate: f64,
    /// The refused shares at equal steps of the demand.
    refused: Vec<f64>,
}

impl Admission {
    /// Tabulates the shares for a partition with this rate and writes of these units. A bucket
    /// holds the units of one second.
    pub(super) fn new(rate: f64, units_per_write: u32) -> Self {
        let refused = (0..=TABLED_RATES * STEPS_PER_RATE)
            .map(|step| {
                refused_part(step as f64 / STEPS_PER_RATE as f64, f64::from(units_per_write), rate)
            })
            .collect();
        Self { rate, refused }
    }

    /// Write units per second that the partition serves.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// The share of this demand that is refused.
    pub(super) fn refused(&self, units_per_second: f64) -> f64 {
        let rho = units_per_second / self.rate;
        let place = (rho * STEPS_PER_RATE as f64).max(0.0);
        let step = place as usize;
        match (self.refused.get(step), self.refused.get(step + 1)) {
            (Some(low), Some(high)) => {
                // The interpolation is linear in the refused units, which are convex. The refused
                // share is not.
                let (below, above) = (step as f64, (step + 1) as f64);
                let units = low * below + (high * above - low * below) * (place - below);
                if place > 0.0 { units / place } else { 0.0 }
            }
            _ => 1.0 - 1.0 / rho,
        }
    }
}

/// The refused share if the demand is `rho` times the rate, requests cost `k` units, and the bucket
/// holds `holds`.
fn refused_part(rho: f64, k: f64, holds: f64) -> f64 {
    if rho <= 0.0 {
        return 0.0;
    }
    let steps_per_request = (8.0 * k).clamp(8.0, 64.0) as usize;
    let step = k / steps_per_request as f64;
    // The steps are exact in F(x), and interpolate F(x - k) linearly.
    let z = rho / k * step;
    let growth = z.exp();
    let (flat, slope) = (growth - 1.0, (growth - 1.0) / z - 1.0);
    let steps = holds / step;
    let last = steps.ceil() as usize;
    let mut sums = Vec::with_capacity(last + 2);
    sums.push(1.0f64);
    for at in 0..last {
        let earlier = at
            .checked_sub(steps_per_request)
            .and_then(|from| Some((*sums.get(from)?, *sums.get(from + 1)?)));
        let Some(now) = sums.last().copied() else { break };
        let next = match earlier {
            Some((from, to)) => now * growth - from * flat - (to - from) * slope,
            None => now * growth,
        };
        let settled = earlier.is_some_and(|(from, _)| next - from < next / DECIDED);
        sums.push(next);
        if next > DECIDED || settled {
            break;
        }
    }
    let sum = match (sums.get(last), last.checked_sub(1).and_then(|before| sums.get(before))) {
        (Some(after), Some(before)) => before + (after - before) * (steps - (last as f64 - 1.0)),
        _ => sums.last().copied().unwrap_or(1.0),
    };
    (1.0 - 1.0 / (1.0 / sum + rho)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_writes_are_refused_beyond_the_rate_and_hardly_below() {
        let admission = Admission::new(1_000.0, 1);
        for (demand, refused, tolerance) in [
            (0.0, 0.0, 1e-12),
            (500.0, 0.0, 1e-9),
            (950.0, 0.0, 1e-6),
            (1_000.0, 0.000_5, 0.000_1),
            (2_000.0, 0.5, 1e-6),
        ] {
            let found = admission.refused(demand);
            assert!((found - refused).abs() < tolerance, "{demand}: {found}");
        }
        assert!((admission.refused(50_000.0) - 0.98).abs() < 1e-9);
    }

    #[test]
    fn one_write_at_a_time_is_refused_as_erlang_says() {
        // A write empties the bucket, and no other is accepted until it is paid back. So the
        // refused share is rho / (1 + rho).
        for rho in [0.2, 0.5, 1.0, 3.0] {
            let found = refused_part(rho, 1_000.0, 1_000.0 * 1e-9);
            assert!((found - rho / (1.0 + rho)).abs() < 1e-4, "{rho}: {found}");
        }
    }

    #[test]
    fn large_writes_are_refused_before_the_rate_is_reached() {
        let refused = |units| Admission::new(1_000.0, units).refused(800.0);
        assert!(
            refused(1) < 1e-9 && refused(100) > 0.001 && refused(400) > 0.05,
            "{} {}",
            refused(100),
            refused(400)
        );
    }

    proptest! {
        #[test]
        fn more_demand_never_gets_less_and_never_gets_more_than_the_rate(
            units in 1u32..=400, rho in 0.0f64..6.0, more in 0.0f64..2.0,
        ) {
            let admission = Admission::new(1_000.0, units);
            let accepted = |rho: f64| rho * (1.0 - admission.refused(rho * 1_000.0));
            prop_assert!(accepted(rho) <= rho.min(1.0) + 1e-9);
            prop_assert!(accepted(rho + more) >= accepted(rho) - 1e-9);
        }
    }
}
