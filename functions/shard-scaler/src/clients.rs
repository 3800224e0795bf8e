//! The shard-scaler's requests to AWS, and their errors.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use aws_sdk_cloudwatch::types::{AlarmType, StateValue};
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{BillingMode, ProvisionedThroughput, TableDescription};
use serde::Serialize;
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
