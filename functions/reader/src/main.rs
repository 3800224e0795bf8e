//! The reader as a Lambda function.

use lambda_http::{Error, RequestExt, run, service_fn, tracing};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let table = api::start_table().await?;
    let telemetry = api::Telemetry::start(&table.config().table_name)?;
    let table = &table;
    run(service_fn(move |request: api::Request| async move {
        let context = request.lambda_context();
        let response = reader::handle(table, request, api::invocation_deadline(&context)).await;
        telemetry.flush(&context);
        Ok::<_, Error>(response)
    }))
    .await
}
