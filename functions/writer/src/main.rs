//! The writer as a Lambda function.

use lambda_http::{Error, RequestExt, run, service_fn, tracing};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let table = api::start_table().await?;
    run(service_fn(|request: api::Request| async {
        let deadline = api::invocation_deadline(&request.lambda_context());
        Ok::<_, Error>(writer::handle(&table, request, deadline).await)
    }))
    .await
}
