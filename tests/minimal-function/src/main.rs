//! A minimal function that puts one item. The cold-start benchmark compares the other functions
//! with it.

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_http_client::{Builder, tls};
use lambda_http::{Error, Request, Response, run, service_fn, tracing};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let http = Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https();
    let aws = aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await;
    let client = aws_sdk_dynamodb::Client::new(&aws);
    let table = std::env::var("TABLE_NAME")?;
    let (client, table) = (&client, &table);
    run(service_fn(move |_: Request| async move {
        let put = client.put_item().table_name(table);
        let put = put.item("partition_key", AttributeValue::S("k.1".into()));
        put.item("sort_key", AttributeValue::S("s".into())).send().await?;
        Ok::<_, Error>(Response::builder().status(201).body(String::new())?)
    }))
    .await
}
