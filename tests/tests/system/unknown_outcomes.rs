//! A write whose answer was lost is never told as "not stored", and a point write that outlived its lease claims nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_dynamodb::config::{Credentials, IdentityCache};
use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::{clients_over, create_tables, in_process_clients};
use sharding::{
    Attributes, CapacityScope, Deadline, Environment, IdempotencyKey, Item, PartitionKey, ShardCount, ShardedTable,
    SortKey, SortKeyType, Value, WriteError, WriteErrorKind, Written,
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

fn kind(written: &Result<Written, WriteError>) -> Option<&WriteErrorKind> {
    written.as_ref().err().map(|error| &error.kind)
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
    assert!(matches!(kind(&append), Some(WriteErrorKind::Unknown(_))), "{append:?}");
    let put = bench.table.put(&item("s"), soon()).await;
    assert!(matches!(kind(&put), Some(WriteErrorKind::Capacity { .. })), "it met only throttles: {put:?}");
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
        assert!(matches!(kind(&write), Some(WriteErrorKind::Unknown(_))), "{write:?}");
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
        assert!(matches!(kind(&bench.table.create(&item, None, soon()).await), Some(WriteErrorKind::Exists)));
    }
}

/// A creator whose first request arrives late on shard 1, below the item that another created on a wider key meanwhile.
struct LateCreation {
    bench: Bench,
    item: Item,
    key: IdempotencyKey,
}

impl LateCreation {
    /// The creator gives up before its request arrives; the key grows, and `other` writes the item at its new home.
    async fn happen(other: impl AsyncFnOnce(&ShardedTable, &Item)) -> Self {
        let bench = bench(nth("PutItem", 0, Fate::Late(Duration::from_secs(4)))).await;
        let (item, key) = (item("s2"), IdempotencyKey::new("order-1147").expect("a key"));
        let first = bench.table.create(&item, Some(&key), Deadline::now() + Duration::from_millis(600)).await;
        assert!(matches!(kind(&first), Some(WriteErrorKind::Unknown(_))), "{first:?}");
        let client = in_process_clients(&InProcess::new(bench.engine.clone())).dynamodb;
        let table = ShardedTable::with_environment(&client, config(), Environment::seeded(bench.clock.clone(), 2));
        table.set_shards(&item.partition_key, ShardCount::new(8).expect("a count"), soon()).await.expect("scaled");
        let theirs = Item { attributes: value_of("theirs"), ..item.clone() };
        other(&table, &theirs).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        Self { bench, item, key }
    }

    async fn repeat(&self) -> Result<Written, WriteError> {
        self.bench.table.create(&self.item, Some(&self.key), soon()).await
    }
}

fn value_of(text: &str) -> Attributes {
    Attributes::from([("value".to_owned(), Value::S(text.to_owned()))])
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_arrives_late_below_another_is_not_acknowledged_when_repeated() {
    let late = LateCreation::happen(async |table, theirs| {
        let written = table.create(theirs, None, soon()).await.expect("nothing stood");
        assert_ne!(written.shard.get(), 1, "the item must have moved for this test to say anything");
    })
    .await;
    let repeated = late.repeat().await;
    assert!(matches!(kind(&repeated), Some(WriteErrorKind::Exists)), "two creations were acknowledged: {repeated:?}");
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_arrives_late_below_a_put_stays_unknown_when_repeated() {
    let late = LateCreation::happen(async |table, theirs| {
        table.put(theirs, soon()).await.expect("stored");
    })
    .await;
    let repeated = late.repeat().await;
    assert!(matches!(kind(&repeated), Some(WriteErrorKind::Unknown(_))), "{repeated:?}");
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_is_repeated_within_its_run_does_not_take_a_lower_copy_for_its_success() {
    let open = Arc::new(AtomicBool::new(false));
    let decided = Arc::clone(&open);
    // The first request is late; nothing else gets through until the other creation is acknowledged.
    let bench = bench(move |call| match (call.to_items, call.operation.as_str(), call.before) {
        (true, "PutItem", 0) => Fate::Late(Duration::from_secs(4)),
        (true, "PutItem" | "TransactWriteItems", _) if !decided.load(Ordering::Relaxed) => Fate::Refuse(FULL),
        _ => Fate::Pass,
    })
    .await;
    let item = item("s2");
    let (table, ours) = (bench.table.clone(), item.clone());
    let creator =
        tokio::spawn(async move { table.create(&ours, None, Deadline::now() + Duration::from_secs(15)).await });
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let client = in_process_clients(&InProcess::new(bench.engine.clone())).dynamodb;
    let table = ShardedTable::with_environment(&client, config(), Environment::seeded(bench.clock.clone(), 2));
    table.set_shards(&item.partition_key, ShardCount::new(8).expect("a count"), soon()).await.expect("scaled");
    table.create(&Item { attributes: value_of("theirs"), ..item }, None, soon()).await.expect("nothing stood");
    tokio::time::sleep(Duration::from_secs(3)).await;
    open.store(true, Ordering::Relaxed);
    let created = creator.await.expect("it does not panic");
    assert!(matches!(kind(&created), Some(WriteErrorKind::Exists)), "two creations were acknowledged: {created:?}");
}

#[tokio::test(start_paused = true)]
async fn a_delete_without_an_answer_is_not_repeated() {
    let bench = bench(nth("DeleteItem", 0, Fate::LoseAnswer)).await;
    bench.table.append(&item("s"), soon()).await.expect("stored");
    let deleted = bench.table.delete(&item("s").partition_key, &item("s").sort_key, soon()).await;
    assert!(matches!(kind(&deleted), Some(WriteErrorKind::Unknown(_))), "{deleted:?}");
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
        assert!(matches!(kind(&write), Some(WriteErrorKind::Unknown(_))), "{write:?}");
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
        matches!(&last, Err(WriteError { kind: WriteErrorKind::Capacity(CapacityScope::KeyRange), throttled, .. }) if *throttled > 0),
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

#[tokio::test(start_paused = true)]
async fn of_a_point_read_only_what_was_left_is_read_again() {
    let bench = bench(|call| match (call.operation.as_str(), call.before) {
        ("BatchGetItem", 0) => Fate::HoldBack,
        _ => Fate::Pass,
    })
    .await;
    let item = item("s2");
    bench.table.append(&item, soon()).await.expect("stored on shard 1");
    for shards in [8, 32, 128] {
        let count = ShardCount::new(shards).expect("a count");
        bench.table.set_shards(&item.partition_key, count, soon()).await.expect("scaled");
    }
    let found = bench.table.get(&item.partition_key, &item.sort_key, true, soon()).await.expect("read");
    assert_eq!(found, Some(item));
    let reads = bench.wire.calls().into_iter().filter(|call| call.to_items && call.operation.ends_with("GetItem"));
    let reads: Vec<(String, usize)> = reads.map(|call| (call.operation, call.keys)).collect();
    let expected = [("BatchGetItem".to_owned(), 4), ("GetItem".to_owned(), 0)];
    assert_eq!(reads, expected, "three of four keys were read, and one is left");
}

#[tokio::test(start_paused = true)]
async fn an_error_counts_its_attempts() {
    let bench = bench(|call| match (call.to_items, call.operation.as_str(), call.before) {
        (true, "PutItem", 0..3) => Fate::LoseAnswer,
        (true, "PutItem", _) => Fate::Refuse(FULL),
        _ => Fate::Pass,
    })
    .await;
    let failed = bench.table.append(&item("s"), soon()).await.expect_err("nothing but failures");
    let sent = bench.writes().len();
    assert_eq!(usize::try_from(failed.attempts), Ok(sent), "{failed:?}");
    assert_eq!(usize::try_from(failed.throttled), Ok(sent - 3), "{failed:?}");
}
