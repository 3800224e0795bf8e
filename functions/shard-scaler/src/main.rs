//! The shard-scaler as a Lambda function.

use std::time::Duration;

use lambda_runtime::{Diagnostic, Error, LambdaEvent, service_fn};
use serde_json::Value;
use shard_scaler::{Clients, Scaler, ScalerConfig, VARIABLES};
use sharding::variables::read;
use sharding::{ShardedTable, TableConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let aws = api::aws_configuration().await;
    let dynamodb = aws_sdk_dynamodb::Client::new(&aws);
    let table = TableConfig::from_variables(|name| std::env::var(name).ok())?;
    let config = read(&*VARIABLES, ScalerConfig::default(), |name| std::env::var(name).ok())?;
    let table = ShardedTable::new(&dynamodb, config.with_pace(table));
    api::agree(&table, api::Access::Write).await?;
    let clients = Clients { dynamodb, cloudwatch: aws_sdk_cloudwatch::Client::new(&aws) };
    let telemetry = api::Telemetry::start(&table.config().table_name)?;
    let clock = &table.clone();
    let scaler = &Scaler::new(table, clients, config);
    lambda_runtime::run(service_fn(move |event: LambdaEvent<Value>| async move {
        clock.invoked(Duration::from_millis(event.context.deadline));
        let deadline = api::invocation_deadline(&event.context);
        // Boxed, because the SDK's futures nest deeply.
        let handled =
            Box::pin(scaler.handle(&event.payload, api::since_epoch().as_secs(), deadline)).await;
        telemetry.flush(&event.context);
        // Lambda repeats an event that ends in an error.
        handled.map_err(|failed| Diagnostic {
            error_type: "Failed".into(),
            error_message: failed.to_string(),
        })
    }))
    .await
}
