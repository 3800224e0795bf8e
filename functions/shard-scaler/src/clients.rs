//! The shard-scaler's requests to AWS, and their errors. The throttled keys come from Contributor
//! Insights (either of its modes), read through CloudWatch.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::Duration;

use aws_sdk_cloudwatch::primitives::DateTime;
use aws_sdk_cloudwatch::types::{AlarmType, InsightRuleContributor, StateValue};
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    BillingMode, ContributorInsightsStatus, ProvisionedThroughput, TableDescription,
};
use serde::Serialize;
use sharding::{PartitionKey, TableConfig};
use tokio::time::{Instant as Deadline, timeout_at};

/// The clients of the shard-scaler.
#[derive(Debug, Clone)]
pub struct Clients {
    /// Tables and their Contributor Insights.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// Reports and alarms.
    pub cloudwatch: aws_sdk_cloudwatch::Client,
}

/// Responses to too many requests. (CloudWatch and DynamoDB API references, "Common errors".)
const THROTTLING_ERRORS: [&str; 5] = [
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "LimitExceededException",
    "TooManyRequestsException",
];

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

#[derive(Debug, thiserror::Error)]
#[error("{operation}: {cause}")]
pub(crate) struct ClientError {
    pub(crate) operation: &'static str,
    pub(crate) cause: String,
    /// Throttled, or without a conclusive response: the same request may succeed a moment later.
    pub(crate) is_retryable: bool,
}

impl ClientError {
    pub(crate) fn of<E>(operation: &'static str) -> impl Fn(SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        move |error| {
            let (cause, is_retryable) = (api::cause(&error), is_retryable(&error));
            Self { operation, cause, is_retryable }
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum is open")]
fn is_retryable<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    match error {
        SdkError::ServiceError(service) => {
            let code = service.err().code().unwrap_or_default();
            THROTTLING_ERRORS.contains(&code) || service.raw().status().is_server_error()
        }
        SdkError::ConstructionFailure(_) => false,
        _ => true,
    }
}

/// The result of a request, or an error if there is none at the deadline.
pub(crate) async fn in_time<T>(
    deadline: Deadline,
    operation: &'static str,
    request: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let late = ClientError { operation, cause: "no answer in time".into(), is_retryable: true };
    timeout_at(deadline, request).await.unwrap_or(Err(late))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Units {
    pub(crate) read: u64,
    pub(crate) write: u64,
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
    pub(crate) fn merge(&mut self, other: Self) {
        for (began, count) in other.counts {
            *self.counts.entry(began).or_default() += count;
        }
    }
}

impl Clients {
    pub(crate) async fn describe(&self, table: &str) -> Result<TableDescription, ClientError> {
        let described = self.dynamodb.describe_table().table_name(table).send().await;
        let described = described.map_err(ClientError::of("DescribeTable"))?;
        Ok(described.table.unwrap_or_else(|| TableDescription::builder().build()))
    }

    pub(crate) async fn provision(&self, table: &str, units: Units) -> Result<(), ClientError> {
        let signed = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        let throughput = ProvisionedThroughput::builder().read_capacity_units(signed(units.read));
        let throughput = throughput.write_capacity_units(signed(units.write)).build();
        let update = self.dynamodb.update_table().table_name(table);
        let update = update.provisioned_throughput(throughput.expect("both units are set"));
        update.send().await.map(drop).map_err(ClientError::of("UpdateTable"))
    }

    /// The states of those of the named alarms that exist.
    pub(crate) async fn alarm_states(
        &self,
        names: &BTreeSet<&str>,
    ) -> Result<BTreeMap<String, String>, ClientError> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let types = vec![AlarmType::MetricAlarm, AlarmType::CompositeAlarm];
        let describe = self.cloudwatch.describe_alarms().set_alarm_names(Some(names));
        let described = describe.set_alarm_types(Some(types)).send().await;
        let described = described.map_err(ClientError::of("DescribeAlarms"))?;
        let metric = described.metric_alarms().iter().map(|it| (it.alarm_name(), it.state_value()));
        let composite = described.composite_alarms().iter();
        let all = metric.chain(composite.map(|it| (it.alarm_name(), it.state_value())));
        let named = |(name, state): (Option<&str>, Option<&StateValue>)| {
            Some((name?.to_owned(), state?.as_str().to_owned()))
        };
        Ok(all.filter_map(named).collect())
    }

    /// Sets an alarm back to OK, so that the next evaluation with throttles is a transition again,
    /// and acts. `false` if there is no alarm of this name.
    pub(crate) async fn rearm(&self, alarm: &str) -> Result<bool, ClientError> {
        let reason = "Set back by the shard-scaler: more throttles raise the alarm again.";
        let set = self.cloudwatch.set_alarm_state().alarm_name(alarm).state_value(StateValue::Ok);
        match set.state_reason(reason).send().await {
            Ok(_) => Ok(true),
            Err(error) => match error.as_service_error() {
                Some(service) if service.is_resource_not_found() => Ok(false),
                _ => Err(ClientError::of("SetAlarmState")(error)),
            },
        }
    }

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

/// `None` on demand.
pub(crate) fn provisioned(table: &TableDescription) -> Option<Units> {
    let on_demand = table.billing_mode_summary().and_then(|summary| summary.billing_mode())
        == Some(&BillingMode::PayPerRequest);
    let units = table.provisioned_throughput().map(|throughput| {
        let unsigned = |it: Option<i64>| u64::try_from(it.unwrap_or_default()).unwrap_or_default();
        Units {
            read: unsigned(throughput.read_capacity_units()),
            write: unsigned(throughput.write_capacity_units()),
        }
    });
    units.filter(|units| !on_demand && units.write > 0)
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
