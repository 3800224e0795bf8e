//! A write with a lost response is never reported as "not stored". A write whose response arrives
//! after its era is inconclusive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_dynamodb::config::{Credentials, IdentityCache};
use local::clients_over;
use sharding::WriteErrorKind;
use sharding::internal::{Deadline, Environment, TableEngine};
use sharding::maintenance::Drained;
use system_tests::{
    Call, Fate, OneItem, TestClock, Wire, config, count, partition_key, soon, valued_item,
};

use crate::one_key::{Fixture, fixture, fixture_over, item, key};

const FULL: &str = r#"{"__type":"x#ThrottlingException","message":"full","throttlingReasons":[]}"#;

const DENIED: &str = r#"{"__type":"x#AccessDeniedException","message":"no"}"#;

#[tokio::test(start_paused = true)]
async fn a_rejection_after_a_lost_response_does_not_unstore_the_item() {
    for create in [false, true] {
        let decide = |call: &Call| match (call.to_items, call.operation.as_str(), call.before) {
            (true, "PutItem", 0) => Fate::LoseResponse,
            (true, "PutItem", _) => Fate::Refuse(DENIED),
            _ => Fate::Pass,
        };
        let fixture = fixture_over(decide, |_| {}).await;
        let item = item("s", 1);
        let write = if create {
            fixture.table.create(&item, None, soon()).await
        } else {
            fixture.table.put(&item, soon()).await
        };
        let kind = write.expect_err("neither is known to be stored").kind;
        assert!(matches!(kind, WriteErrorKind::Unknown(_)), "{kind:?}");
        // Without the wire and the cache.
        let other = fixture.tables.instance(2);
        let found = other.get(&item.partition_key, &item.sort_key, true, soon()).await;
        assert!(found.expect("read").is_some(), "it was stored after all");
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
        let credentials = Credentials::new("local", "local", None, None, "test");
        future::ProvideCredentials::ready(Ok(credentials))
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_whose_lease_ran_out_while_it_was_signed_is_not_sent() {
    let Fixture { tables, wire, .. } = fixture(|_| {}).await;
    let (armed, clock) = (Arc::new(AtomicBool::new(false)), tables.clock);
    let (of_signer, is_armed) = (wire.clone(), Arc::clone(&armed));
    let signer = SlowSigner { clock: clock.clone(), wire: of_signer, armed: is_armed };
    let client = clients_over(wire.clone().into_shared()).dynamodb;
    let slow = client.config().to_builder().credentials_provider(signer);
    let slow = slow.identity_cache(IdentityCache::no_cache()).build();
    let client = aws_sdk_dynamodb::Client::from_conf(slow);
    let environment = Environment::seeded(clock.clone(), 3);
    let table = TableEngine::with_environment(&client, config(), environment);
    let key = key();
    for number in 0..20 {
        table.put(&item(&format!("s{number}"), 1), soon()).await.expect("stored");
    }
    table.until(soon()).grow(&key, count(2)).await.expect("grown");
    clock.jump(Duration::from_secs(1_200));
    table.until(soon()).settle(&key).await.expect("it begins");
    let before = wire.calls().len();
    armed.store(true, Ordering::Relaxed);
    let in_time = Deadline::now() + Duration::from_secs(60);
    let drained = table.until(in_time).drain(&key, &[]).await.expect("the tables respond");
    assert!(matches!(drained, Drained::Waiting { .. }), "{drained:?}");
    assert!(!armed.load(Ordering::Relaxed), "it was frozen while it signed");
    let calls = wire.calls().split_off(before);
    let first_move =
        calls.iter().position(|call| call.to_items && call.operation == "PutItem").expect("moved");
    let query = calls[..first_move].iter().rposition(|call| call.to_items).expect("read");
    assert!(first_move > query + 1, "it was not sent before the metadata was read again");
}

#[tokio::test(start_paused = true)]
async fn no_key_is_registered_before_its_metadata_is_known_not_lost() {
    let open = Arc::new(AtomicBool::new(false));
    let decided = Arc::clone(&open);
    let decide = move |call: &Call| {
        let is_look = call.to_items && call.operation == "Query";
        if is_look && !decided.load(Ordering::Relaxed) { Fate::Refuse(FULL) } else { Fate::Pass }
    };
    let fixture = fixture_over(decide, |of_table| of_table.register_keys = true).await;
    let registered = async || {
        fixture.table.finish_background_work().await;
        let other = TableEngine::new(&fixture.tables.client, config());
        !other.until(soon()).list(None).await.expect("the list").0.is_empty()
    };
    fixture.table.put(&item("s", 1), soon()).await.expect("a write does not wait for the verdict");
    assert!(!registered().await);
    assert!(fixture.table.until(soon()).grow(&key(), count(4)).await.is_err());
    assert!(!registered().await);
    open.store(true, Ordering::Relaxed);
    fixture.table.put(&item("u", 1), soon()).await.expect("stored");
    assert!(registered().await);
}

/// The item is on shard 1, and shard 40, the last of its places, was not read.
const ONE_IS_LEFT: &str = r#"{
    "Responses": {"items": [
        {"partition_key": {"S": "k"}, "sort_key": {"S": "s2"}, "value": {"N": "1"}}
    ]},
    "UnprocessedKeys": {"items": {"Keys": [
        {"partition_key": {"S": "k\u001fs40"}, "sort_key": {"S": "s2"}}
    ]}}
}"#;

#[tokio::test(start_paused = true)]
async fn a_point_read_repeats_only_its_unprocessed_keys() {
    let decide = |call: &Call| match (call.operation.as_str(), call.before) {
        ("BatchGetItem", 0) => Fate::Answer(ONE_IS_LEFT),
        _ => Fate::Pass,
    };
    let fixture = fixture_over(decide, |_| {}).await;
    // It has a home of its own under each width.
    let item = valued_item(partition_key("k"), "s2", 1);
    fixture.table.put(&item, soon()).await.expect("stored on shard 1");
    for shards in [8, 32, 128] {
        fixture.table.until(soon()).grow(&item.partition_key, count(shards)).await.expect("scaled");
    }
    let found = fixture.table.get(&item.partition_key, &item.sort_key, true, soon()).await;
    assert_eq!(found.expect("read"), Some(item));
    let is_read = |call: &Call| call.to_items && call.operation.ends_with("GetItem");
    let reads = fixture.wire.calls().into_iter().filter(is_read);
    let reads: Vec<(String, usize)> = reads.map(|call| (call.operation, call.keys)).collect();
    let expected = [("BatchGetItem".to_owned(), 4), ("GetItem".to_owned(), 0)];
    assert_eq!(reads, expected, "three of four keys were read, and one is left");
}

#[tokio::test(start_paused = true)]
async fn an_error_counts_its_attempts() {
    let decide = |call: &Call| match (call.to_items, call.operation.as_str(), call.before) {
        (true, "PutItem", 0..3) => Fate::LoseResponse,
        (true, "PutItem", _) => Fate::Refuse(FULL),
        _ => Fate::Pass,
    };
    let fixture = fixture_over(decide, |_| {}).await;
    let deadline = Deadline::now() + Duration::from_secs(5);
    let failed =
        fixture.table.put(&item("s", 1), deadline).await.expect_err("nothing but failures");
    let sent = fixture.wire.operations().iter().filter(|operation| *operation == "PutItem").count();
    assert_eq!(usize::try_from(failed.attempts), Ok(sent), "{failed:?}");
    assert_eq!(usize::try_from(failed.throttled), Ok(sent - 3), "{failed:?}");
}
