//! The writer as a Lambda function.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_http::Error> {
    api::serve(api::Access::Write, writer::handle).await
}
