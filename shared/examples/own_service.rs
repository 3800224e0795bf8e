//! A service of one's own: events of a hot file go in, and come back in order, over however many shards they lie on.
//!
//! Against the local edition (`cargo run -p local` in another terminal):
//! `AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000 AWS_REGION=local AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local cargo run -p sharding --example own_service`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use aws_smithy_http_client::{Builder, tls};
use sharding::{Attributes, Deadline, Item, PageQuery, PartitionKey, ShardedTable, SortKey, SortKeyType, TableConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tls = tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring);
    let http = Builder::new().tls_provider(tls).build_https();
    let aws = aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http).load().await;
    let table = ShardedTable::new(&aws_sdk_dynamodb::Client::new(&aws), TableConfig::new("items", "items-metadata"));

    let soon = || Deadline::now() + Duration::from_secs(5);
    let partition_key = PartitionKey::new("/shared/firetvGen2.txt")?;
    for time in ["123456789101", "123456789102", "123456789103"] {
        let sort_key = SortKey::parse(SortKeyType::String, time)?;
        let item = Item { partition_key: partition_key.clone(), sort_key, attributes: Attributes::new() };
        let written = table.put(&item, soon()).await?;
        println!("{time}: stored on shard {} of {}", written.shard, written.number_of_shards);
    }
    let page = table.query(&PageQuery { limit: 10, ..PageQuery::new(partition_key) }, soon()).await?;
    for item in page.items {
        println!("{}: read from {} shards", item.sort_key, page.shards);
    }
    table.finish_background_work().await;
    Ok(())
}
