//! What the shard-scaler's schedule begins by itself, and what it does not: in virtual time, over the embedded engine.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use embedded_dynamodb::{Engine, InProcess};
use local::{clients_over, create_tables, in_process_clients};
use serde_json::json;
use shard_scaler::{Clients, Failed, Scaler, ScalerConfig};
use sharding::{
    Attributes, Clock, Deadline, Drained, Environment, Item, PartitionKey, ShardMetadata, ShardedTable, TableConfig,
    Value,
};
use system_tests::{Fate, TestClock, Wire, config, count, numbered, soon, sort_key};
use tokio::time::sleep;

fn key() -> PartitionKey {
    PartitionKey::new("2014-07-09").expect("a key")
}

fn item(text: &str, bytes: usize) -> Item {
    let attributes = Attributes::from([("value".to_owned(), Value::S("x".repeat(bytes)))]);
    Item { partition_key: key(), sort_key: sort_key(text), attributes }
}

struct Fixture {
    engine: Engine,
    table: ShardedTable,
    scaler: Scaler,
    wire: Wire,
    clock: TestClock,
}

async fn fixture(change: impl FnOnce(&mut TableConfig, &mut ScalerConfig)) -> Fixture {
    let engine = Engine::in_memory().expect("an engine");
    create_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &config()).await.expect("tables");
    let wire = Wire::new(InProcess::new(engine.clone()), |_| Fate::Pass);
    let (mut of_table, mut of_scaler) = (config(), ScalerConfig::default());
    change(&mut of_table, &mut of_scaler);
    let clock = TestClock::default();
    let client = clients_over(wire.clone().into_shared()).dynamodb;
    let table = ShardedTable::with_environment(&client, of_table, Environment::seeded(clock.clone(), 7));
    let clients = in_process_clients(&InProcess::new(engine.clone()));
    let clients = Clients { dynamodb: clients.dynamodb, cloudwatch: clients.cloudwatch };
    let scaler = Scaler::new(table.clone(), clients, of_scaler);
    Fixture { engine, table, scaler, wire, clock }
}

impl Fixture {
    async fn grow(&self, to: u32) {
        self.table.set_shards(&key(), count(to), soon()).await.expect("grown");
        sleep(Duration::from_secs(5)).await;
    }

    async fn append(&self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.table.append(&item(&text, 1), soon()).await.expect("stored");
        }
    }

    async fn metadata(&self) -> ShardMetadata {
        sleep(Duration::from_secs(1)).await;
        self.table.shards(&key(), soon()).await.expect("an answer").expect("metadata")
    }

    /// What a run of the schedule answers.
    async fn scheduled(&self) -> serde_json::Value {
        let now = self.clock.now().epoch_seconds();
        let handled =
            self.scaler.handle(&json!({"action": "drain"}), now, Deadline::now() + Duration::from_secs(59)).await;
        handled.unwrap_or_else(Failed::into_answer)
    }

    /// The schedule runs every minute until nothing is drained.
    async fn until_drained(&self) -> serde_json::Value {
        for _ in 0..200 {
            let told = self.scheduled().await;
            if !self.metadata().await.draining {
                return told;
            }
            sleep(Duration::from_secs(59)).await;
        }
        panic!("the drain does not end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_gives_up_half_of_its_shards_when_its_demand_has_been_low_for_long_and_not_before() {
    let fixture = fixture(|_, scaler| scaler.shrink_after = Duration::from_secs(600)).await;
    fixture.append(numbered(0..1)).await;
    fixture.grow(2).await;
    // 100 write units a second, far longer than the key would be left alone without them.
    for minute in 0..25 {
        for number in 0..300 {
            fixture.table.append(&item(&format!("order-{number:04}"), 20_000), soon()).await.expect("stored");
            sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(fixture.scheduled().await["draining"], 0, "minute {minute}");
    }
    let busy_until = fixture.clock.now().epoch_seconds();
    let mut begun_at = None;
    while begun_at.is_none() && fixture.clock.now().epoch_seconds() < busy_until + 1_200 {
        for _ in 0..6 {
            fixture.table.append(&item("order-0000", 20_000), soon()).await.expect("stored");
            sleep(Duration::from_secs(10)).await;
        }
        if fixture.scheduled().await["draining"] == 1 {
            begun_at = Some(fixture.clock.now().epoch_seconds() - busy_until);
        }
    }
    assert!(begun_at.is_some_and(|after| (540..=840).contains(&after)), "{begun_at:?}");
    let told = fixture.until_drained().await;
    assert_eq!(told["keys"][0]["outcome"], "done", "{told}");
    let metadata = fixture.metadata().await;
    assert_eq!((metadata.number_of_shards, metadata.read_shards), (count(1), count(1)));
}

#[tokio::test(start_paused = true)]
async fn a_key_gives_up_no_more_than_half_in_one_window() {
    let fixture = fixture(|_, scaler| scaler.shrink_after = Duration::from_secs(3_600)).await;
    fixture.append(numbered(0..40)).await;
    fixture.grow(16).await;
    let mut seen = Vec::new();
    let began = fixture.clock.now().epoch_seconds();
    while fixture.clock.now().epoch_seconds() < began + 7 * 3_600 {
        fixture.scheduled().await;
        let width = fixture.metadata().await.number_of_shards.get();
        if seen.last().is_none_or(|(_, last)| *last != width) {
            seen.push((fixture.clock.now().epoch_seconds(), width));
        }
        sleep(Duration::from_secs(59)).await;
    }
    assert_eq!(seen.iter().map(|(_, width)| *width).collect::<Vec<_>>(), [16, 8, 4, 2, 1]);
    assert!(seen.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 3_500), "{seen:?}");
    for text in numbered(0..40) {
        assert!(fixture.table.get(&key(), &sort_key(&text), true, soon()).await.expect("an answer").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_growth_that_its_actor_has_left_is_activated() {
    let fixture = fixture(|_, _| {}).await;
    fixture.append(numbered(0..4)).await;
    fixture.table.finish_background_work().await;
    let seen = fixture.metadata().await;
    let client = in_process_clients(&InProcess::new(fixture.engine.clone())).dynamodb;
    let number = |n: u64| AttributeValue::N(n.to_string());
    let expanded = client.update_item().table_name("items-metadata");
    let expanded = expanded.key("partition_key", AttributeValue::S(key().as_str().to_owned()));
    let expanded = expanded.update_expression("SET read_shards = :r, generation = :g");
    let expanded = expanded.expression_attribute_values(":r", number(4));
    expanded.expression_attribute_values(":g", number(seen.generation + 1)).send().await.expect("expanded");
    assert_eq!(fixture.metadata().await.expansion(), Some(count(4)));
    let told = fixture.scheduled().await;
    let metadata = fixture.metadata().await;
    assert_eq!((metadata.number_of_shards, metadata.read_shards), (count(4), count(4)), "{told}");
}

#[tokio::test(start_paused = true)]
async fn the_schedule_settles_a_grown_key_that_takes_point_writes_and_no_other() {
    let fixture = fixture(|of_table, scaler| {
        of_table.cold_append = false;
        scaler.settle_after = Duration::from_secs(3_600);
    })
    .await;
    fixture.append(numbered(0..20)).await;
    fixture.grow(8).await;
    fixture.append(numbered(20..60)).await;
    sleep(Duration::from_secs(4_000)).await;
    assert_eq!(fixture.scheduled().await["draining"], 0, "plain POSTs do not need it");
    let notes = || fixture.wire.calls().iter().filter(|call| call.operation == "UpdateItem" && !call.to_items).count();
    let before = notes();
    for text in numbered(0..30) {
        fixture.table.put(&item(&text, 2), soon()).await.expect("put");
    }
    fixture.table.finish_background_work().await;
    assert_eq!(
        notes() - before,
        3,
        "the point writes are noted once, and the load by looking for its minute and beginning it"
    );
    assert!(fixture.metadata().await.wants_settling(), "{:?}", fixture.metadata().await);
    let told = fixture.scheduled().await;
    assert_eq!(told["draining"], 1, "{told}");
    assert!(fixture.metadata().await.draining);
    let told = fixture.until_drained().await;
    assert_eq!((&told["keys"][0]["outcome"], &told["keys"][0]["goal"]), (&json!("done"), &json!("settle")), "{told}");
    for text in numbered(0..30) {
        fixture.table.put(&item(&text, 3), soon()).await.expect("put");
    }
    fixture.table.finish_background_work().await;
    sleep(Duration::from_secs(4_000)).await;
    assert!(!fixture.metadata().await.wants_settling());
    assert_eq!(fixture.scheduled().await["draining"], 0, "once is enough");
}

#[tokio::test(start_paused = true)]
async fn an_item_that_cannot_be_read_ends_a_shrink_until_somebody_asks_again() {
    let fixture = fixture(|_, scaler| scaler.shrink_after = Duration::from_secs(60)).await;
    fixture.append(numbered(0..10)).await;
    fixture.grow(4).await;
    fixture.append(numbered(10..40)).await;
    let client = in_process_clients(&InProcess::new(fixture.engine.clone())).dynamodb;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let damaged = client.put_item().table_name("items");
    let damaged = damaged.item("partition_key", text(&format!("{}.4", key()))).item("sort_key", text("order-9"));
    let damaged = damaged.item("_partition_key", text(key().as_str())).item("_version", text("yesterday"));
    damaged.send().await.expect("stored");
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    let mut told = Ok(Drained::Nothing);
    for _ in 0..30 {
        told = fixture.table.drain(&key(), soon()).await;
        if told.is_err() {
            break;
        }
        sleep(Duration::from_secs(60)).await;
    }
    assert!(told.as_ref().is_err_and(|error| error.to_string().contains("_version")), "{told:?}");
    let metadata = fixture.metadata().await;
    assert!(!metadata.draining, "it is not met for ever");
    assert_eq!((metadata.number_of_shards, metadata.read_shards), (count(4), count(4)));
    for text in numbered(0..40) {
        assert!(fixture.table.get(&key(), &sort_key(&text), true, soon()).await.expect("an answer").is_some());
    }
    sleep(Duration::from_secs(7_200)).await;
    assert_eq!(fixture.scheduled().await["draining"], 0, "the schedule would meet it for ever");
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("who asks may try again");
}
