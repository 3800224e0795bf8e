//! Which keys are throttled: Contributor Insights in throttled-keys mode, read through CloudWatch.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_cloudwatch::primitives::DateTime;
use sharding::{PartitionKey, ShardKeys, ShardNumber};

use crate::clients::{ClientError, Clients};

/// DynamoDB's rules report no more. [CloudWatch API reference]
const MOST_CONTRIBUTORS: i32 = 25;
/// The rule that counts throttled partition keys.
const RULE_KIND: &str = "-PKT-";
/// How far back the report looks.
const WINDOW: Duration = Duration::from_secs(120);
/// The length of the report's periods, in seconds: the shortest there is.
const PERIOD: u64 = 60;

/// When a key was throttled, and where.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Throttles {
    /// Counts by the second in which their period began.
    counts: BTreeMap<u64, u64>,
    /// The report names shard 1 of the key, no other, and had room for others.
    pub(crate) only_shard_1: bool,
}

impl Throttles {
    /// Those of periods that had not ended when the key's shards last changed: what was before says nothing of the present width.
    pub(crate) fn since(&self, last_change: u64) -> u64 {
        self.counts.iter().filter(|(began, _)| **began + PERIOD > last_change).map(|(_, count)| count).sum()
    }
}

/// Throttled requests by logical key, and stored keys that belong to none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ThrottledKeys {
    pub(crate) by_key: BTreeMap<PartitionKey, Throttles>,
    pub(crate) foreign: usize,
}

impl Clients {
    /// The keys that were throttled after `from_seconds`, at most two minutes ago, and up to `now_seconds`; physical keys mapped to logical ones.
    pub(crate) async fn throttled_keys(
        &self,
        table_name: &str,
        shard_keys: &ShardKeys,
        from_seconds: u64,
        now_seconds: u64,
    ) -> Result<ThrottledKeys, ClientError> {
        let described = self
            .dynamodb
            .describe_contributor_insights()
            .table_name(table_name)
            .send()
            .await
            .map_err(ClientError::of("DescribeContributorInsights"))?;
        // The name ends in a time stamp, so it can only be asked for.
        let rule = described.contributor_insights_rule_list().iter().find(|rule| rule.contains(RULE_KIND));
        let Some(rule) = rule else { return Ok(ThrottledKeys::default()) };
        let to = i64::try_from(now_seconds).unwrap_or(i64::MAX);
        let from = to.saturating_sub_unsigned(WINDOW.as_secs()).max(i64::try_from(from_seconds).unwrap_or_default());
        let report = self
            .cloudwatch
            .get_insight_rule_report()
            .rule_name(rule)
            .start_time(DateTime::from_secs(from))
            .end_time(DateTime::from_secs(to))
            .period(PERIOD as i32)
            .max_contributor_count(MOST_CONTRIBUTORS)
            .send()
            .await
            .map_err(ClientError::of("GetInsightRuleReport"))?;
        let mut throttled = ThrottledKeys::default();
        // A report that is full may have left shards out.
        let is_full = report.contributors().len() >= MOST_CONTRIBUTORS as usize;
        for contributor in report.contributors() {
            let key = contributor.keys().first().and_then(|stored| shard_keys.parse(stored));
            let Some((key, shard)) = key else {
                throttled.foreign += 1;
                continue;
            };
            let is_first = shard == ShardNumber::FIRST && !is_full;
            let throttles =
                throttled.by_key.entry(key).or_insert(Throttles { only_shard_1: is_first, ..Throttles::default() });
            throttles.only_shard_1 &= is_first;
            for datapoint in contributor.datapoints() {
                let began = datapoint.timestamp().and_then(|at| u64::try_from(at.secs()).ok()).unwrap_or(now_seconds);
                *throttles.counts.entry(began).or_default() +=
                    datapoint.approximate_value().unwrap_or_default().max(0.0) as u64;
            }
        }
        Ok(throttled)
    }
}
