//! Which keys are throttled: Contributor Insights in throttled-keys mode, read through CloudWatch.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_cloudwatch::primitives::DateTime;
use sharding::{PartitionKey, ShardKeys};

/// DynamoDB's rules report no more. [CloudWatch API reference]
const MOST_CONTRIBUTORS: i32 = 25;
/// The rule that counts throttled partition keys.
const RULE_KIND: &str = "-PKT-";
/// How far back the report looks.
const WINDOW: Duration = Duration::from_secs(120);

/// The clients that a report needs.
#[derive(Debug, Clone)]
pub struct Insights {
    /// Tells the rule's name.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// Holds the report.
    pub cloudwatch: aws_sdk_cloudwatch::Client,
}

/// Throttled requests by logical key, and stored keys that belong to none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ThrottledKeys {
    pub(crate) by_key: BTreeMap<PartitionKey, u64>,
    pub(crate) foreign: usize,
}

/// The report could not be had; the text says from where.
#[derive(Debug, thiserror::Error)]
#[error("{from}: {cause}")]
pub(crate) struct InsightsError {
    from: &'static str,
    cause: String,
}

impl Insights {
    /// The keys that were throttled up to `now_seconds`, physical keys mapped to logical ones.
    pub(crate) async fn throttled_keys(
        &self,
        table_name: &str,
        shard_keys: &ShardKeys,
        now_seconds: u64,
    ) -> Result<ThrottledKeys, InsightsError> {
        let failed = |from| move |cause: String| InsightsError { from, cause };
        let described = self
            .dynamodb
            .describe_contributor_insights()
            .table_name(table_name)
            .send()
            .await
            .map_err(|error| aws_sdk_dynamodb::error::DisplayErrorContext(error).to_string())
            .map_err(failed("DescribeContributorInsights"))?;
        // The name ends in a time stamp, so it can only be asked for.
        let rule = described.contributor_insights_rule_list().iter().find(|rule| rule.contains(RULE_KIND));
        let Some(rule) = rule else { return Ok(ThrottledKeys::default()) };
        let to = i64::try_from(now_seconds).unwrap_or(i64::MAX);
        let from = to.saturating_sub_unsigned(WINDOW.as_secs());
        let report = self
            .cloudwatch
            .get_insight_rule_report()
            .rule_name(rule)
            .start_time(DateTime::from_secs(from))
            .end_time(DateTime::from_secs(to))
            .period(60)
            .max_contributor_count(MOST_CONTRIBUTORS)
            .send()
            .await
            .map_err(|error| aws_sdk_dynamodb::error::DisplayErrorContext(error).to_string())
            .map_err(failed("GetInsightRuleReport"))?;
        let mut throttled = ThrottledKeys::default();
        for contributor in report.contributors() {
            let key = contributor.keys().first().and_then(|stored| shard_keys.parse(stored));
            let count = contributor.approximate_aggregate_value().unwrap_or_default().max(0.0) as u64;
            match key {
                Some((key, _)) => *throttled.by_key.entry(key).or_default() += count,
                None => throttled.foreign += 1,
            }
        }
        Ok(throttled)
    }
}
