//! The runs of one cell as a row.

use std::fmt;

use crate::oracle::can_be_served;
use crate::outcome::Outcome;
use crate::run::run;
use crate::scenario::Scenario;

/// The figures of the keys of one cell.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Seconds to relief of each key; infinite if it is not relieved.
    pub relief: Vec<f64>,
    /// Of an open load: whether the most shards would relieve each key.
    pub can_be_served: Vec<bool>,
    /// The accepted share of each key.
    pub accepted: Vec<f64>,
    /// The shards of each key at the end, sorted.
    pub widths: Vec<u32>,
    /// Stored writes a second in the last third.
    pub late_rate: f64,
    /// The first report of a shortage, of each key.
    pub short_after: Vec<Option<f64>>,
    /// The first report of hot items, of each key.
    pub hot_items_after: Vec<Option<f64>>,
}

impl Summary {
    /// Runs a scenario with this many keys.
    #[must_use]
    pub fn of(scenario: &Scenario, keys: u64) -> Self {
        let of_key = |key| Scenario { seed: scenario.seed + key, ..scenario.clone() };
        let scenarios: Vec<_> = (0..keys).map(of_key).collect();
        let runs: Vec<_> = scenarios.iter().map(run).collect();
        let mut widths: Vec<u32> = runs.iter().map(Outcome::width).collect();
        widths.sort_unstable();
        let late_rates = runs.iter().map(|of| of.rate_from(of.seconds.len() * 2 / 3));
        Self {
            relief: runs.iter().map(|of| of.relieved_after().unwrap_or(f64::INFINITY)).collect(),
            can_be_served: scenarios.iter().map(can_be_served).collect(),
            accepted: runs.iter().map(Outcome::accepted).collect(),
            widths,
            late_rate: late_rates.sum::<f64>() / runs.len().max(1) as f64,
            short_after: runs.iter().map(|of| of.short_after).collect(),
            hot_items_after: runs.iter().map(|of| of.hot_items_after).collect(),
        }
    }

    /// The mean time to relief of the keys that are relieved.
    #[must_use]
    pub fn mean_relief(&self) -> f64 {
        let relieved = self.relief.iter().filter(|seconds| seconds.is_finite());
        let (sum, count) = relieved.fold((0.0, 0), |(sum, count), of| (sum + of, count + 1));
        if count == 0 { f64::INFINITY } else { sum / f64::from(count) }
    }

    /// The longest time to relief of a key that can be served; infinite if one is not relieved.
    #[must_use]
    pub fn longest_relief(&self) -> f64 {
        self.of_served(&self.relief).fold(0.0, f64::max)
    }

    /// The mean accepted share.
    #[must_use]
    pub fn mean_accepted(&self) -> f64 {
        self.accepted.iter().sum::<f64>() / self.accepted.len().max(1) as f64
    }

    /// The lowest accepted share of a key that can be served.
    #[must_use]
    pub fn least_accepted(&self) -> f64 {
        self.of_served(&self.accepted).fold(1.0, f64::min)
    }

    fn of_served<'a>(&'a self, figures: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        figures.iter().zip(&self.can_be_served).filter(|(_, can)| **can).map(|(of, _)| *of)
    }

    /// The median number of shards.
    #[must_use]
    pub fn median_width(&self) -> u32 {
        self.widths.get(self.widths.len() / 2).copied().unwrap_or_default()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.relief.iter().filter(|seconds| seconds.is_finite()).count();
        if count == 0 {
            f.write_str("never")?;
        } else {
            write!(f, "{:.1} s", self.mean_relief())?;
            let longest = self.relief.iter().copied().filter(|seconds| seconds.is_finite());
            write!(f, " (max {:.0}", longest.fold(0.0, f64::max))?;
            match self.relief.len() - count {
                0 => f.write_str(")")?,
                never => write!(f, ", {never} never)")?,
            }
        }
        match self.can_be_served.iter().filter(|can| !**can).count() {
            0 => {}
            some => write!(f, ", {some} cannot be served")?,
        }
        write!(f, ", {:.2} %", self.mean_accepted() * 100.0)?;
        if self.accepted.len() > 1 {
            let least = self.accepted.iter().copied().fold(1.0, f64::min);
            write!(f, " (min {:.2})", least * 100.0)?;
        }
        let (least, most) = (self.widths.first(), self.widths.last());
        write!(f, ", {}", self.median_width())?;
        match (least, most) {
            (Some(least), Some(most)) if least != most => write!(f, " ({least}-{most})"),
            _ => Ok(()),
        }
    }
}
