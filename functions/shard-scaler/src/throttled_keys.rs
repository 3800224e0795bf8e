//! The throttled keys of the table and of its replicas, and the remedy for each throttled index:
//! Contributor Insights (either of its modes), read through CloudWatch.
//!
//! A replica is an index with the table's own keys, so its throttled keys are the table's, and more
//! shards relieve them. Another index has other keys, so the table's shards do not matter for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_cloudwatch::primitives::DateTime;
use aws_sdk_cloudwatch::types::InsightRuleContributor;
use aws_sdk_dynamodb::types::ContributorInsightsStatus;
use metrics::counter;
use serde::Serialize;
use sharding::{PartitionKey, TableConfig};

use crate::Scaler;
use crate::clients::{ClientError, Clients};
use crate::limits::{Cause, Limits};
use crate::response::{Outcome, to_json};

/// The largest number that DynamoDB's rules report. (CloudWatch API reference.)
const MAX_CONTRIBUTORS: i32 = 25;
/// The rule that counts throttled partition keys.
const RULE_KIND: &str = "-PKT-";
/// The least time span of the report.
const WINDOW: Duration = Duration::from_secs(120);
/// The length of the report's periods in seconds: the shortest possible.
const PERIOD: u64 = 60;
/// How many seconds after the recorded second a change is effective. That second counts as a whole,
/// and earlier views expire within 1.2 s.
const EFFECT_DELAY_SECONDS: u64 = 3;

/// The findings about the throttled table and indexes.
#[derive(Debug, Default)]
pub(crate) struct HotKeys {
    /// Keys whose writes are throttled.
    pub(crate) writes: ThrottledKeys,
    /// Keys for which only reads are throttled.
    pub(crate) reads: ThrottledKeys,
    /// `off`, `failed` or `enabling`, if Contributor Insights of the table reports no keys.
    pub(crate) insights: Option<&'static str>,
    /// How to make them visible.
    pub(crate) advice: Option<String>,
    pub(crate) indexes: Vec<IndexReport>,
}

/// The state of a throttled index, and its remedy.
#[derive(Debug, Serialize)]
pub(crate) struct IndexReport {
    index: String,
    causes: BTreeSet<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contributor_insights: Option<&'static str>,
    advice: String,
    /// Why its keys are unknown.
    #[serde(flatten)]
    failure: Option<Outcome>,
}

/// The report of Contributor Insights for a table or an index.
#[derive(Debug)]
pub(crate) enum Insights {
    /// The throttled keys.
    Keys(ThrottledKeys),
    /// No report: Contributor Insights is `off` or has `failed`, with the remedy, or it is
    /// `enabling`.
    Unknown { state: &'static str, advice: Option<String> },
}

/// Throttled requests by logical key.
pub(crate) type ThrottledKeys = BTreeMap<PartitionKey, Throttles>;

/// When a key was throttled.
#[derive(Debug, Default)]
pub(crate) struct Throttles {
    /// Counts by the second at which their period began.
    counts: BTreeMap<u64, u64>,
}

impl Throttles {
    /// The number of throttles in periods that began after the key's last change was effective, and
    /// why there is none if all of them are, or may be, from before. All of them count for a key
    /// that never changed.
    pub(crate) fn since(&self, last_change: Option<u64>) -> (u64, Option<&'static str>) {
        let Some(at) = last_change else { return (self.total(), None) };
        let from = |second: u64| self.counts.range(second..).map(|(_, count)| count).sum::<u64>();
        let after = from(at.saturating_add(EFFECT_DELAY_SECONDS));
        let with_its_minute = from(at.saturating_sub(PERIOD - 1));
        let why_none = if after > 0 || self.total() == 0 {
            None
        } else if with_its_minute > 0 {
            Some(
                "the throttles are from the minute of the key's last change: the next report will tell whether it has helped",
            )
        } else {
            Some("the throttles are from before the key's last change")
        };
        (after, why_none)
    }

    pub(crate) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Adds throttles of the same key elsewhere: the table's counts do not include an index's
    /// throttles.
    fn merge(&mut self, other: Self) {
        for (began, count) in other.counts {
            *self.counts.entry(began).or_default() += count;
        }
    }
}

impl Scaler {
    pub(crate) async fn hot_keys(
        &self,
        limits: &Limits,
        now_seconds: u64,
    ) -> Result<HotKeys, ClientError> {
        let mut found = HotKeys::default();
        (found.insights, found.advice) =
            self.find(&mut found, None, &limits.table, now_seconds).await?;
        for (index, causes) in &limits.indexes {
            let report = self.index(&mut found, index, causes, now_seconds).await;
            tracing::warn!(audit = true, answer = %to_json(&report), "an index throttles requests");
            found.indexes.push(report);
        }
        Ok(found)
    }

    /// Reports an index. If its keys are unknown, the table's keys are still relieved.
    async fn index(
        &self,
        found: &mut HotKeys,
        index: &str,
        causes: &BTreeSet<Cause>,
        now_seconds: u64,
    ) -> IndexReport {
        let is_replica = self.table.config().read_replicas.iter().any(|replica| replica == index);
        let advice: BTreeSet<&str> =
            causes.iter().map(|cause| cause.advice_of_index(is_replica)).collect();
        let mut advice: Vec<String> = advice.into_iter().map(str::to_owned).collect();
        let (mut contributor_insights, mut failure) = (None, None);
        if is_replica {
            match self.find(found, Some(index), causes, now_seconds).await {
                Ok((state, needed)) => {
                    advice.extend(needed);
                    contributor_insights = state;
                }
                Err(error) => {
                    tracing::error!(%error, index, "the throttled keys of an index could not be learnt");
                    failure = Some(Outcome::of_client_error(&error));
                }
            }
        }
        let advice = advice.join("; ");
        let (index, causes) = (index.to_owned(), causes.clone());
        IndexReport { index, causes, contributor_insights, advice, failure }
    }

    /// Adds the throttled keys of the table or of an index, if it has a hot partition. If they are
    /// not known, returns the state of Contributor Insights, and the remedy.
    async fn find(
        &self,
        found: &mut HotKeys,
        index: Option<&str>,
        causes: &BTreeSet<Cause>,
        now_seconds: u64,
    ) -> Result<(Option<&'static str>, Option<String>), ClientError> {
        let writes_are_hot = causes.contains(&Cause::HotWrites);
        if !writes_are_hot && !causes.contains(&Cause::HotReads) {
            return Ok((None, None));
        }
        match self.clients.throttled_keys(self.table.config(), index, now_seconds).await? {
            Insights::Keys(keys) => {
                let known = if writes_are_hot { &mut found.writes } else { &mut found.reads };
                for (key, throttles) in keys {
                    known.entry(key).or_default().merge(throttles);
                }
                Ok((None, None))
            }
            Insights::Unknown { state, advice } => {
                tracing::warn!(state, advice, "the throttled keys are not known");
                if advice.is_some() {
                    counter!("ContributorInsightsOff").increment(1);
                }
                Ok((Some(state), advice))
            }
        }
    }
}

impl Clients {
    /// The keys of a table, or of one of its indexes, that were throttled in this minute and in the
    /// two before.
    pub(crate) async fn throttled_keys(
        &self,
        table: &TableConfig,
        index_name: Option<&str>,
        now_seconds: u64,
    ) -> Result<Insights, ClientError> {
        let table_name = table.table_name.as_str();
        let describe = self.dynamodb.describe_contributor_insights().table_name(table_name);
        let described = describe.set_index_name(index_name.map(str::to_owned)).send().await;
        let described = described.map_err(ClientError::of("DescribeContributorInsights"))?;
        let unknown = |state, why: &str, remedy: &str| {
            let command = switch_on(table_name, index_name);
            let advice = format!("{why}, so the throttled keys are not known; {remedy}: {command}");
            Ok(Insights::Unknown { state, advice: Some(advice) })
        };
        match described.contributor_insights_status() {
            Some(ContributorInsightsStatus::Enabling) => {
                return Ok(Insights::Unknown { state: "enabling", advice: None });
            }
            Some(ContributorInsightsStatus::Failed) => {
                let failure = described.failure_exception().into_iter();
                let both = failure.flat_map(|it| [it.exception_name(), it.exception_description()]);
                let why = both.flatten().collect::<Vec<_>>().join(": ");
                let why = format!("Contributor Insights has FAILED ({why})");
                return unknown("failed", &why, "remove the reason, then switch it on");
            }
            Some(ContributorInsightsStatus::Disabled | ContributorInsightsStatus::Disabling) => {
                return unknown("off", "Contributor Insights is off", "switch it on");
            }
            _ => {}
        }
        // The name ends in a time stamp, so it must be requested.
        let rule =
            described.contributor_insights_rule_list().iter().find(|rule| rule.contains(RULE_KIND));
        let Some(rule) = rule else {
            let why = "Contributor Insights does not report throttled keys";
            return unknown("off", why, "switch it on");
        };
        // From the beginning of a period on, because a key's last change is compared with the
        // beginnings of periods.
        let from = now_seconds.saturating_sub(WINDOW.as_secs()) / PERIOD * PERIOD;
        let time = |seconds: u64| DateTime::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        let ask = self.cloudwatch.get_insight_rule_report().rule_name(rule).period(PERIOD as i32);
        let ask = ask.start_time(time(from)).end_time(time(now_seconds));
        let report = ask.max_contributor_count(MAX_CONTRIBUTORS).send().await;
        let report = report.map_err(ClientError::of("GetInsightRuleReport"))?;
        Ok(Insights::Keys(by_logical_key(report.contributors(), table, now_seconds)))
    }
}

/// The throttles of a report, by logical key. Other stored keys are logged by their number alone.
fn by_logical_key(
    contributors: &[InsightRuleContributor],
    table: &TableConfig,
    now_seconds: u64,
) -> ThrottledKeys {
    let (mut throttled, mut keys) = (ThrottledKeys::new(), 0_u64);
    for contributor in contributors {
        let key = contributor.keys().first().and_then(|stored| table.parse_shard_key(stored));
        let Some((key, _)) = key else {
            keys += 1;
            continue;
        };
        let throttles = throttled.entry(key).or_default();
        for datapoint in contributor.datapoints() {
            let began = datapoint.timestamp().and_then(|at| u64::try_from(at.secs()).ok());
            let count = datapoint.approximate_value().unwrap_or_default().max(0.0) as u64;
            *throttles.counts.entry(began.unwrap_or(now_seconds)).or_default() += count;
        }
    }
    if keys > 0 {
        tracing::warn!(keys, "throttled keys that are no shard keys of this table");
    }
    throttled
}

/// The command that makes Contributor Insights report throttled keys.
fn switch_on(table_name: &str, index_name: Option<&str>) -> String {
    let index = index_name.map(|name| format!(" --index-name {name}")).unwrap_or_default();
    format!(
        "aws dynamodb update-contributor-insights --table-name {table_name}{index} --contributor-insights-action ENABLE --contributor-insights-mode THROTTLED_KEYS"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttles_of_a_period_from_before_the_change_do_not_count() {
        let throttles = Throttles { counts: BTreeMap::from([(60, 5), (120, 7), (180, 9)]) };
        let (minute, before) = (Some("the minute of"), Some("from before"));
        let rows = [
            (None, 21, None),
            (Some(117), 16, None),
            (Some(177), 9, None),
            (Some(178), 0, minute),
            (Some(239), 0, minute),
            (Some(240), 0, before),
            (Some(300), 0, before),
        ];
        for (last_change, after, why) in rows {
            let (found, reason) = throttles.since(last_change);
            assert_eq!(found, after, "{last_change:?}");
            assert_eq!(reason.is_some(), why.is_some(), "{last_change:?}: {reason:?}");
            assert!(reason.zip(why).is_none_or(|(reason, why)| reason.contains(why)), "{reason:?}");
        }
        assert_eq!(Throttles::default().since(Some(178)), (0, None));
    }
}
