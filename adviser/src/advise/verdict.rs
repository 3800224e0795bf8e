//! The verdict on a partition key: good, uneven or bad, with the reason and the advice.
//!
//! A bad partition key has few values, follows the time, or has a single value that is by far the
//! most popular ("Designing partition keys to distribute your workload in DynamoDB",
//! <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html>).
//! The verdict measures this by the hottest key's share of the writes at one time, because the
//! share determines the rate of the table at which this key fills its partition.

use sharding::internal::policy::rules::ScalingPolicy;

use super::over_time::Overload;
use super::shown::quoted;
use cli::numbers::{count, counted, percent};
use sharding::PARTITION_WRITE_UNITS;

/// Up to this share of the hottest key, the table reaches its default quota of 40,000 write units
/// per second.
const GOOD_SHARE: f64 = 0.025;
/// From this share of the hottest key on, a table reaches at most a quarter of that quota.
const BAD_SHARE: f64 = 0.1;
/// A key is by far the most popular if its share is this many times that of the next key.
const FAR_MORE: f64 = 10.0;
/// Keys are hot by turns if the momentary share is this many times the share of the file's hottest
/// key.
const BY_TURNS: f64 = 2.0;
/// Up to this many times the even share, a high share is explained by the small number of keys.
const ABOUT_EVEN: f64 = 2.0;
/// Fewer items are hardly enough for a verdict.
const FEW_ITEMS: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uniformity {
    Good,
    Uneven,
    /// Few values, one dominant value, keys that are hot by turns, or a key that took more than a
    /// partition serves.
    Bad,
}

impl Uniformity {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Uneven => "uneven",
            Self::Bad => "bad",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) uniformity: Uniformity,
    pub(crate) reason: String,
    /// The advice, most important first.
    pub(crate) advice: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) items: u64,
    pub(super) distinct: u64,
    pub(super) hottest: &'a str,
    pub(super) hottest_share: f64,
    pub(super) next_share: f64,
    /// The average share of the hottest key of a moment, unless the hottest key of the whole file
    /// explains it.
    pub(super) momentary_share: Option<f64>,
    /// The highest peak of a key, if times are known.
    pub(super) peak_units: Option<u64>,
    /// The overloads, highest peak first.
    pub(super) overloads: &'a [Overload],
}

enum Cause {
    ByTurns,
    FewValues,
    OneDominates,
}

impl Facts<'_> {
    /// The hottest key's share of the writes at one time.
    pub(super) fn share(&self) -> f64 {
        self.momentary_share.unwrap_or(0.0).max(self.hottest_share)
    }

    fn cause(&self) -> Cause {
        let momentary = self.momentary_share.unwrap_or(0.0);
        if momentary > GOOD_SHARE && momentary > self.hottest_share * BY_TURNS {
            Cause::ByTurns
        } else if self.hottest_share * self.distinct as f64 <= ABOUT_EVEN {
            Cause::FewValues
        } else {
            Cause::OneDominates
        }
    }

    /// The key with the highest peak, if the policy would shard it. Retries absorb a peak that is 1
    /// % above the limit.
    fn needs_shards(&self) -> Option<&Overload> {
        self.overloads.first().filter(|overload| overload.shards_by_policy > 1)
    }

    fn uniformity(&self) -> Uniformity {
        let share = self.share();
        let dominates =
            self.hottest_share > GOOD_SHARE && self.hottest_share >= self.next_share * FAR_MORE;
        if share >= BAD_SHARE || dominates || self.needs_shards().is_some() {
            Uniformity::Bad
        } else if share > GOOD_SHARE {
            Uniformity::Uneven
        } else {
            Uniformity::Good
        }
    }

    fn reason(&self) -> String {
        let partition = count(PARTITION_WRITE_UNITS);
        let (hottest, share) = (quoted(self.hottest), percent(self.hottest_share));
        let keys = count(self.distinct);
        let by_share = match self.cause() {
            _ if self.share() <= GOOD_SHARE => format!(
                "of {keys} partition keys, the hottest, {hottest}, takes {share} of the writes"
            ),
            Cause::ByTurns => {
                let momentary = percent(self.momentary_share.unwrap_or(0.0));
                format!(
                    "at any one time, a single key takes {momentary} of the writes, though no key takes more than {share} \
                     of all: keys are hot by turns, as dates are"
                )
            }
            Cause::FewValues if self.distinct == 1 => {
                format!("there is only one partition key, {hottest}")
            }
            Cause::FewValues => format!(
                "there are only {keys} partition keys, and the hottest, {hottest}, takes {share} of the writes"
            ),
            Cause::OneDominates if self.hottest_share >= self.next_share * FAR_MORE => format!(
                "{hottest} takes {share} of the writes, far more than any other of {keys} partition keys"
            ),
            Cause::OneDominates => {
                let times = count((self.hottest_share * self.distinct as f64).round() as u64);
                format!(
                    "{hottest} takes {share} of the writes, {times} times an even share among {keys} partition keys"
                )
            }
        };
        let Some(first) = self.overloads.first() else { return by_share };
        let (key, peak) = (quoted(&first.partition_key), count(first.peak.write_units_per_second));
        match self.overloads.len() {
            1 => format!(
                "{key} took {peak} write units in a second, and a partition serves {partition}; {by_share}"
            ),
            keys => format!(
                "{} keys took more write units in a second than a partition serves ({partition}), {key} up to \
                 {peak}; {by_share}",
                count(keys as u64)
            ),
        }
    }

    fn advice(&self, uniformity: Uniformity) -> Vec<String> {
        let mut advice = Vec::new();
        if uniformity == Uniformity::Good {
            advice.push(
                "Keep it: a key that never gets hot stays on one shard and costs the same as without this product."
                    .to_owned(),
            );
        } else {
            let calm_peak = self.peak_units.filter(|_| self.overloads.is_empty());
            advice.extend(calm_peak.map(|peak| {
                format!(
                    "It is not urgent: at the rate of this file, no key exceeds its partition. The busiest second of \
                     a key takes {} of {} write units.",
                    count(peak),
                    count(PARTITION_WRITE_UNITS)
                )
            }));
            advice.extend(self.sharding(calm_peak.is_some()));
        }
        if self.peak_units.is_none() {
            advice.push(
                "Use --time as well, to find keys that exceed a partition for some seconds, and keys that are hot by \
                 turns, as dates are."
                    .to_owned(),
            );
        }
        if self.items < FEW_ITEMS {
            let items = counted(self.items, "item");
            advice.push(format!("Be careful: only {items}, too few for a reliable verdict."));
        }
        advice
    }

    /// How to relieve an uneven partition key, now or if its rates rise.
    fn sharding(&self, is_for_later: bool) -> Vec<String> {
        let first = self.needs_shards();
        let needs = first.map_or_else(String::new, |overload| {
            let (fewest, policy) =
                (counted(overload.fewest_shards, "shard"), count(overload.shards_by_policy));
            format!(
                " {} needs at least {fewest}, and would get {policy} on a table that has served as much before.",
                quoted(&overload.partition_key)
            )
        });
        let shard = if is_for_later { "If the rates rise, shard it" } else { "Shard it" };
        let mut advice = vec![format!(
            "{shard}: this product gives a key more shards by itself as soon as it is throttled, or beforehand by the \
             shard-scaler's action \"set\".{needs}"
        )];
        let highest = u64::from(ScalingPolicy::default().max_shards.get());
        if first.is_some_and(|overload| overload.shards_by_policy > highest) {
            advice.push(format!(
                "Raise MAX_SHARDS: by default, a key gets at most {highest} shards."
            ));
        }
        let field = match self.cause() {
            Cause::ByTurns => {
                "Or choose a partition key that does not follow the time: append a field that differs between items."
            }
            Cause::FewValues => {
                "Or choose a partition key with many more values: append a field that differs between items."
            }
            Cause::OneDominates => {
                "Or choose a partition key that divides the hottest key's items: append a field that differs between \
                 them."
            }
        };
        advice.push(field.to_owned());
        advice
    }
}

pub(super) fn verdict(facts: &Facts<'_>) -> Verdict {
    let uniformity = facts.uniformity();
    Verdict { uniformity, reason: facts.reason(), advice: facts.advice(uniformity) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::over_time::overload;
    use crate::advise::seconds::{KeyRate, Peak};
    use proptest::prelude::*;

    fn facts(distinct: u64, hottest_share: f64, next_share: f64) -> Facts<'static> {
        Facts {
            items: 1_000_000,
            distinct,
            hottest: "k",
            hottest_share,
            next_share,
            momentary_share: None,
            peak_units: None,
            overloads: &[],
        }
    }

    #[test]
    fn the_verdicts_match_the_table_of_the_aws_document() {
        let turns = |share, facts| Facts { momentary_share: Some(share), ..facts };
        // A user ID, a status code, a date, a device ID; one far more popular; between both.
        let rows = [
            (facts(100_000, 0.000_1, 0.000_1), Uniformity::Good, "of 100,000"),
            (facts(5, 0.25, 0.2), Uniformity::Bad, "only 5"),
            (turns(0.98, facts(365, 0.004, 0.004)), Uniformity::Bad, "by turns"),
            (facts(5_000, 0.000_3, 0.000_3), Uniformity::Good, "of 5,000"),
            (facts(1_000_000, 0.05, 0.001), Uniformity::Bad, "far more than any other"),
            (facts(5_000, 0.06, 0.05), Uniformity::Uneven, "300 times an even share"),
            (turns(0.06, facts(5_000, 0.01, 0.01)), Uniformity::Uneven, "by turns"),
            (facts(1, 1.0, 0.0), Uniformity::Bad, "only one partition key"),
        ];
        for (facts, uniformity, reason) in rows {
            let verdict = verdict(&facts);
            assert_eq!(verdict.uniformity, uniformity, "{facts:?}");
            assert!(verdict.reason.contains(reason), "{}", verdict.reason);
        }
    }

    #[test]
    fn the_shards_of_a_key_are_reported_if_it_needs_more_than_one() {
        let needs = "needs at least 2 shards, and would get";
        let rows = [
            (1_005, Uniformity::Good, "k\" took 1,005 write units", "Keep it"),
            (2_000, Uniformity::Bad, "k\" took 2,000 write units", needs),
            (90_000, Uniformity::Bad, "k\" took 90,000 write units", "Raise MAX_SHARDS"),
        ];
        for (units, uniformity, reason, advice) in rows {
            let peak = Peak { write_units_per_second: units, at: 7 };
            let overloads = [overload("k", &KeyRate { peak, seconds_over: 1 })];
            let facts = facts(5_000, 0.001, 0.001);
            let verdict =
                verdict(&Facts { peak_units: Some(units), overloads: &overloads, ..facts });
            assert_eq!(verdict.uniformity, uniformity, "{units}");
            assert!(verdict.reason.contains(reason), "{}", verdict.reason);
            assert!(verdict.advice.join("\n").contains(advice), "{:?}", verdict.advice);
        }
    }

    proptest! {
        #[test]
        fn a_hotter_key_is_never_judged_better(
            share in 0.0f64..1.0,
            more in 0.0f64..1.0,
            next in 0.0f64..0.5,
            distinct in 1u64..10_000,
        ) {
            let rank = |share| match facts(distinct, share, next).uniformity() {
                Uniformity::Good => 0,
                Uniformity::Uneven => 1,
                Uniformity::Bad => 2,
            };
            prop_assert!(rank(share) <= rank((share + more).min(1.0)));
        }
    }
}
