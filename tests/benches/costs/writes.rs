//! A write of a warm key beside a bare PutItem of the same item; and how many point writes a grown key takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::{clients_over, create_tables, in_process_clients};
use sharding::{
    Attributes, Clock, Deadline, Environment, Item, Moment, PartitionKey, ShardCount, ShardedTable, SortKey,
    SortKeyType, Value,
};
use system_tests::config;
use tokio::task::JoinSet;

/// Answers at once, the same to every request: a key that is registered, with one shard.
#[derive(Debug, Clone)]
struct AtOnce;

impl HttpClient for AtOnce {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for AtOnce {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let is_get = request.headers().get("x-amz-target").is_some_and(|target| target.ends_with("GetItem"));
        let body = if is_get {
            r#"{"Item":{"partition_key":{"S":"k"},"number_of_shards":{"N":"1"},"last_updated":{"N":"1"},"shard_history":{"SS":["1:1"]},"generation":{"N":"1"}}}"#
        } else {
            "{}"
        };
        let response = 200.try_into().map(|status| HttpResponse::new(status, SdkBody::from(body)));
        HttpConnectorFuture::ready(
            response
                .map_err(|error| aws_smithy_runtime_api::client::result::ConnectorError::other(Box::new(error), None)),
        )
    }
}

fn item(number: usize) -> Item {
    let attributes = Attributes::from([
        ("path".to_owned(), Value::S("/shared/firetvGen2.txt".into())),
        ("bytes".to_owned(), Value::N("1024".into())),
        ("filler".to_owned(), Value::S("x".repeat(800))),
    ]);
    let sort_key = SortKey::parse(SortKeyType::String, &format!("{number:012}")).expect("a sort key");
    Item { partition_key: PartitionKey::new("k").expect("a key"), sort_key, attributes }
}

/// What a user of the SDK writes without this product.
async fn bare(client: &Client, number: usize) {
    client
        .put_item()
        .table_name("items")
        .item("partition_key", AttributeValue::S("k".into()))
        .item("sort_key", AttributeValue::S(format!("{number:012}")))
        .item("path", AttributeValue::S("/shared/firetvGen2.txt".into()))
        .item("bytes", AttributeValue::N("1024".into()))
        .item("filler", AttributeValue::S("x".repeat(800)))
        .send()
        .await
        .expect("stored");
}

async fn ours(table: &ShardedTable, item: &Item) {
    table.append(item, Deadline::now() + Duration::from_secs(5)).await.expect("stored");
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the time")]
fn now() -> Instant {
    Instant::now()
}

/// One side of the comparison, run by the benchmark under valgrind.
pub(crate) fn run_side(side: &str) {
    let times = std::env::var(crate::instructions::TIMES).ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = clients_over(SharedHttpClient::new(AtOnce)).dynamodb;
    runtime.block_on(async {
        // Under valgrind a second passes quickly; the clock of a warm key stands, so that no view ages.
        let table = ShardedTable::with_environment(&client, config(), Environment::seeded(StandingClock, 1));
        ours(&table, &item(0)).await;
        table.finish_background_work().await;
        for number in 0..times {
            match side {
                "bare" => bare(&client, number).await,
                _ => ours(&table, &item(number)).await,
            }
        }
    });
}

struct StandingClock;

impl Clock for StandingClock {
    fn now(&self) -> Moment {
        Moment { monotonic: Duration::from_secs(1), wall: Duration::from_secs(1_764_000_000) }
    }
}

pub(crate) fn instructions() {
    println!("instructions of a write of a warm key, against a connector that answers at once");
    let counts = crate::instructions::per_operation("bare").zip(crate::instructions::per_operation("ours"));
    match counts {
        Some((bare, ours)) => println!("  bare PutItem {bare:.0}, ours {ours:.0}: {:.3} (target 1.15)", ours / bare),
        None => println!("  not counted: valgrind is not installed"),
    }
}

pub(crate) async fn latency() {
    let engine = Engine::in_memory().expect("an engine");
    let limits = PartitionLimits { partitions: 1, write_units: 1e9, read_units: 1e9, ..PartitionLimits::default() };
    engine.set_limits([("items".to_owned(), limits)]);
    create_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &config()).await.expect("tables");
    let client = in_process_clients(&InProcess::new(engine).with_service_time(crate::SERVICE_TIME)).dynamodb;
    let table = ShardedTable::new(&client, config());
    ours(&table, &item(0)).await;
    table.finish_background_work().await;
    let (mut of_bare, mut warm, mut cold, mut cold_reads) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 1..400 {
        let begun = now();
        bare(&client, number).await;
        of_bare.push(begun.elapsed());
        let item = item(number);
        let begun = now();
        ours(&table, &item).await;
        warm.push(begun.elapsed());
        let unseen = Item { partition_key: PartitionKey::new(&format!("unseen-{number}")).expect("a key"), ..item };
        let begun = now();
        ours(&table, &unseen).await;
        cold.push(begun.elapsed());
        table.finish_background_work().await;
        let never = PartitionKey::new(&format!("never-{number}")).expect("a key");
        let begun = now();
        let read = table.get(&never, &unseen.sort_key, true, Deadline::now() + Duration::from_secs(5)).await;
        cold_reads.push(begun.elapsed());
        assert!(read.expect("read").is_none());
    }
    let [bare, warm, cold, reads] = [of_bare, warm, cold, cold_reads].map(crate::median);
    println!("latency with {:?} service time, medians in ms", crate::SERVICE_TIME);
    println!("  bare PutItem {bare:.2}; a write of a warm key {warm:.2}: {:.2} (target 1.10)", warm / bare);
    println!(
        "  a write of a key never seen {cold:.2}: {:.2}; a read of one {reads:.2}: {:.2} (one round trip each)",
        cold / bare,
        reads / bare
    );
}

/// Puts of different items of one key, as many as go through in a few seconds.
pub(crate) async fn point_write_ceiling() {
    const SECONDS: u64 = 5;
    println!("puts a second that a key takes, on partitions of 1,000 write units a second, after the burst is used up");
    for width in [1u32, 4, 16] {
        let engine = Engine::in_memory().expect("an engine");
        let limits = PartitionLimits { partitions: 256, ..PartitionLimits::default() };
        engine.set_limits([("items".to_owned(), limits)]);
        let client = in_process_clients(&InProcess::new(engine)).dynamodb;
        create_tables(&client, &config()).await.expect("tables");
        let config = sharding::TableConfig { scaling: sharding::ScalingActors::Alarm, ..config() };
        let table = ShardedTable::new(&client, config);
        let (key, count) = (PartitionKey::new("k").expect("a key"), ShardCount::new(width).expect("a count"));
        table.set_shards(&key, count, Deadline::now() + Duration::from_secs(30)).await.expect("scaled");
        let (stored, next) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut clients = JoinSet::new();
        // What the partitions have saved is used up first, and does not count.
        let counts_from = Deadline::now() + Duration::from_secs(2 * SECONDS);
        let until = counts_from + Duration::from_secs(SECONDS);
        for _ in 0..64 {
            let (table, stored, next) = (table.clone(), Arc::clone(&stored), Arc::clone(&next));
            clients.spawn(async move {
                while Deadline::now() < until {
                    let number = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let small = Item { attributes: Attributes::new(), ..item(number) };
                    if table.put(&small, until).await.is_ok() && Deadline::now() > counts_from {
                        stored.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        clients.join_all().await;
        println!("  {width:3} shards: {:6.0}", stored.load(Ordering::Relaxed) as f64 / SECONDS as f64);
    }
}
