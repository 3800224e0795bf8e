//! Tables with items of other programs: the real code reads, writes, migrates and surveys them over
//! the embedded engine, in virtual time.

mod fixture;
mod rebuilding;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sharding::internal::{Deadline, Environment, TableEngine};
use sharding::maintenance::{DrainRefused, Drained};
use sharding::{Placement, ShardNumber, TableError, WriteError, WriteErrorKind, Writes, Written};
use system_tests::{TestClock, count, numbered, soon, sort_key};
use tokio::time::sleep;

use fixture::{Fixture, fixture, item, key};

fn is_occupied(written: &Result<Written, WriteError>) -> bool {
    matches!(written, Err(WriteError { kind: WriteErrorKind::Table(TableError::Occupied), .. }))
}

#[tokio::test(start_paused = true)]
async fn bare_items_are_read_and_written_from_the_first_minute() {
    let fixture = fixture(|config| config.adopt_unsharded = true).await;
    let mut expected = BTreeMap::new();
    for text in numbered(0..100) {
        fixture.store_plainly("2014-07-09", &text, 1).await;
        expected.insert(text, 1);
    }
    assert_eq!(fixture.all("2014-07-09").await, expected);
    assert_eq!(fixture.get("2014-07-09", "order-0007").await, Some(1));

    fixture.table.set_shards(&key("2014-07-09"), count(4), soon()).await.expect("grown");
    sleep(Duration::from_secs(5)).await;
    let table = &fixture.table;
    for text in numbered(90..140) {
        table.put(&item("2014-07-09", &text, 2), soon()).await.expect("stored");
        expected.insert(text, 2);
    }
    for text in numbered(10..20) {
        table.put(&item("2014-07-09", &text, 3), soon()).await.expect("put");
        expected.insert(text, 3);
    }
    for text in numbered(20..30) {
        table.delete(&key("2014-07-09"), &sort_key(&text), soon()).await.expect("deleted");
        expected.remove(&text);
    }
    for text in numbered(15..35) {
        let created = table.create(&item("2014-07-09", &text, 4), None, soon()).await;
        assert_eq!(created.is_ok(), !expected.contains_key(&text), "{text}: {created:?}");
        expected.entry(text).or_insert(4);
    }
    assert_eq!(fixture.all("2014-07-09").await, expected);
    for text in numbered(0..140) {
        assert_eq!(fixture.get("2014-07-09", &text).await, expected.get(&text).copied(), "{text}");
    }
    let stored = fixture.stored().await;
    assert_eq!(stored["2014-07-09"], 100, "only a migration changes these items: {stored:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bare_key_that_looks_like_a_shard_keeps_its_items() {
    let fixture = fixture(|config| config.adopt_unsharded = true).await;
    for text in numbered(0..50) {
        fixture.store_plainly("orders.1", &text, 1).await;
    }
    let table = &fixture.table;
    // The first shard of another key contains items of this one.
    for text in numbered(25..40) {
        let stored = table.put(&item("orders", &text, 2), soon()).await;
        assert!(is_occupied(&stored), "{text}: {stored:?}");
        let stored = table.create(&item("orders", &text, 2), None, soon()).await;
        assert!(is_occupied(&stored), "{text}: {stored:?}");
        table.delete(&key("orders"), &sort_key(&text), soon()).await.expect("there is none");
    }
    for text in numbered(50..75) {
        table.put(&item("orders", &text, 2), soon()).await.expect("a free place");
    }
    let of = |range, value| numbered(range).map(|text| (text, value)).collect::<BTreeMap<_, _>>();
    assert_eq!(fixture.all("orders.1").await, of(0..50, 1));
    assert_eq!(fixture.all("orders").await, of(50..75, 2));
    assert_eq!(fixture.get("orders", "order-0030").await, None);
    assert_eq!(fixture.get("orders.1", "order-0030").await, Some(1));
    assert_eq!(fixture.get("orders.1", "order-0060").await, None);
    let survey = fixture.survey().await;
    assert_eq!((survey.items(), survey.looks_sharded(), survey.unknown()), (75, 50, 0));

    // With more shards, the other key's items have their own places.
    table.set_shards(&key("orders"), count(30), soon()).await.expect("grown");
    sleep(Duration::from_secs(5)).await;
    let mut free = 0;
    for text in numbered(0..50) {
        free += u64::from(table.put(&item("orders", &text, 3), soon()).await.is_ok());
    }
    assert!(free > 40, "{free}");
    assert_eq!(fixture.all("orders.1").await, of(0..50, 1), "no item was overwritten");
}

#[tokio::test(start_paused = true)]
async fn an_item_without_its_place_is_written_once_it_has_another() {
    let fixture = fixture(|config| config.adopt_unsharded = true).await;
    fixture.store_plainly("orders", "order-0001", 1).await;
    fixture.store_plainly("orders.1", "order-0001", 2).await;
    let table = &fixture.table;
    let created = table.create(&item("orders", "order-0001", 3), None, soon()).await;
    assert!(matches!(created, Err(WriteError { kind: WriteErrorKind::Exists, .. })), "{created:?}");
    for written in [
        table.put(&item("orders", "order-0001", 4), soon()).await,
        table.delete(&key("orders"), &sort_key("order-0001"), soon()).await,
    ] {
        assert!(is_occupied(&written), "{written:?}");
    }
    assert_eq!(fixture.get("orders", "order-0001").await, Some(1));

    let home =
        |width| Placement::Calculated.home(&key("orders"), &sort_key("order-0001"), count(width));
    let width = (2..100)
        .find(|width| home(*width).is_some_and(|home| home.get() > 1))
        .expect("it moves somewhere");
    table.set_shards(&key("orders"), count(width), soon()).await.expect("grown");
    table.put(&item("orders", "order-0001", 5), soon()).await.expect("its home is free");
    assert_eq!(fixture.get("orders", "order-0001").await, Some(5));
    table.delete(&key("orders"), &sort_key("order-0001"), soon()).await.expect("deleted");
    assert_eq!(fixture.get("orders", "order-0001").await, None);
    assert_eq!(fixture.get("orders.1", "order-0001").await, Some(2), "the other key's item stays");
}

#[tokio::test(start_paused = true)]
#[ignore = "half a minute or more; .ci/run runs it"]
async fn a_migration_under_load_loses_and_doubles_nothing() {
    let fixture = fixture(|config| {
        config.adopt_unsharded = true;
        config.drain.units_per_second = 40;
    })
    .await;
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for text in numbered(0..150) {
        fixture.store_plainly("2014-07-09", &text, 1).await;
        expected.insert(text, 1);
    }
    let table = &fixture.table;
    table.set_shards(&key("2014-07-09"), count(3), soon()).await.expect("grown");
    sleep(Duration::from_secs(5)).await;
    let mut survey = fixture.survey().await;
    assert_eq!(survey.take_unsharded(), BTreeMap::from([(key("2014-07-09"), 150)]));
    table.begin_migration(&key("2014-07-09"), soon()).await.expect("it begins");

    let mut step = 0u64;
    for call in 0.. {
        // Only the last calls have time to remove the tombstones.
        let lasts = Duration::from_millis(if call < 20 { 2_600 } else { 20_000 });
        let drained =
            table.drain(&key("2014-07-09"), Deadline::now() + lasts).await.expect("it goes on");
        for _ in 0..5 {
            step += 1;
            let text = format!("order-{:04}", step * 37 % 170);
            match step % 5 {
                0 => {
                    table
                        .delete(&key("2014-07-09"), &sort_key(&text), soon())
                        .await
                        .expect("deleted");
                    expected.remove(&text);
                }
                1 => {
                    table.put(&item("2014-07-09", &text, step + 10), soon()).await.expect("put");
                    expected.insert(text, step + 10);
                }
                2 => {
                    let created =
                        table.create(&item("2014-07-09", &text, step + 10), None, soon()).await;
                    assert_eq!(
                        created.is_ok(),
                        !expected.contains_key(&text),
                        "{text}: {created:?}"
                    );
                    expected.entry(text).or_insert(step + 10);
                }
                3 => {
                    table.put(&item("2014-07-09", &text, step + 10), soon()).await.expect("put");
                    expected.insert(text, step + 10);
                }
                // The other program still changes its own items that no instance has changed.
                _ => {
                    let stored = self::stored_plainly(&fixture, &text).await;
                    if stored && expected.get(&text).is_some_and(|value| *value <= 5) {
                        let value = expected[&text] + 1;
                        fixture.store_plainly("2014-07-09", &text, value).await;
                        expected.insert(text, value);
                    }
                }
            }
            assert_eq!(fixture.all("2014-07-09").await, expected, "after step {step}");
        }
        match drained {
            Drained::Done { .. } => break,
            Drained::Nothing => panic!("no other instance drains"),
            Drained::Waiting { .. } => sleep(Duration::from_secs(25)).await,
            Drained::Working { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(step > 40, "the migration was cut into many invocations: {step}");
    // Tombstones are removed once no late request can need them.
    sleep(Duration::from_secs(2_400)).await;
    let purge = async || fixture.table.drain(&key("2014-07-09"), soon()).await.expect("it goes on");
    while !matches!(purge().await, Drained::Done { .. }) {}
    let stored = fixture.stored().await;
    assert!(!stored.contains_key("2014-07-09"), "{stored:?}");
    assert_eq!(stored.values().sum::<usize>(), expected.len(), "no copy is left");

    // Without the flag, no item is missing.
    let mut config = fixture.config.clone();
    config.adopt_unsharded = false;
    let after = TableEngine::with_environment(
        &fixture.client,
        config,
        Environment::seeded(TestClock::default(), 9),
    );
    let after = Fixture {
        engine: fixture.engine.clone(),
        config: fixture.config,
        client: fixture.client,
        table: after,
    };
    assert_eq!(after.all("2014-07-09").await, expected);
}

/// Whether the other program's item is stored, and no put has replaced it.
async fn stored_plainly(fixture: &Fixture, text: &str) -> bool {
    let key = HashMap::from([
        ("partition_key".to_owned(), AttributeValue::S("2014-07-09".to_owned())),
        ("sort_key".to_owned(), AttributeValue::S(text.to_owned())),
    ]);
    let found = fixture
        .client
        .get_item()
        .table_name("items")
        .set_key(Some(key))
        .send()
        .await
        .expect("a response");
    found.item.is_some_and(|item| !item.contains_key("_version"))
}

#[tokio::test(start_paused = true)]
async fn a_migration_that_outlives_the_flag_moves_nothing() {
    let fixture = fixture(|config| config.adopt_unsharded = true).await;
    fixture.store_plainly("orders.1", "bill-1", 1).await;
    for text in numbered(0..20) {
        fixture.table.put(&item("orders", &text, 2), soon()).await.expect("stored");
    }
    fixture.table.begin_migration(&key("orders.1"), soon()).await.expect("it begins");
    let mut config = fixture.config.clone();
    config.adopt_unsharded = false;
    let after = TableEngine::with_environment(
        &fixture.client,
        config,
        Environment::seeded(TestClock::default(), 9),
    );
    let before = fixture.stored().await;
    for _ in 0..5 {
        after.drain(&key("orders.1"), soon()).await.expect("a response");
        sleep(Duration::from_secs(1_200)).await;
    }
    assert_eq!(fixture.stored().await, before);
    assert_eq!(fixture.all("orders").await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn an_append_that_meets_a_foreign_item_on_shard_one_goes_home() {
    let fixture = fixture(|config| {
        config.adopt_unsharded = true;
        config.writes = Writes::Appends;
    })
    .await;
    for text in numbered(0..40) {
        fixture.store_plainly("orders.1", &text, 1).await;
    }
    fixture.table.set_shards(&key("orders"), count(30), soon()).await.expect("grown");
    sleep(Duration::from_secs(5)).await;
    let mut stored = BTreeMap::new();
    for text in numbered(0..40) {
        // Each read uses an instance that has no view yet.
        let home = Placement::Calculated
            .home(&key("orders"), &sort_key(&text), count(30))
            .expect("a home");
        let appended = fixture.another_instance().put(&item("orders", &text, 2), soon()).await;
        assert_eq!(appended.is_ok(), home.get() != 1, "{text}: {appended:?}");
        if appended.is_ok() {
            stored.insert(text, 2);
        }
    }
    assert!(stored.len() > 30);
    assert_eq!(fixture.all("orders").await, stored);
    assert_eq!(fixture.all("orders.1").await.len(), 40);
}

#[tokio::test(start_paused = true)]
async fn of_two_copies_of_another_programs_item_the_bare_one_counts() {
    let fixture = fixture(|config| config.adopt_unsharded = true).await;
    fixture.store_plainly("day", "order", 1).await;
    fixture.table.begin_migration(&key("day"), soon()).await.expect("it begins");
    assert!(matches!(fixture.table.drain(&key("day"), soon()).await, Ok(Drained::Waiting { .. })));
    assert_eq!(fixture.stored().await.len(), 2, "it is copied");
    fixture.store_plainly("day", "order", 2).await;
    assert_eq!(fixture.get("day", "order").await, Some(2));
    assert_eq!(fixture.all("day").await, BTreeMap::from([("order".to_owned(), 2)]));
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_place_another_key_holds_is_reported_and_stays() {
    let fixture = fixture(|config| config.adopt_unsharded = true).await;
    fixture.store_plainly("orders", "order-0001", 1).await;
    fixture.store_plainly("orders.1", "order-0001", 2).await;
    fixture.table.begin_migration(&key("orders"), soon()).await.expect("it begins");
    let drained = fixture.table.drain(&key("orders"), soon()).await;
    assert!(
        drained.as_ref().is_err_and(|error| error.to_string().contains("another partition key")),
        "{drained:?}"
    );
    assert_eq!(fixture.get("orders", "order-0001").await, Some(1));
    assert_eq!(fixture.get("orders.1", "order-0001").await, Some(2));
    let metadata =
        fixture.table.shards(&key("orders"), soon()).await.expect("a response").expect("metadata");
    assert!(metadata.draining().is_none() && metadata.has_unmovable(), "it is not retried forever");
    let refused = self::fixture(|_| {}).await.table.begin_migration(&key("orders"), soon()).await;
    assert!(matches!(refused, Err(DrainRefused::NotAdopting)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_table_of_fixed_shards_keeps_its_placement_and_their_number() {
    let fixture = fixture(|config| {
        config.placement = Placement::ModuloMd5;
        config.adopt_shards = count(10);
    })
    .await;
    let mut expected = BTreeMap::new();
    for text in numbered(0..80) {
        let home =
            Placement::ModuloMd5.home(&key("path"), &sort_key(&text), count(10)).expect("a home");
        fixture.store_plainly(&format!("path.{home}"), &text, 1).await;
        expected.insert(text, 1);
    }
    assert_eq!(fixture.all("path").await, expected, "from the first read on");
    for text in numbered(80..120) {
        let written = fixture.table.put(&item("path", &text, 2), soon()).await.expect("stored");
        let home = Placement::ModuloMd5.home(&key("path"), &sort_key(&text), count(10));
        let home = home.map(ShardNumber::get);
        assert_eq!((Some(written.shard), written.number_of_shards), (home, 10));
        expected.insert(text, 2);
    }
    let metadata = fixture.table.shards(&key("path"), soon()).await.expect("a response");
    assert_eq!(metadata, None, "the table's own number of shards needs no metadata");
    for text in numbered(70..90) {
        fixture.table.put(&item("path", &text, 3), soon()).await.expect("put");
        expected.insert(text, 3);
    }
    fixture.table.set_shards(&key("path"), count(25), soon()).await.expect("grown");
    sleep(Duration::from_secs(5)).await;
    for text in numbered(120..160) {
        fixture.table.put(&item("path", &text, 4), soon()).await.expect("stored");
        expected.insert(text, 4);
    }
    assert_eq!(fixture.all("path").await, expected);
    for text in numbered(0..160) {
        assert_eq!(fixture.get("path", &text).await, expected.get(&text).copied(), "{text}");
    }
}
