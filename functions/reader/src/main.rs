//! The reader as a Lambda function.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_http::Error> {
    api::serve(api::Access::Read, |_, _| {}, reader::handle).await
}
