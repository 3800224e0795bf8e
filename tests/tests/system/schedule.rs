//! The operations that the shard-scaler's schedule begins by itself, and those that it does not: in
//! virtual time, over the embedded engine.

use std::time::Duration;

use embedded_dynamodb::InProcess;
use local::in_process_clients;
use serde_json::json;
use shard_scaler::{Failed, Scaler, ScalerConfig};
use sharding::internal::{Clock, Deadline, Separator, ShardKeys, TableEngine};
use sharding::maintenance::{Drained, ShardMetadata};
use sharding::{ShardedTable, TableConfig};
use system_tests::metadata::{self, number};
use system_tests::{count, filled_item, numbered, soon};
use tokio::time::sleep;

use crate::one_key::{self, KEY, get, item, key, shards};

struct Fixture {
    of_key: one_key::Fixture,
    scaler: Scaler,
}

async fn fixture(change: impl FnOnce(&mut TableConfig, &mut ScalerConfig)) -> Fixture {
    let mut of_scaler = ScalerConfig::default();
    let of_key = one_key::fixture(|of_table| change(of_table, &mut of_scaler)).await;
    let scaler = scaler(&of_key.tables.connection(), of_key.table.clone(), of_scaler);
    Fixture { of_key, scaler }
}

/// A shard-scaler of this table, and of the alarms on this connection.
pub(crate) fn scaler(connection: &InProcess, table: TableEngine, config: ScalerConfig) -> Scaler {
    Scaler::new(ShardedTable::over(table), in_process_clients(connection), config)
}

impl Fixture {
    fn now(&self) -> u64 {
        self.of_key.tables.clock.now().epoch_seconds()
    }

    async fn assert_finds(&self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            assert!(get(&self.of_key.table, &text).await.is_some(), "{text}");
        }
    }

    async fn metadata(&self) -> ShardMetadata {
        sleep(Duration::from_secs(1)).await;
        shards(&self.of_key.table).await
    }

    async fn scheduled(&self) -> serde_json::Value {
        let deadline = Deadline::now() + Duration::from_secs(59);
        let event = json!({"action": "drain"});
        self.scaler.handle(&event, self.now(), deadline).await.unwrap_or_else(Failed::into_response)
    }

    /// Runs the schedule every minute until no key is drained.
    async fn until_drained(&self) -> serde_json::Value {
        for _ in 0..200 {
            let report = self.scheduled().await;
            if self.metadata().await.draining().is_none() {
                return report;
            }
            sleep(Duration::from_secs(59)).await;
        }
        panic!("the drain does not end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_gives_up_half_of_its_shards_only_after_long_low_demand() {
    let fixture =
        fixture(|_, scaler| scaler.shrink_and_settle.shrink_after = Duration::from_secs(600)).await;
    fixture.of_key.store(numbered(0..1)).await;
    fixture.of_key.grow(2).await;
    // 100 write units per second, for much longer than an idle key keeps its width.
    for minute in 0..15 {
        for number in 0..300 {
            let item = filled_item(key(), &format!("order-{number:04}"), 20_000);
            fixture.of_key.table.put(&item, soon()).await.expect("stored");
            sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(fixture.scheduled().await["draining"], 0, "minute {minute}");
    }
    let busy_until = fixture.now();
    let mut begun_at = None;
    while begun_at.is_none() && fixture.now() < busy_until + 1_200 {
        for _ in 0..6 {
            let item = filled_item(key(), "order-0000", 20_000);
            fixture.of_key.table.put(&item, soon()).await.expect("stored");
            sleep(Duration::from_secs(10)).await;
        }
        if fixture.scheduled().await["draining"] == 1 {
            begun_at = Some(fixture.now() - busy_until);
        }
    }
    assert!(begun_at.is_some_and(|after| (540..=840).contains(&after)), "{begun_at:?}");
    let report = fixture.until_drained().await;
    assert_eq!(report["keys"][0]["outcome"], "done", "{report}");
    let metadata = fixture.metadata().await;
    assert_eq!((metadata.number_of_shards, metadata.read_shards), (count(1), count(1)));
}

#[tokio::test(start_paused = true)]
async fn a_key_gives_up_no_more_than_half_in_one_window() {
    let fixture =
        fixture(|_, scaler| scaler.shrink_and_settle.shrink_after = Duration::from_secs(3_600))
            .await;
    fixture.of_key.store(numbered(0..40)).await;
    fixture.of_key.grow(16).await;
    let mut seen = Vec::new();
    let began = fixture.now();
    while fixture.now() < began + 7 * 3_600 {
        fixture.scheduled().await;
        let width = fixture.metadata().await.number_of_shards.get();
        if seen.last().is_none_or(|(_, last)| *last != width) {
            seen.push((fixture.now(), width));
        }
        sleep(Duration::from_secs(59)).await;
    }
    assert_eq!(seen.iter().map(|(_, width)| *width).collect::<Vec<_>>(), [16, 8, 4, 2, 1]);
    assert!(seen.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 3_500), "{seen:?}");
    fixture.assert_finds(numbered(0..40)).await;
}

/// The key's writers do not record its load, so it would look calm under any load.
#[tokio::test(start_paused = true)]
async fn a_key_that_never_grew_is_not_shrunk_below_its_first_width() {
    let fixture = fixture(|of_table, scaler| {
        of_table.shard_keys = ShardKeys::Suffixed(Separator::default());
        (of_table.adopt_shards, of_table.register_keys) = (count(10), true);
        scaler.shrink_and_settle.shrink_after = Duration::from_secs(600);
    })
    .await;
    fixture.of_key.store(numbered(0..20)).await;
    fixture.of_key.table.finish_background_work().await;
    sleep(Duration::from_secs(7_200)).await;
    assert_eq!(fixture.scheduled().await["draining"], 0);
    assert_eq!(fixture.metadata().await.number_of_shards, count(10));
    fixture.of_key.grow(20).await;
    sleep(Duration::from_secs(7_200)).await;
    assert_eq!(fixture.scheduled().await["draining"], 1, "a key that has grown is drained");
    assert_eq!(fixture.metadata().await.number_of_shards, count(10));
}

#[tokio::test(start_paused = true)]
async fn a_closing_that_its_actor_has_left_is_opened() {
    let fixture = fixture(|_, _| {}).await;
    fixture.of_key.store(numbered(0..4)).await;
    // The actor died before it wrote the key's page.
    let width = [("number_of_shards", 1), ("read_shards", 4), ("closing", 4), ("generation", 1)];
    let width = width.map(|(name, n)| (name, number(n)));
    metadata::store(&fixture.of_key.tables.client, KEY, width).await;
    assert_eq!(fixture.metadata().await.closing(), Some(count(4)));
    let report = fixture.scheduled().await;
    let metadata = fixture.metadata().await;
    assert_eq!((metadata.number_of_shards, metadata.read_shards), (count(4), count(4)), "{report}");
    assert_eq!(metadata.closing(), None);
}

#[tokio::test(start_paused = true)]
async fn the_schedule_settles_a_key_once_after_its_last_change() {
    let fixture =
        fixture(|_, scaler| scaler.shrink_and_settle.settle_after = Duration::from_secs(3_600))
            .await;
    fixture.of_key.store(numbered(0..20)).await;
    sleep(Duration::from_secs(4_000)).await;
    let report = fixture.scheduled().await;
    assert_eq!(report["draining"], 0, "a key that never grew has nothing to move");
    fixture.of_key.grow(8).await;
    fixture.of_key.store(numbered(20..60)).await;
    assert!(fixture.metadata().await.wants_settling());
    sleep(Duration::from_secs(3_000)).await;
    assert_eq!(fixture.scheduled().await["draining"], 0, "it may change again");
    sleep(Duration::from_secs(1_000)).await;
    let report = fixture.scheduled().await;
    assert_eq!(report["draining"], 1, "{report}");
    assert!(fixture.metadata().await.draining().is_some());
    let report = fixture.until_drained().await;
    assert_eq!(report["keys"][0]["outcome"], "done", "{report}");
    let metadata = fixture.metadata().await;
    assert!(metadata.settled && !metadata.wants_settling(), "{metadata:?}");
    for text in numbered(0..30) {
        fixture.of_key.table.put(&item(&text, 3), soon()).await.expect("put");
    }
    sleep(Duration::from_secs(4_000)).await;
    assert_eq!(fixture.scheduled().await["draining"], 1, "tombstones are removed later");
    assert!(!fixture.metadata().await.unpurged);
    sleep(Duration::from_secs(4_000)).await;
    assert_eq!(fixture.scheduled().await["draining"], 0, "once is enough");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_item_ends_a_shrink_until_it_is_requested_again() {
    let fixture =
        fixture(|_, scaler| scaler.shrink_and_settle.shrink_after = Duration::from_secs(60)).await;
    fixture.of_key.store(numbered(0..10)).await;
    fixture.of_key.grow(4).await;
    fixture.of_key.store(numbered(10..40)).await;
    let mut damaged = fixture.of_key.tables.client.put_item().table_name("items");
    for (name, value) in [
        ("partition_key", &*format!("{}\u{1f}s4", key())),
        ("sort_key", "order-9"),
        ("_sh:k", KEY),
        ("_sh:v", "yesterday"),
    ] {
        damaged = damaged.item(name, metadata::text(value));
    }
    damaged.send().await.expect("stored");
    fixture.of_key.table.until(soon()).shrink(&key(), count(1)).await.expect("it begins");
    let mut drained = Ok(Drained::Nothing);
    for _ in 0..30 {
        drained = fixture.of_key.table.until(soon()).drain(&key(), &[]).await;
        if drained.is_err() {
            break;
        }
        sleep(Duration::from_secs(60)).await;
    }
    let names_it = drained.as_ref().is_err_and(|error| error.to_string().contains("_sh:v"));
    assert!(names_it, "{drained:?}");
    let metadata = fixture.metadata().await;
    assert!(metadata.draining().is_none() && metadata.has_unmovable(), "it does not fail forever");
    let widths = (metadata.number_of_shards, metadata.read_shards);
    assert_eq!(widths, (count(1), count(4)), "readers look everywhere");
    fixture.assert_finds(numbered(0..40)).await;
    sleep(Duration::from_secs(7_200)).await;
    assert_eq!(fixture.scheduled().await["draining"], 0, "the schedule would fail on it forever");
    let requested = fixture.of_key.table.until(soon()).settle(&key()).await;
    requested.expect("an explicit request may try again");
}
