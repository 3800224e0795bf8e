//! The limits that requests exceeded, the table's and its indexes', and their remedies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::bare_table_name;
use aws_sdk_cloudwatch::primitives::DateTime;
use aws_sdk_cloudwatch::types::{Dimension, Metric, MetricDataQuery, MetricStat};
use aws_sdk_dynamodb::types::TableDescription;
use serde::Serialize;
use sharding::TableConfig;

use crate::clients::{ClientError, Clients, capacity};
use crate::event::AlarmMetric;

/// The time span of the metrics.
const WINDOW: Duration = Duration::from_secs(300);
/// CloudWatch has one datapoint a minute for DynamoDB's metrics.
const PERIOD_SECONDS: i32 = 60;
/// If at least this share of the provisioned units is consumed, the table is taken to be the limit,
/// and not one of its partitions.
const EXHAUSTED_SHARE: f64 = 0.9;
/// The largest number of indexes that are checked, in one request with the table. A request allows
/// 500 metrics. (CloudWatch API reference, "GetMetricData".)
const MAX_INDEXES: usize = 20;
/// The table's consumption, for the case that no metric names a limit.
const CONSUMPTION_METRICS: [&str; 2] = ["ConsumedWriteCapacityUnits", "ConsumedReadCapacityUnits"];

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
    /// none does: for an alarm `about` indexes, the limits of those; for an alarm of the table, the
    /// result of comparing consumed with provisioned capacity.
    pub(crate) async fn limits_met(
        &self,
        config: &TableConfig,
        about: &BTreeSet<&str>,
        now_seconds: u64,
    ) -> Result<Limits, ClientError> {
        let table = &config.table_name;
        let described = self.describe(table).await?;
        let mut places = vec![None];
        places.extend(indexes(&described, &config.read_replicas).into_iter().map(Some));
        let of_place =
            |place: Option<&str>| Cause::METRICS.map(|(metric, _)| query(table, place, metric));
        let queries = CONSUMPTION_METRICS.map(|metric| query(table, None, metric)).into_iter();
        let queries = queries.chain(places.iter().flat_map(|place| of_place(*place)));
        let sums = self.sums(queries, now_seconds).await?;
        let (consumed, throttled) =
            sums.split_at_checked(CONSUMPTION_METRICS.len()).unwrap_or_default();

        let mut limits = Limits::default();
        for (place, sums) in places.iter().zip(throttled.chunks(Cause::METRICS.len())) {
            for ((_, cause), sum) in Cause::METRICS.iter().zip(sums) {
                limits.add(*place, (*sum > 0.0).then_some(*cause));
            }
        }
        if !limits.is_empty() {
            return Ok(limits);
        }
        if !about.is_empty() {
            about.iter().for_each(|index| limits.add(Some(index), Some(Cause::HotWrites)));
            return Ok(limits);
        }
        if let Some(units) = capacity(&described).provisioned {
            let [written, read] = [0, 1].map(|at| consumed.get(at).copied().unwrap_or_default());
            let nearly =
                |used: f64, of: u64| used / WINDOW.as_secs_f64() >= of as f64 * EXHAUSTED_SHARE;
            limits.add(None, nearly(written, units.write).then_some(Cause::ProvisionedWrites));
            limits.add(None, nearly(read, units.read).then_some(Cause::ProvisionedReads));
        }
        if limits.is_empty() {
            limits.add(None, Some(Cause::HotWrites));
        }
        Ok(limits)
    }

    /// The sums of metrics over the last minutes, in the order of the queries.
    async fn sums(
        &self,
        queries: impl Iterator<Item = MetricStat>,
        now_seconds: u64,
    ) -> Result<Vec<f64>, ClientError> {
        let to = i64::try_from(now_seconds).unwrap_or(i64::MAX);
        let id = |index: usize| format!("m{index}");
        let queries: Vec<MetricDataQuery> = queries
            .enumerate()
            .map(|(index, stat)| MetricDataQuery::builder().id(id(index)).metric_stat(stat).build())
            .collect();
        let count = queries.len();
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

/// The global secondary indexes of a table. The replicas come first, in case there are too many.
fn indexes<'a>(table: &'a TableDescription, replicas: &[String]) -> Vec<&'a str> {
    let mut names: Vec<&str> =
        table.global_secondary_indexes().iter().filter_map(|index| index.index_name()).collect();
    names.sort_by_key(|name| !replicas.iter().any(|replica| replica == name));
    if names.len() > MAX_INDEXES {
        let indexes = names.len();
        tracing::warn!(indexes, looked_at = MAX_INDEXES, "not all indexes are looked at");
        names.truncate(MAX_INDEXES);
    }
    names
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
