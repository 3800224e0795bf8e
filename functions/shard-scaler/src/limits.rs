//! The limits that requests exceeded, the table's and its indexes', and their remedies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::bare_table_name;
use aws_sdk_cloudwatch::primitives::DateTime;
use aws_sdk_cloudwatch::types::{Dimension, Metric, MetricDataQuery, MetricStat};
use serde::Serialize;

use crate::clients::{ClientError, Clients};
use crate::event::AlarmMetric;

/// The time span of the metrics.
const WINDOW: Duration = Duration::from_secs(300);
/// CloudWatch has one datapoint a minute for DynamoDB's metrics.
const PERIOD_SECONDS: i32 = 60;
/// The largest number of indexes that are checked, in one request with the table. A request allows
/// 500 metrics. (CloudWatch API reference, "GetMetricData".)
const MAX_INDEXES: usize = 60;

/// A limit that requests exceeded, and the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// Partitions exceed their limit of writes: more shards.
    HotWrites,
    /// Partitions exceed their limit of reads: replicas or a cache, never more shards of a key that
    /// is read as a whole.
    HotReads,
    /// The table's provisioned write units are used up: more units.
    ProvisionedWrites,
    /// The table's provisioned read units are used up: more units.
    ProvisionedReads,
    /// The maximum that the owner set for on-demand throughput: only the owner can raise it.
    OnDemandMaximum,
    /// The account's quota for one table: only a higher quota.
    Account,
}

impl Cause {
    /// Every metric of `AWS/DynamoDB` that names its cause. (DynamoDB developer guide, "Metrics and
    /// dimensions".)
    pub(crate) const METRICS: [(&'static str, Self); 8] = [
        ("WriteKeyRangeThroughputThrottleEvents", Self::HotWrites),
        ("ReadKeyRangeThroughputThrottleEvents", Self::HotReads),
        ("WriteProvisionedThroughputThrottleEvents", Self::ProvisionedWrites),
        ("ReadProvisionedThroughputThrottleEvents", Self::ProvisionedReads),
        ("WriteMaxOnDemandThroughputThrottleEvents", Self::OnDemandMaximum),
        ("ReadMaxOnDemandThroughputThrottleEvents", Self::OnDemandMaximum),
        ("WriteAccountLimitThrottleEvents", Self::Account),
        ("ReadAccountLimitThrottleEvents", Self::Account),
    ];

    /// The operator's remedy, if the shard-scaler has none.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::HotWrites => "more shards relieve the keys",
            Self::HotReads => {
                "add read replicas (READ_REPLICAS), read with consistent=false, or put a cache before the reader"
            }
            Self::ProvisionedWrites => {
                "raise the provisioned write units, or MAX_WRITE_UNITS so that the shard-scaler may"
            }
            Self::ProvisionedReads => {
                "raise the provisioned read units, or MAX_READ_UNITS so that the shard-scaler may"
            }
            Self::OnDemandMaximum => {
                "raise the maximum on-demand throughput that is set on the table; more shards do not help"
            }
            Self::Account => "ask for a higher account quota; more shards do not help",
        }
    }

    /// The same for an index. A replica has the table's own keys, so the remedy for the table's
    /// partitions helps its own.
    pub(crate) const fn advice_of_index(self, is_replica: bool) -> &'static str {
        match self {
            Self::HotWrites | Self::HotReads if !is_replica => {
                "give the index a partition key with more distinct values; more shards of the table's key need not help"
            }
            Self::ProvisionedWrites => {
                "raise the index's provisioned write units; the shard-scaler raises the table's only"
            }
            Self::ProvisionedReads => {
                "raise the index's provisioned read units; the shard-scaler raises the table's only"
            }
            Self::OnDemandMaximum => {
                "raise the maximum on-demand throughput that is set on the index; more shards do not help"
            }
            Self::HotWrites | Self::HotReads | Self::Account => self.advice(),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) table: BTreeSet<Cause>,
    /// By the index's name. The metrics of the table do not count the throttles of its indexes.
    pub(crate) indexes: BTreeMap<String, BTreeSet<Cause>>,
}

impl Limits {
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty() && self.indexes.is_empty()
    }

    /// The limits that an alarm's metrics name. Empty for metric math and composite alarms.
    pub(crate) fn named(metrics: &[&AlarmMetric]) -> Self {
        let mut limits = Self::default();
        for metric in metrics {
            // A metric such as `WriteThrottleEvents` names none.
            let named = Cause::METRICS.iter().find(|(name, _)| *name == metric.name);
            limits.add(metric.index.as_deref(), named.map(|(_, cause)| *cause));
        }
        limits
    }

    fn add(&mut self, index: Option<&str>, cause: Option<Cause>) {
        let Some(cause) = cause else { return };
        match index {
            Some(index) => self.indexes.entry(index.to_owned()).or_default().insert(cause),
            None => self.table.insert(cause),
        };
    }
}

impl Clients {
    /// The limits that requests exceeded in the last minutes, by the metrics that name them. If
    /// none does: hot partitions of the indexes that an alarm is `about`, or else of the table.
    pub(crate) async fn limits_met(
        &self,
        table: &str,
        about: &BTreeSet<&str>,
        now_seconds: u64,
    ) -> Result<Limits, ClientError> {
        let described = self.describe(table).await?;
        let indexes = described.global_secondary_indexes().iter().take(MAX_INDEXES);
        let mut places = vec![None];
        places.extend(indexes.filter_map(|index| index.index_name()).map(Some));
        let of_place =
            |place: Option<&str>| Cause::METRICS.map(|(metric, _)| query(table, place, metric));
        let queries = places.iter().flat_map(|place| of_place(*place)).collect();
        let sums = self.sums(queries, now_seconds).await?;

        let mut limits = Limits::default();
        for (place, sums) in places.iter().zip(sums.chunks(Cause::METRICS.len())) {
            for ((_, cause), sum) in Cause::METRICS.iter().zip(sums) {
                limits.add(*place, (*sum > 0.0).then_some(*cause));
            }
        }
        if limits.is_empty() {
            about.iter().for_each(|index| limits.add(Some(index), Some(Cause::HotWrites)));
        }
        if limits.is_empty() {
            limits.add(None, Some(Cause::HotWrites));
        }
        Ok(limits)
    }

    /// The sums of metrics over the last minutes, in the order of the queries.
    async fn sums(
        &self,
        queries: Vec<MetricStat>,
        now_seconds: u64,
    ) -> Result<Vec<f64>, ClientError> {
        let to = i64::try_from(now_seconds).unwrap_or(i64::MAX);
        let id = |index: usize| format!("m{index}");
        let count = queries.len();
        let queries = queries
            .into_iter()
            .enumerate()
            .map(|(index, stat)| MetricDataQuery::builder().id(id(index)).metric_stat(stat).build())
            .collect();
        let from = to.saturating_sub_unsigned(WINDOW.as_secs());
        let ask = self.cloudwatch.get_metric_data().set_metric_data_queries(Some(queries));
        let ask = ask.start_time(DateTime::from_secs(from)).end_time(DateTime::from_secs(to));
        let answer = ask.send().await.map_err(ClientError::of("GetMetricData"))?;
        let sum = |index: usize| {
            let id = id(index);
            let results = answer.metric_data_results().iter();
            let own = results.filter(|result| result.id() == Some(id.as_str()));
            own.flat_map(|result| result.values()).sum()
        };
        Ok((0..count).map(sum).collect())
    }
}

fn query(table: &str, index: Option<&str>, metric: &str) -> MetricStat {
    let dimension = |name: &str, value: &str| Dimension::builder().name(name).value(value).build();
    let metric = Metric::builder()
        .namespace("AWS/DynamoDB")
        .metric_name(metric)
        .dimensions(dimension("TableName", bare_table_name(table)));
    let metric = match index {
        Some(index) => metric.dimensions(dimension("GlobalSecondaryIndexName", index)),
        None => metric,
    };
    MetricStat::builder().metric(metric.build()).period(PERIOD_SECONDS).stat("Sum").build()
}
