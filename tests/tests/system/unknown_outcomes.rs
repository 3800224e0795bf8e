//! A write whose answer was lost is never told as "not stored", and a point write that outlived its lease claims nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_dynamodb::config::{Credentials, IdentityCache};
use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::{clients_over, create_tables, in_process_clients};
use sharding::{
    Attributes, CapacityScope, Deadline, Environment, Item, PartitionKey, ShardCount, ShardedTable, SortKey,
    SortKeyType, WriteError,
};
use system_tests::{Call, Fate, TestClock, Wire, config};

const FULL: &str = r#"{"__type":"x#ThrottlingException","message":"full","throttlingReasons":[]}"#;

const DENIED: &str = r#"{"__type":"x#AccessDeniedException","message":"no"}"#;

struct Bench {
    engine: Engine,
    wire: Wire,
    clock: TestClock,
    table: ShardedTable,
}

impl Bench {
    /// What was sent to the main table, but for the look at whether a new key's metadata is lost.
    fn writes(&self) -> Vec<String> {
        self.wire.operations().into_iter().filter(|operation| operation != "Query").collect()
    }
}

fn item(sort_key: &str) -> Item {
    let partition_key = PartitionKey::new("k").expect("a key");
    let sort_key = SortKey::parse(SortKeyType::String, sort_key).expect("a sort key");
    Item { partition_key, sort_key, attributes: Attributes::new() }
}

fn soon() -> Deadline {
    Deadline::now() + Duration::from_secs(5)
}

async fn bench(decide: impl Fn(&Call) -> Fate + Send + Sync + 'static) -> Bench {
    let engine = Engine::in_memory().expect("an engine");
    let inner = InProcess::new(engine.clone());
    create_tables(&in_process_clients(&inner).dynamodb, &config()).await.expect("tables");
    let wire = Wire::new(inner, decide);
    let clock = TestClock::default();
    let client = clients_over(wire.clone().into_shared()).dynamodb;
    let table = ShardedTable::with_environment(&client, config(), Environment::seeded(clock.clone(), 1));
    Bench { engine, wire, clock, table }
}

impl Bench {
    /// Reads past the wire and the cache.
    async fn stands(&self, item: &Item) -> bool {
        let other = ShardedTable::new(&in_process_clients(&InProcess::new(self.engine.clone())).dynamodb, config());
        other.get(&item.partition_key, &item.sort_key, true, soon()).await.expect("read").is_some()
    }
}

fn nth(operation: &'static str, which: usize, fate: Fate) -> impl Fn(&Call) -> Fate + Send + Sync {
    move |call| if call.to_items && call.operation == operation && call.before == which { fate } else { Fate::Pass }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_after_a_lost_answer_does_not_make_the_item_unstored() {
    let bench = bench(|call| match (call.to_items, call.operation.as_str(), call.before) {
        (true, "PutItem", 0) => Fate::LoseAnswer,
        (true, "PutItem", _) => Fate::Refuse(FULL),
        _ => Fate::Pass,
    })
    .await;
    let append = bench.table.append(&item("s"), soon()).await;
    assert!(matches!(append, Err(WriteError::Unknown(_))), "{append:?}");
    let put = bench.table.put(&item("s"), soon()).await;
    assert!(matches!(put, Err(WriteError::Capacity { .. })), "it met only throttles: {put:?}");
    assert!(bench.wire.operations().len() > 2, "both were repeated");
    assert!(bench.stands(&item("s")).await, "it was stored after all");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_good_after_a_lost_answer_does_not_make_the_item_unstored() {
    for put in [false, true] {
        let bench = bench(|call| match (call.to_items, call.operation.as_str(), call.before) {
            (true, "PutItem", 0) => Fate::LoseAnswer,
            (true, "PutItem", _) => Fate::Refuse(DENIED),
            _ => Fate::Pass,
        })
        .await;
        let item = item("s");
        let write = if put { bench.table.put(&item, soon()).await } else { bench.table.append(&item, soon()).await };
        assert!(matches!(write, Err(WriteError::Unknown(_))), "{write:?}");
        assert!(bench.stands(&item).await, "it was stored after all");
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_only_write_knows_its_own_item_after_a_lost_answer() {
    for shards in [1, 8] {
        let operation = if shards == 1 { "PutItem" } else { "TransactWriteItems" };
        let bench = bench(nth(operation, 0, Fate::LoseAnswer)).await;
        let key = PartitionKey::new("k").expect("a key");
        let count = ShardCount::new(shards).expect("a count");
        bench.table.set_shards(&key, count, soon()).await.expect("scaled");
        let item = item("s2");
        let written = bench.table.create(&item, None, soon()).await.expect("its own item is no other's");
        assert_eq!(written.attempts, 2, "{shards} shards");
        assert!(matches!(bench.table.create(&item, None, soon()).await, Err(WriteError::Exists)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_without_an_answer_is_not_repeated() {
    let bench = bench(nth("DeleteItem", 0, Fate::LoseAnswer)).await;
    bench.table.append(&item("s"), soon()).await.expect("stored");
    let deleted = bench.table.delete(&item("s").partition_key, &item("s").sort_key, soon()).await;
    assert!(matches!(deleted, Err(WriteError::Unknown(_))), "{deleted:?}");
    assert_eq!(bench.writes(), ["PutItem", "DeleteItem"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_lease_claims_nothing() {
    let bench = bench(|_| Fate::Pass).await;
    let clock = bench.clock.clone();
    let client = clients_over(
        Wire::new(InProcess::new(bench.engine.clone()), move |call| {
            // The process is frozen while the request is on its way.
            if call.to_items && call.operation != "GetItem" {
                clock.jump(Duration::from_secs(2));
            }
            Fate::Pass
        })
        .into_shared(),
    )
    .dynamodb;
    let table = ShardedTable::with_environment(&client, config(), Environment::seeded(bench.clock.clone(), 2));
    let item = item("s");
    for write in [
        table.create(&item, None, soon()).await,
        table.create(&item, None, soon()).await,
        table.put(&item, soon()).await,
        table.delete(&item.partition_key, &item.sort_key, soon()).await,
    ] {
        assert!(matches!(write, Err(WriteError::Unknown(_))), "{write:?}");
    }
}

/// Credentials are asked for when a request is signed; the process is frozen there, once.
#[derive(Debug)]
struct SlowSigner {
    clock: TestClock,
    armed: Arc<AtomicBool>,
}

impl ProvideCredentials for SlowSigner {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        if self.armed.swap(false, Ordering::Relaxed) {
            self.clock.jump(Duration::from_secs(2));
        }
        future::ProvideCredentials::ready(Ok(Credentials::new("local", "local", None, None, "test")))
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_while_signing_sends_nothing() {
    let bench = bench(|_| Fate::Pass).await;
    let armed = Arc::new(AtomicBool::new(false));
    let signer = SlowSigner { clock: bench.clock.clone(), armed: Arc::clone(&armed) };
    let client = clients_over(bench.wire.clone().into_shared()).dynamodb;
    let slow =
        client.config().to_builder().credentials_provider(signer).identity_cache(IdentityCache::no_cache()).build();
    let client = aws_sdk_dynamodb::Client::from_conf(slow);
    let table = ShardedTable::with_environment(&client, config(), Environment::seeded(bench.clock.clone(), 3));
    table.put(&item("s"), soon()).await.expect("stored, and the view is in the cache");
    assert_eq!(bench.writes(), ["PutItem"]);
    bench.clock.jump(Duration::from_millis(1));
    armed.store(true, Ordering::Relaxed);
    let written = table.put(&item("s"), soon()).await.expect("stored under a view that was read anew");
    assert!(!armed.load(Ordering::Relaxed), "it was frozen while it signed");
    assert_eq!((written.attempts, bench.writes().len()), (1, 2), "what was signed too early was not sent");
}

#[tokio::test(start_paused = true)]
async fn a_throttled_transaction_learns_its_reason() {
    let bench = bench(|_| Fate::Pass).await;
    let key = PartitionKey::new("k").expect("a key");
    bench.table.set_shards(&key, ShardCount::new(8).expect("a count"), soon()).await.expect("scaled");
    let limits = PartitionLimits { partitions: 1, write_units: 0.001, ..PartitionLimits::default() };
    bench.engine.set_limits([("items".to_owned(), limits)]);
    let mut last = None;
    for number in 0..400 {
        last = Some(bench.table.put(&item(&format!("s{number}")), Deadline::now() + Duration::from_secs(1)).await);
        if last.as_ref().is_some_and(Result::is_err) {
            break;
        }
    }
    let last = last.expect("a put was made");
    assert!(
        matches!(last, Err(WriteError::Capacity { scope: CapacityScope::KeyRange, throttled }) if throttled > 0),
        "{last:?}"
    );
    assert!(bench.wire.operations().contains(&"DeleteItem".to_owned()), "by a single write that changes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_not_registered_before_it_is_known_that_its_metadata_is_not_lost() {
    let open = Arc::new(AtomicBool::new(false));
    let decided = Arc::clone(&open);
    let bench = bench(move |call| {
        let is_look = call.to_items && call.operation == "Query";
        if is_look && !decided.load(Ordering::Relaxed) { Fate::Refuse(FULL) } else { Fate::Pass }
    })
    .await;
    let registered = async || {
        bench.table.finish_background_work().await;
        let other = ShardedTable::new(&in_process_clients(&InProcess::new(bench.engine.clone())).dynamodb, config());
        !other.list_keys(None, soon()).await.expect("the list").0.is_empty()
    };
    bench.table.append(&item("s"), soon()).await.expect("a plain append needs no metadata");
    assert!(!registered().await);
    bench.table.put(&item("t"), soon()).await.expect("no verdict stops no write");
    assert!(
        bench
            .table
            .set_shards(&item("s").partition_key, sharding::ShardCount::new(4).expect("a count"), soon())
            .await
            .is_err()
    );
    assert!(!registered().await);
    open.store(true, Ordering::Relaxed);
    bench.table.append(&item("u"), soon()).await.expect("stored");
    assert!(registered().await);
}
