//! Drains of items that expire.

use std::time::Duration;

use sharding::Value;
use sharding::internal::Clock;
use sharding::maintenance::Drained;
use system_tests::{count, numbered, soon};
use tokio::time::sleep;

use crate::one_key::{Fixture, fixture, item, key, shards};

/// A key of eight shards whose items may expire.
async fn expiring() -> Fixture {
    let fixture = fixture(|of_table| of_table.ttl_attribute = Some("expires".to_owned())).await;
    fixture.grow(8).await;
    fixture
}

async fn put(fixture: &Fixture, text: &str, expires: u64) {
    let mut item = item(text, 1);
    item.attributes.insert("expires".to_owned(), Value::N(expires.to_string()));
    fixture.table.put(&item, soon()).await.expect("stored");
}

#[tokio::test(start_paused = true)]
async fn what_expires_is_not_moved() {
    let fixture = expiring().await;
    let began = shards(&fixture.table).await.last_updated;
    for (index, text) in numbered(0..90).enumerate() {
        // One third has expired, one third expires within the hour, and one third stays for years.
        let expires = [began.saturating_sub(100), began + 3_000, began + 100_000_000][index % 3];
        put(&fixture, &text, expires).await;
    }
    let before = fixture.by_shard().await;
    fixture.table.until(soon()).shrink(&key(), count(1)).await.expect("it begins");
    let reports = fixture.drain().await;
    assert!(reports.contains(&Drained::Waiting { until: began + 3_000 }), "{reports:?}");
    let after = fixture.by_shard().await;
    assert!(after.keys().eq(&[1]), "{after:?}");
    for (index, text) in numbered(0..90).enumerate() {
        let stays = index % 3 == 2 || before[&1].contains(&text);
        assert_eq!(after[&1].contains(&text), stays, "{text}: what expires early is not moved");
    }
}

#[tokio::test(start_paused = true)]
async fn old_copies_of_items_written_again_stay_until_their_expiry() {
    let fixture = expiring().await;
    let expires = shards(&fixture.table).await.last_updated + 3_000;
    for text in numbered(0..40) {
        put(&fixture, &text, expires).await;
    }
    let before = fixture.by_shard().await;
    fixture.table.until(soon()).shrink(&key(), count(1)).await.expect("it begins");
    fixture.wait_out_the_change().await;
    let drained = fixture.table.until(soon()).drain(&key(), &[]).await.expect("a response");
    assert_eq!(drained, Drained::Waiting { until: expires }, "nothing is moved");
    // A read that began now may have read shard 1 already. It finds the items on other shards, and
    // must continue to find them.
    for text in numbered(0..40) {
        put(&fixture, &text, expires).await;
    }
    while fixture.tables.clock.now().epoch_seconds() < expires - 70 {
        fixture.table.until(soon()).drain(&key(), &[]).await.expect("a response");
        let now = fixture.by_shard().await;
        for (shard, texts) in before.iter().filter(|(shard, _)| **shard > 1) {
            assert_eq!(now.get(shard), Some(texts), "shard {shard}");
        }
        sleep(Duration::from_secs(60)).await;
    }
    fixture.drain().await;
    assert!(fixture.by_shard().await.keys().eq(&[1]));
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_prolonged_repeatedly_is_moved_in_the_end() {
    let fixture = expiring().await;
    let begun = shards(&fixture.table).await.last_updated;
    let started = tokio::time::Instant::now();
    let prolong_all = async || {
        for text in numbered(0..30) {
            put(&fixture, &text, begun + started.elapsed().as_secs() + 1_800).await;
        }
    };
    prolong_all().await;
    fixture.table.until(soon()).shrink(&key(), count(1)).await.expect("it begins");
    loop {
        assert!(started.elapsed() < Duration::from_secs(3 * 3_600), "the drain does not end");
        match fixture.table.until(soon()).drain(&key(), &[]).await.expect("the tables respond") {
            Drained::Done { .. } => break,
            Drained::Nothing => panic!("no other instance drains"),
            Drained::Waiting { .. } | Drained::Working { .. } => {}
            other => panic!("{other:?}"),
        }
        prolong_all().await;
        sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(fixture.all().await.len(), 30);
    assert!(fixture.by_shard().await.keys().eq(&[1]));
}
