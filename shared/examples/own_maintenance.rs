//! The whole life of a hot key with the crate alone: the tables are created, a key grows, an item is
//! deleted, the key shrinks to one shard again, and the tombstone of the deletion goes.
//!
//! A schedule of one's own would run `look_after` once a minute, as the shard-scaler does. On AWS,
//! a drain waits for a quarter of an hour, because a request may be applied that long after it was
//! sent. Against a server on this machine, `DRAIN_WAIT_SECONDS` shortens that, from 5 on.
//!
//! Against the local edition (`cargo run --bin local` in another terminal):
//! `DRAIN_WAIT_SECONDS=5 AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000 AWS_REGION=local AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local cargo run -p dynamodb-write-sharding --example own_maintenance`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_smithy_http_client::{Builder, tls};
use dynamodb_write_sharding::maintenance::{DrainRefused, Drained, ShardMetadata, ShrinkAndSettle};
use dynamodb_write_sharding::{
    Attributes, PartitionKey, ShardCount, ShardedTable, TableConfig, create_tables,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let tls = tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring);
    let http = Builder::new().tls_provider(tls).build_https();
    let aws =
        aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http).load().await;
    let mut config = TableConfig::new("tickets", "tickets-metadata");
    if let Ok(seconds) = std::env::var("DRAIN_WAIT_SECONDS") {
        config = config.drain_wait(Duration::from_secs(seconds.parse()?))?;
    }
    run(&Client::new(&aws), config).await
}

pub(crate) async fn run(client: &Client, config: TableConfig) -> Result<(), Box<dyn Error>> {
    create_tables(client, &config).await?;
    let table = ShardedTable::new(client, config.cooldown(Duration::from_secs(1)));

    let concert: PartitionKey = "concert".try_into()?;
    let four = ShardCount::new(4).ok_or("a key has at least one shard")?;
    let grown = table.maintenance().grow(&concert, four).await?;
    println!("ahead of the sale: {grown:?}");
    let seats: Vec<String> = (1..=40).map(|seat| format!("seat-{seat:02}")).collect();
    let stored =
        table.batch_put(seats.iter().map(|seat| (&concert, seat, Attributes::new()))).await;
    println!("{} seats are stored", stored.written);
    table.delete(&concert, "seat-13").await?;

    begin_to_shrink(&table, &concert).await?;
    while !is_at_rest(&look_after(&table, &concert).await?) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let left = table.query::<Attributes>(&concert).consistent(true).count().await?;
    println!("{left} seats are left, on one shard");
    table.close().await;
    Ok(())
}

/// Gives up all shards but one, once the key has kept its width for a moment.
async fn begin_to_shrink(table: &ShardedTable, key: &PartitionKey) -> Result<(), Box<dyn Error>> {
    loop {
        match table.maintenance().shrink(key, ShardCount::ONE).await {
            Ok(_) => return Ok(()),
            Err(DrainRefused::Busy(why)) => println!("not yet: {why}"),
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What a schedule does for each key.
async fn look_after(
    table: &ShardedTable,
    key: &PartitionKey,
) -> Result<ShardMetadata, Box<dyn Error>> {
    let maintenance = table.maintenance().timeout(Duration::from_secs(20));
    let metadata = maintenance.metadata(key).await?.ok_or("the key has never grown")?;
    if let Some(due) = maintenance.due(&metadata, &ShrinkAndSettle::default(), true) {
        println!("due: {due:?}");
        // Another program may have begun it first, which refuses it here.
        if let Err(DrainRefused::Table(error)) = maintenance.begin(key, due).await {
            return Err(error.into());
        }
    }
    if let Drained::Done { from, to, items } = maintenance.drain(key, &[]).await? {
        println!("from {from} to {to} shards, with {items} moves and removals");
    }
    Ok(maintenance.metadata(key).await?.ok_or("the key has never grown")?)
}

/// All items are on the first shard, and the tombstones are gone.
fn is_at_rest(metadata: &ShardMetadata) -> bool {
    metadata.read_shards == ShardCount::ONE && metadata.settled && !metadata.unpurged
}
