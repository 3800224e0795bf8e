//! What the shard-scaler asks of CloudWatch and of the table's description.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_cloudwatch::primitives::DateTime;
use aws_sdk_cloudwatch::types::{Dimension, Metric, MetricDataQuery, MetricStat, StateValue};
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::{BillingMode, ProvisionedThroughput, TableDescription, TableStatus};

use crate::cause::Cause;

/// How far back metrics are looked at.
const WINDOW: Duration = Duration::from_secs(300);
/// CloudWatch's metrics of DynamoDB have one datapoint a minute.
const PERIOD_SECONDS: i32 = 60;
/// Part of the provisioned units from which on the table, and not one of its partitions, is taken to be the limit.
const NEARLY_ALL: f64 = 0.9;

/// The clients of the shard-scaler.
#[derive(Debug, Clone)]
pub struct Clients {
    /// Tables and their Contributor Insights.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// Metrics, reports and alarms.
    pub cloudwatch: aws_sdk_cloudwatch::Client,
}

/// A request failed; the text says which one.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {cause}")]
pub(crate) struct ClientError {
    pub(crate) operation: &'static str,
    pub(crate) cause: String,
}

impl ClientError {
    pub(crate) fn of<E: std::error::Error>(operation: &'static str) -> impl Fn(E) -> Self {
        move |error| Self { operation, cause: DisplayErrorContext(error).to_string() }
    }
}

/// Provisioned units of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) read: u64,
    pub(crate) write: u64,
}

/// What a table is, as far as its capacity goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// `None` on demand.
    pub(crate) provisioned: Option<Units>,
    /// Nothing else is changing it.
    pub(crate) is_active: bool,
}

impl Clients {
    /// The limits that requests met in the last minutes, by the metrics that name them; and where none does, by comparing what was consumed
    /// with what is provisioned.
    pub(crate) async fn causes(&self, table: &str, now_seconds: u64) -> Result<BTreeSet<Cause>, ClientError> {
        let named = Cause::METRICS.map(|(name, _)| name);
        let sums = self.metric_sums(table, &named, now_seconds).await?;
        let met: BTreeSet<Cause> =
            Cause::METRICS.iter().zip(sums).filter(|(_, sum)| *sum > 0.0).map(|((_, cause), _)| *cause).collect();
        if !met.is_empty() {
            return Ok(met);
        }
        let Some(units) = self.capacity(table).await?.provisioned else {
            return Ok(BTreeSet::from([Cause::HotWrites]));
        };
        let consumed = ["ConsumedWriteCapacityUnits", "ConsumedReadCapacityUnits"];
        let sums = self.metric_sums(table, &consumed, now_seconds).await?;
        let [written, read] = [0, 1].map(|index| sums.get(index).copied().unwrap_or_default() / WINDOW.as_secs_f64());
        let nearly = |used: f64, of: u64| used >= of as f64 * NEARLY_ALL;
        let table_is_short = [
            (Cause::ProvisionedWrites, nearly(written, units.write)),
            (Cause::ProvisionedReads, nearly(read, units.read)),
        ];
        let short: BTreeSet<Cause> =
            table_is_short.into_iter().filter(|(_, short)| *short).map(|(cause, _)| cause).collect();
        Ok(if short.is_empty() { BTreeSet::from([Cause::HotWrites]) } else { short })
    }

    async fn metric_sums(&self, table: &str, names: &[&str], now_seconds: u64) -> Result<Vec<f64>, ClientError> {
        let to = i64::try_from(now_seconds).unwrap_or(i64::MAX);
        let dimension = Dimension::builder().name("TableName").value(table).build();
        let queries = names.iter().enumerate().map(|(index, name)| {
            let metric =
                Metric::builder().namespace("AWS/DynamoDB").metric_name(*name).dimensions(dimension.clone()).build();
            let stat = MetricStat::builder().metric(metric).period(PERIOD_SECONDS).stat("Sum").build();
            MetricDataQuery::builder().id(format!("m{index}")).metric_stat(stat).build()
        });
        let answer = self
            .cloudwatch
            .get_metric_data()
            .start_time(DateTime::from_secs(to.saturating_sub_unsigned(WINDOW.as_secs())))
            .end_time(DateTime::from_secs(to))
            .set_metric_data_queries(Some(queries.collect()))
            .send()
            .await
            .map_err(ClientError::of("GetMetricData"))?;
        let sum = |index: usize| {
            let id = format!("m{index}");
            let results = answer.metric_data_results().iter().filter(|result| result.id() == Some(id.as_str()));
            results.flat_map(|result| result.values()).sum()
        };
        Ok((0..names.len()).map(sum).collect())
    }

    /// What the table is provisioned with, and whether it is being changed.
    pub(crate) async fn capacity(&self, table: &str) -> Result<Capacity, ClientError> {
        let described = self.dynamodb.describe_table().table_name(table).send().await;
        let table = described.map_err(ClientError::of("DescribeTable"))?.table;
        Ok(table.as_ref().map_or(Capacity { provisioned: None, is_active: false }, capacity))
    }

    /// Gives the table so many units.
    pub(crate) async fn provision(&self, table: &str, units: Units) -> Result<(), ClientError> {
        let failed = ClientError::of("UpdateTable");
        let signed = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        let throughput = ProvisionedThroughput::builder()
            .read_capacity_units(signed(units.read))
            .write_capacity_units(signed(units.write))
            .build()
            .map_err(ClientError::of("UpdateTable"))?;
        self.dynamodb
            .update_table()
            .table_name(table)
            .provisioned_throughput(throughput)
            .send()
            .await
            .map(drop)
            .map_err(failed)
    }

    /// Sets an alarm back to OK, so that the next evaluation that finds throttles is a transition again, and acts.
    pub(crate) async fn rearm(&self, alarm: &str) -> Result<(), ClientError> {
        self.cloudwatch
            .set_alarm_state()
            .alarm_name(alarm)
            .state_value(StateValue::Ok)
            .state_reason("The shard-scaler has acted; more throttles raise the alarm again.")
            .send()
            .await
            .map(drop)
            .map_err(ClientError::of("SetAlarmState"))
    }
}

fn capacity(table: &TableDescription) -> Capacity {
    let on_demand =
        table.billing_mode_summary().and_then(|summary| summary.billing_mode()) == Some(&BillingMode::PayPerRequest);
    let units = table.provisioned_throughput().map(|throughput| {
        let unsigned = |units: Option<i64>| u64::try_from(units.unwrap_or_default()).unwrap_or_default();
        Units { read: unsigned(throughput.read_capacity_units()), write: unsigned(throughput.write_capacity_units()) }
    });
    let provisioned = units.filter(|units| !on_demand && units.write > 0);
    Capacity { provisioned, is_active: table.table_status() == Some(&TableStatus::Active) }
}
