//! A write with a lost response is never reported as "not stored". A write whose response arrives
//! after its era is inconclusive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_dynamodb::config::{Credentials, IdentityCache};
use embedded_dynamodb::{Engine, InProcess};
use local::{clients_over, in_process_clients};
use sharding::internal::{Deadline, Environment, TableEngine};
use sharding::maintenance::Drained;
use sharding::{
    Attributes, IdempotencyKey, Item, PartitionKey, SortKey, SortKeyType, TableConfig, Value,
    WriteError, WriteErrorKind, Written,
};
use system_tests::metadata::claimed_tables;
use system_tests::{Call, Fate, TestClock, Wire, config, count};

const FULL: &str = r#"{"__type":"x#ThrottlingException","message":"full","throttlingReasons":[]}"#;

const DENIED: &str = r#"{"__type":"x#AccessDeniedException","message":"no"}"#;

struct Bench {
    engine: Engine,
    wire: Wire,
    clock: TestClock,
    table: TableEngine,
}

impl Bench {
    /// The requests to the main table, without reads.
    fn writes(&self) -> Vec<String> {
        let reads = ["Query", "GetItem", "BatchGetItem"];
        self.wire
            .operations()
            .into_iter()
            .filter(|operation| !reads.contains(&operation.as_str()))
            .collect()
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
    bench_with(config(), decide).await
}

async fn bench_with(
    of_table: TableConfig,
    decide: impl Fn(&Call) -> Fate + Send + Sync + 'static,
) -> Bench {
    let engine = Engine::in_memory().expect("an engine");
    let inner = InProcess::new(engine.clone());
    claimed_tables(&in_process_clients(&inner).dynamodb, &of_table).await;
    let wire = Wire::new(inner, decide);
    let clock = TestClock::default();
    let client = clients_over(wire.clone().into_shared()).dynamodb;
    let table =
        TableEngine::with_environment(&client, of_table, Environment::seeded(clock.clone(), 1));
    Bench { engine, wire, clock, table }
}

impl Bench {
    /// Another instance on the same clock, without the wire.
    fn other(&self) -> TableEngine {
        let client = in_process_clients(&InProcess::new(self.engine.clone())).dynamodb;
        TableEngine::with_environment(&client, config(), Environment::seeded(self.clock.clone(), 2))
    }

    /// Reads without the wire and the cache.
    async fn is_stored(&self, item: &Item) -> bool {
        self.other()
            .get(&item.partition_key, &item.sort_key, true, soon())
            .await
            .expect("read")
            .is_some()
    }
}

fn nth(operation: &'static str, which: usize, fate: Fate) -> impl Fn(&Call) -> Fate + Send + Sync {
    move |call| {
        if call.to_items && call.operation == operation && call.before == which {
            fate
        } else {
            Fate::Pass
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_after_a_lost_response_does_not_unstore_the_item() {
    let bench = bench(|call| match (call.to_items, call.operation.as_str(), call.before) {
        (true, "PutItem", 0) => Fate::LoseResponse,
        (true, "PutItem", _) => Fate::Refuse(FULL),
        _ => Fate::Pass,
    })
    .await;
    let first = bench.table.put(&item("s"), soon()).await;
    assert!(matches!(kind(&first), Some(WriteErrorKind::Unknown(_))), "{first:?}");
    let second = bench.table.put(&item("s"), soon()).await;
    assert!(
        matches!(kind(&second), Some(WriteErrorKind::Capacity { .. })),
        "it met only throttles: {second:?}"
    );
    assert!(bench.writes().len() > 2, "both were repeated");
    assert!(bench.is_stored(&item("s")).await, "it was stored after all");
}

#[tokio::test(start_paused = true)]
async fn a_rejection_after_a_lost_response_does_not_unstore_the_item() {
    for create in [false, true] {
        let bench = bench(|call| match (call.to_items, call.operation.as_str(), call.before) {
            (true, "PutItem", 0) => Fate::LoseResponse,
            (true, "PutItem", _) => Fate::Refuse(DENIED),
            _ => Fate::Pass,
        })
        .await;
        let item = item("s");
        let write = if create {
            bench.table.create(&item, None, soon()).await
        } else {
            bench.table.put(&item, soon()).await
        };
        assert!(matches!(kind(&write), Some(WriteErrorKind::Unknown(_))), "{write:?}");
        assert!(bench.is_stored(&item).await, "it was stored after all");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_knows_its_own_item_after_a_lost_response() {
    for shards in [1, 8] {
        let bench = bench(nth("PutItem", 0, Fate::LoseResponse)).await;
        let item = item("s2");
        bench.table.set_shards(&item.partition_key, count(shards), soon()).await.expect("scaled");
        let written =
            bench.table.create(&item, None, soon()).await.expect("it recognizes its own item");
        assert_eq!(written.attempts, 2, "{shards} shards");
        assert!(matches!(
            kind(&bench.table.create(&item, None, soon()).await),
            Some(WriteErrorKind::Exists)
        ));

        let bench = self::bench(nth("PutItem", 0, Fate::LoseResponse)).await;
        bench.table.set_shards(&item.partition_key, count(shards), soon()).await.expect("scaled");
        let written = bench.table.put(&item, soon()).await.expect("stored by the first attempt");
        assert_eq!(written.attempts, 2, "{shards} shards");
    }
}

/// A repetition that finds a later write of another client must not replace it, because its first
/// attempt may have been read.
#[tokio::test(start_paused = true)]
async fn a_repeated_put_does_not_replace_a_write_after_its_first() {
    let open = Arc::new(AtomicBool::new(false));
    let decided = Arc::clone(&open);
    let bench = bench(move |call| match (call.to_items, call.operation.as_str(), call.before) {
        (true, "PutItem", 0) => Fate::LoseResponse,
        (true, "PutItem", _) if !decided.load(Ordering::Relaxed) => Fate::Refuse(FULL),
        _ => Fate::Pass,
    })
    .await;
    let item = Item { attributes: value_of("ours"), ..item("s") };
    let (table, ours) = (bench.table.clone(), item.clone());
    let writer =
        tokio::spawn(
            async move { table.put(&ours, Deadline::now() + Duration::from_secs(10)).await },
        );
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let theirs = Item { attributes: value_of("theirs"), ..item.clone() };
    bench.other().put(&theirs, soon()).await.expect("stored above it");
    open.store(true, Ordering::Relaxed);
    let repeated = writer.await.expect("it does not panic");
    assert!(matches!(kind(&repeated), Some(WriteErrorKind::Unknown(_))), "{repeated:?}");
    let found =
        bench.other().get(&item.partition_key, &item.sort_key, true, soon()).await.expect("read");
    assert_eq!(found, Some(theirs));
}

/// A creation whose first request arrives late on shard 1, below the versions that others have
/// written to the wider key.
struct LateCreation {
    bench: Bench,
    item: Item,
    key: IdempotencyKey,
}

impl LateCreation {
    /// Runs the scenario: the creator gives up before its request arrives, the key grows, and
    /// `other` changes the item at its new home.
    async fn happen(other: impl AsyncFnOnce(&TableEngine, &Item)) -> Self {
        let bench = bench(nth("PutItem", 0, Fate::Late(Duration::from_secs(9)))).await;
        let (item, key) = (item("s2"), IdempotencyKey::new("order-1147").expect("a key"));
        let first = bench
            .table
            .create(&item, Some(&key), Deadline::now() + Duration::from_millis(600))
            .await;
        assert!(matches!(kind(&first), Some(WriteErrorKind::Unknown(_))), "{first:?}");
        let table = bench.other();
        table.set_shards(&item.partition_key, count(8), soon()).await.expect("scaled");
        let theirs = Item { attributes: value_of("theirs"), ..item.clone() };
        other(&table, &theirs).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
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
async fn a_late_creation_below_another_write_is_not_acknowledged() {
    for creates in [true, false] {
        let late = LateCreation::happen(async |table, theirs| {
            let written = if creates {
                table.create(theirs, None, soon()).await
            } else {
                table.put(theirs, soon()).await
            };
            let written = written.expect("nothing stood");
            assert_ne!(written.shard, 1, "the item must have moved for this test to be meaningful");
        })
        .await;
        let repeated = late.repeat().await;
        assert!(
            matches!(kind(&repeated), Some(WriteErrorKind::Unknown(_))),
            "both were acknowledged: {repeated:?}"
        );
        let table = late.bench.other();
        let found = table
            .get(&late.item.partition_key, &late.item.sort_key, true, soon())
            .await
            .expect("read");
        assert_eq!(found.map(|item| item.attributes), Some(value_of("theirs")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_under_a_tombstone_is_not_made_again_when_repeated() {
    let late = LateCreation::happen(async |table, theirs| {
        table.put(theirs, soon()).await.expect("stored");
        tokio::time::sleep(Duration::from_secs(3)).await;
        // During a drain, every deletion leaves a tombstone.
        table.begin_settle(&theirs.partition_key, soon()).await.expect("it begins");
        table.delete(&theirs.partition_key, &theirs.sort_key, soon()).await.expect("deleted");
    })
    .await;
    assert!(!late.bench.is_stored(&late.item).await, "it arrived below the tombstone");
    late.repeat().await.expect("an earlier attempt has stored it, and it was deleted since");
    assert!(
        !late.bench.is_stored(&late.item).await,
        "a repetition after a deletion creates nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_creation_is_unknown_once_the_width_has_changed() {
    let open = Arc::new(AtomicBool::new(false));
    let decided = Arc::clone(&open);
    // The first request is late. No other request of it passes until the other creation is
    // acknowledged.
    let bench = bench(move |call| match (call.to_items, call.operation.as_str(), call.before) {
        (true, "PutItem", 0) => Fate::Late(Duration::from_secs(4)),
        (true, "PutItem", _) if !decided.load(Ordering::Relaxed) => Fate::Refuse(FULL),
        _ => Fate::Pass,
    })
    .await;
    let item = item("s2");
    let (table, ours) = (bench.table.clone(), item.clone());
    let creator = tokio::spawn(async move {
        table.create(&ours, None, Deadline::now() + Duration::from_secs(15)).await
    });
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let table = bench.other();
    table.set_shards(&item.partition_key, count(8), soon()).await.expect("scaled");
    table
        .create(&Item { attributes: value_of("theirs"), ..item }, None, soon())
        .await
        .expect("nothing stood");
    tokio::time::sleep(Duration::from_secs(3)).await;
    open.store(true, Ordering::Relaxed);
    let created = creator.await.expect("it does not panic");
    assert!(
        matches!(kind(&created), Some(WriteErrorKind::Unknown(_))),
        "both were acknowledged: {created:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_plain_deletion_without_a_response_is_not_repeated() {
    let bench = bench(nth("DeleteItem", 0, Fate::LoseResponse)).await;
    bench.table.put(&item("s"), soon()).await.expect("stored");
    let deleted = bench.table.delete(&item("s").partition_key, &item("s").sort_key, soon()).await;
    assert!(matches!(kind(&deleted), Some(WriteErrorKind::Unknown(_))), "{deleted:?}");
    assert_eq!(bench.writes(), ["PutItem", "DeleteItem"]);
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_without_a_response_is_put_again() {
    // The first put stores the item on shard 1. The second put is the tombstone at its new home.
    let bench = bench(nth("PutItem", 1, Fate::LoseResponse)).await;
    let item = item("s2");
    bench.table.put(&item, soon()).await.expect("stored");
    bench.table.set_shards(&item.partition_key, count(8), soon()).await.expect("scaled");
    let deleted =
        bench.table.delete(&item.partition_key, &item.sort_key, soon()).await.expect("deleted");
    assert_eq!((deleted.attempts, bench.writes().len()), (2, 3), "{:?}", bench.writes());
    assert_ne!(deleted.shard, 1, "the item must have moved for this test to be meaningful");
    assert!(!bench.is_stored(&item).await);
}

#[tokio::test(start_paused = true)]
async fn a_response_after_the_lease_counts_while_the_era_lasts() {
    let bench = bench(|_| Fate::Pass).await;
    let clock = bench.clock.clone();
    let client = clients_over(
        Wire::new(InProcess::new(bench.engine.clone()), move |call| {
            // The process is frozen while the request is in flight.
            if call.to_items && ["PutItem", "DeleteItem"].contains(&call.operation.as_str()) {
                clock.jump(Duration::from_secs(2));
            }
            Fate::Pass
        })
        .into_shared(),
    )
    .dynamodb;
    let table = TableEngine::with_environment(
        &client,
        config(),
        Environment::seeded(bench.clock.clone(), 3),
    );
    let item = item("s");
    table.create(&item, None, soon()).await.expect("created");
    let again = table.create(&item, None, soon()).await;
    assert!(matches!(kind(&again), Some(WriteErrorKind::Exists)), "{again:?}");
    table.put(&item, soon()).await.expect("put");
    table.delete(&item.partition_key, &item.sort_key, soon()).await.expect("deleted");
}

#[tokio::test(start_paused = true)]
async fn a_response_after_the_era_is_inconclusive() {
    for kind_of_write in ["put", "create", "delete"] {
        // The response takes two seconds. Meanwhile the key grows.
        let bench = bench(|call| match (call.to_items, call.operation.as_str()) {
            (true, "PutItem" | "DeleteItem") => Fate::Delay(Duration::from_secs(2)),
            _ => Fate::Pass,
        })
        .await;
        let (table, item) = (bench.table.clone(), item("s2"));
        let late = tokio::spawn(async move {
            match kind_of_write {
                "put" => table.put(&item, soon()).await,
                "create" => table.create(&item, None, soon()).await,
                _ => table.delete(&item.partition_key, &item.sort_key, soon()).await,
            }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench
            .other()
            .set_shards(&self::item("s2").partition_key, count(8), soon())
            .await
            .expect("scaled");
        let late = late.await.expect("it does not panic");
        assert!(
            matches!(kind(&late), Some(WriteErrorKind::Unknown(_))),
            "{kind_of_write}: {late:?}"
        );
    }
}

/// The SDK gets credentials when it signs a request. Once armed, the process is frozen there after
/// the next query of a shard.
#[derive(Debug)]
struct SlowSigner {
    clock: TestClock,
    wire: Wire,
    armed: Arc<AtomicBool>,
}

impl ProvideCredentials for SlowSigner {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let is_next =
            self.wire.calls().last().is_some_and(|call| call.to_items && call.operation == "Query");
        if is_next && self.armed.swap(false, Ordering::Relaxed) {
            self.clock.jump(Duration::from_secs(2));
        }
        future::ProvideCredentials::ready(Ok(Credentials::new(
            "local", "local", None, None, "test",
        )))
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_whose_lease_ran_out_while_it_was_signed_is_not_sent() {
    let bench = bench(|_| Fate::Pass).await;
    let armed = Arc::new(AtomicBool::new(false));
    let signer = SlowSigner {
        clock: bench.clock.clone(),
        wire: bench.wire.clone(),
        armed: Arc::clone(&armed),
    };
    let client = clients_over(bench.wire.clone().into_shared()).dynamodb;
    let slow = client
        .config()
        .to_builder()
        .credentials_provider(signer)
        .identity_cache(IdentityCache::no_cache())
        .build();
    let client = aws_sdk_dynamodb::Client::from_conf(slow);
    let table = TableEngine::with_environment(
        &client,
        config(),
        Environment::seeded(bench.clock.clone(), 3),
    );
    let key = item("s").partition_key;
    for number in 0..20 {
        table.put(&item(&format!("s{number}")), soon()).await.expect("stored");
    }
    table.set_shards(&key, count(2), soon()).await.expect("grown");
    bench.clock.jump(Duration::from_secs(1_200));
    table.begin_settle(&key, soon()).await.expect("it begins");
    let before = bench.wire.calls().len();
    armed.store(true, Ordering::Relaxed);
    let drained = table
        .drain(&key, Deadline::now() + Duration::from_secs(60))
        .await
        .expect("the tables respond");
    assert!(matches!(drained, Drained::Waiting { .. }), "{drained:?}");
    assert!(!armed.load(Ordering::Relaxed), "it was frozen while it signed");
    let calls = bench.wire.calls().split_off(before);
    let first_move =
        calls.iter().position(|call| call.to_items && call.operation == "PutItem").expect("moved");
    let query = calls[..first_move].iter().rposition(|call| call.to_items).expect("read");
    assert!(
        first_move > query + 1,
        "the early request was not sent before the metadata was read again"
    );
}

#[tokio::test(start_paused = true)]
async fn no_key_is_registered_before_its_metadata_is_known_not_lost() {
    let open = Arc::new(AtomicBool::new(false));
    let decided = Arc::clone(&open);
    let registering = config().with(|config| config.register_keys = true);
    let bench = bench_with(registering, move |call| {
        let is_look = call.to_items && call.operation == "Query";
        if is_look && !decided.load(Ordering::Relaxed) { Fate::Refuse(FULL) } else { Fate::Pass }
    })
    .await;
    let registered = async || {
        bench.table.finish_background_work().await;
        let other = TableEngine::new(
            &in_process_clients(&InProcess::new(bench.engine.clone())).dynamodb,
            config(),
        );
        !other.list_keys(None, soon()).await.expect("the list").0.is_empty()
    };
    bench.table.put(&item("s"), soon()).await.expect("a write does not wait for the verdict");
    assert!(!registered().await);
    assert!(bench.table.set_shards(&item("s").partition_key, count(4), soon()).await.is_err());
    assert!(!registered().await);
    open.store(true, Ordering::Relaxed);
    bench.table.put(&item("u"), soon()).await.expect("stored");
    assert!(registered().await);
}

#[tokio::test(start_paused = true)]
async fn a_point_read_repeats_only_its_unprocessed_keys() {
    let bench = bench(|call| match (call.operation.as_str(), call.before) {
        ("BatchGetItem", 0) => Fate::HoldBack,
        _ => Fate::Pass,
    })
    .await;
    let item = item("s2");
    bench.table.put(&item, soon()).await.expect("stored on shard 1");
    for shards in [8, 32, 128] {
        bench.table.set_shards(&item.partition_key, count(shards), soon()).await.expect("scaled");
    }
    let found =
        bench.table.get(&item.partition_key, &item.sort_key, true, soon()).await.expect("read");
    assert_eq!(found, Some(item));
    let reads = bench
        .wire
        .calls()
        .into_iter()
        .filter(|call| call.to_items && call.operation.ends_with("GetItem"));
    let reads: Vec<(String, usize)> = reads.map(|call| (call.operation, call.keys)).collect();
    let expected = [("BatchGetItem".to_owned(), 4), ("GetItem".to_owned(), 0)];
    assert_eq!(reads, expected, "three of four keys were read, and one is left");
}

#[tokio::test(start_paused = true)]
async fn an_error_counts_its_attempts() {
    let bench = bench(|call| match (call.to_items, call.operation.as_str(), call.before) {
        (true, "PutItem", 0..3) => Fate::LoseResponse,
        (true, "PutItem", _) => Fate::Refuse(FULL),
        _ => Fate::Pass,
    })
    .await;
    let failed = bench.table.put(&item("s"), soon()).await.expect_err("nothing but failures");
    let sent = bench.writes().len();
    assert_eq!(usize::try_from(failed.attempts), Ok(sent), "{failed:?}");
    assert_eq!(usize::try_from(failed.throttled), Ok(sent - 3), "{failed:?}");
}
