//! A service of one's own: events of a hot file go in, and come back in order, over however many
//! shards they lie on.
//!
//! Against the local edition (`cargo run --bin local` in another terminal):
//! `AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000 AWS_REGION=local AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local cargo run -p dynamodb-write-sharding --example own_service`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use aws_smithy_http_client::{Builder, tls};
use dynamodb_write_sharding::{ShardedTable, TableConfig};
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Download {
    country: String,
    bytes: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tls = tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring);
    let http = Builder::new().tls_provider(tls).build_https();
    let aws =
        aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http).load().await;
    let table = ShardedTable::new(
        &aws_sdk_dynamodb::Client::new(&aws),
        TableConfig::new("items", "items-metadata"),
    );

    let file = "/shared/firetvGen2.txt";
    for (time, country) in [("123456789101", "NO"), ("123456789102", "PE"), ("123456789103", "JP")]
    {
        let written =
            table.put(file, time, Download { country: country.to_owned(), bytes: 10_240 }).await?;
        println!("{time}: stored on shard {} of {}", written.shard, written.number_of_shards);
    }
    let mut downloads =
        table.query::<Download>(file).from("123456789102").consistent(true).stream();
    while let Some(entry) = downloads.try_next().await? {
        println!("{}: {} bytes to {}", entry.sort_key, entry.value.bytes, entry.value.country);
    }
    table.close().await;
    Ok(())
}
