//! What one partition refuses of the demand that falls on it.
//!
//! A partition is a token bucket: it gives `rate` units a second, saves up to `holds` of them, lets a request in while there is a token
//! at all, and takes what the request really costs. Writes arrive as a Poisson process. What the bucket lacks is then the work of a
//! queue with Poisson arrivals, equal jobs and one server (M/D/1) that turns arrivals away while it has `holds` or more to do. Below
//! that bound the work is distributed as in the queue that turns nobody away, up to a factor, and that is a delay equation:
//!
//! F'(x) = rho / k (F(x) - F(x - k)),  F(0) = 1,  and what is let in is F(holds) / (1 + rho F(holds))
//!
//! with rho the demand over the rate and k the units of a request. (Level crossings: P. H. Brill, "Level Crossing Methods in Stochastic
//! Models".) Why so exact? For small items it hardly differs from 1 - 1/rho. But ten writes of 100 KB make a partition's second, and
//! then it refuses some of a demand that is well below its rate.

/// So many steps of the demand between nothing and one time the rate.
const STEPS_PER_RATE: usize = 100;
/// Beyond this many times the rate, what is let in is the rate.
const TABLED_RATES: usize = 4;
/// A sum that has grown to this, or no longer grows, has decided.
const DECIDED: f64 = 1e12;

/// The part of a demand that one partition refuses in the long run, with repetitions left out.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    rate: f64,
    /// Refused parts at equal steps of the demand.
    refused: Vec<f64>,
}

impl Admission {
    /// Of a partition with this rate, for writes of so many units. A bucket holds what its rate gives in a second.
    pub(super) fn new(rate: f64, units_per_write: u32) -> Self {
        let refused = (0..=TABLED_RATES * STEPS_PER_RATE)
            .map(|step| refused_part(step as f64 / STEPS_PER_RATE as f64, f64::from(units_per_write), rate))
            .collect();
        Self { rate, refused }
    }

    /// Write units a second that the partition gives.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// The part of so many units a second that is refused.
    pub(super) fn refused(&self, units_per_second: f64) -> f64 {
        let rho = units_per_second / self.rate;
        let place = (rho * STEPS_PER_RATE as f64).max(0.0);
        let step = place as usize;
        match (self.refused.get(step), self.refused.get(step + 1)) {
            (Some(low), Some(high)) => {
                // Linear in the units that are refused, which are convex; a part of them is not.
                let (below, above) = (step as f64, (step + 1) as f64);
                let units = low * below + (high * above - low * below) * (place - below);
                if place > 0.0 { units / place } else { 0.0 }
            }
            _ => 1.0 - 1.0 / rho,
        }
    }
}

/// The refused part where the demand is `rho` times the rate, requests cost `k` units and the bucket holds so many.
fn refused_part(rho: f64, k: f64, holds: f64) -> f64 {
    if rho <= 0.0 {
        return 0.0;
    }
    let steps_per_request = (8.0 * k).clamp(8.0, 64.0) as usize;
    let step = k / steps_per_request as f64;
    // Exact in F(x), and linear between the steps in F(x - k).
    let z = rho / k * step;
    let growth = z.exp();
    let (flat, slope) = (growth - 1.0, (growth - 1.0) / z - 1.0);
    let steps = holds / step;
    let last = steps.ceil() as usize;
    let mut sums = Vec::with_capacity(last + 2);
    sums.push(1.0f64);
    for at in 0..last {
        let earlier = at.checked_sub(steps_per_request).and_then(|from| Some((*sums.get(from)?, *sums.get(from + 1)?)));
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
        // A write that fills the bucket: nobody is let in until it is paid back, so of rho a part rho / (1 + rho) is refused.
        for rho in [0.2, 0.5, 1.0, 3.0] {
            let found = refused_part(rho, 1_000.0, 1_000.0 * 1e-9);
            assert!((found - rho / (1.0 + rho)).abs() < 1e-4, "{rho}: {found}");
        }
    }

    #[test]
    fn large_writes_are_refused_before_the_rate_is_reached() {
        let refused = |units| Admission::new(1_000.0, units).refused(800.0);
        assert!(refused(1) < 1e-9 && refused(100) > 0.001 && refused(400) > 0.05, "{} {}", refused(100), refused(400));
    }

    proptest! {
        #[test]
        fn more_demand_never_gets_less_and_never_gets_more_than_the_rate(units in 1u32..=400, rho in 0.0f64..6.0, more in 0.0f64..2.0) {
            let admission = Admission::new(1_000.0, units);
            let let_in = |rho: f64| rho * (1.0 - admission.refused(rho * 1_000.0));
            prop_assert!(let_in(rho) <= rho.min(1.0) + 1e-9);
            prop_assert!(let_in(rho + more) >= let_in(rho) - 1e-9);
        }
    }
}
