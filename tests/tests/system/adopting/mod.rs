//! Tables with items of other programs: the real code reads, writes, grows and settles them over the
//! embedded engine, in virtual time.

mod fixture;
mod rebuilding;

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sharding::internal::{Deadline, Separator, ShardKeys};
use sharding::maintenance::Drained;
use sharding::{Conditions, ETag, ETags, Placement, ShardNumber, WriteErrorKind};
use system_tests::{count, numbered, scan_stored, soon, sort_key, store_plainly};
use tokio::time::sleep;

use fixture::{Fixture, fixture, item, key};

const DAY: &str = "2014-07-09";

/// The stored rows of other programs, by their keys.
async fn rows(fixture: &Fixture) -> BTreeMap<(String, String), u64> {
    let text = |value: &AttributeValue| value.as_s().expect("a text").clone();
    let mut rows = BTreeMap::new();
    for row in scan_stored(&fixture.client).await {
        if row.keys().all(|name| !name.starts_with("_sh:")) {
            let value = row["value"].as_n().expect("a number").parse().expect("a number");
            rows.insert((text(&row["partition_key"]), text(&row["sort_key"])), value);
        }
    }
    rows
}

/// Settles a key under a load of all kinds of writes, until its tombstones are gone.
#[tokio::test(start_paused = true)]
async fn adopted_items_settle_under_load_and_none_is_lost_or_doubled() {
    let fixture = fixture(|config| config.drain.units_per_second = 40).await;
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for text in numbered(0..150) {
        store_plainly(&fixture.client, DAY, &text, 1).await;
        expected.insert(text, 1);
    }
    let table = &fixture.table;
    table.set_shards(&key(DAY), count(3), soon()).await.expect("grown");
    sleep(Duration::from_secs(5)).await;
    table.begin_settle(&key(DAY), soon()).await.expect("it begins");
    let mut step = 0u64;
    for call in 0.. {
        // Only the last calls have time to remove the tombstones.
        let lasts = Duration::from_millis(if call < 20 { 2_600 } else { 20_000 });
        let drained = table.drain(&key(DAY), Deadline::now() + lasts).await.expect("it goes on");
        for _ in 0..5 {
            step += 1;
            let text = format!("order-{:04}", step * 37 % 170);
            match step % 3 {
                0 => {
                    table.delete(&key(DAY), &sort_key(&text), soon()).await.expect("deleted");
                    expected.remove(&text);
                }
                1 => {
                    table.put(&item(DAY, &text, step + 10), soon()).await.expect("put");
                    expected.insert(text, step + 10);
                }
                _ => {
                    let created = table.create(&item(DAY, &text, step + 10), None, soon()).await;
                    let is_new = !expected.contains_key(&text);
                    assert_eq!(created.is_ok(), is_new, "{text}: {created:?}");
                    expected.entry(text).or_insert(step + 10);
                }
            }
            assert_eq!(fixture.all(DAY).await, expected, "after step {step}");
        }
        match drained {
            Drained::Done { .. } => break,
            Drained::Nothing => panic!("no other instance drains"),
            Drained::Waiting { .. } => sleep(Duration::from_secs(25)).await,
            Drained::Working { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(step > 40, "the drain was cut into many calls: {step}");
    // Tombstones are removed once no late request can need them.
    sleep(Duration::from_secs(2_400)).await;
    let purge = async || fixture.table.drain(&key(DAY), soon()).await.expect("it goes on");
    while !matches!(purge().await, Drained::Done { .. }) {}
    let stored = scan_stored(&fixture.client).await;
    assert_eq!(stored.len(), expected.len(), "no copy is left: {stored:?}");
    assert_eq!(fixture.all(DAY).await, expected);
    for ((_, text), _) in rows(&fixture).await {
        let home = Placement::Calculated.home(&key(DAY), &sort_key(&text), count(3));
        assert_eq!(home, Some(ShardNumber::FIRST), "{text}: only what stays keeps no version");
    }
}

/// A drain gives an item of another program a version. Its tag stays the same.
#[tokio::test(start_paused = true)]
async fn a_tag_of_an_adopted_item_stays_valid_when_it_moves() {
    let fixture = fixture(|_| {}).await;
    for text in numbered(0..20) {
        store_plainly(&fixture.client, DAY, &text, 1).await;
    }
    let tag = async |text: &str| {
        let read = fixture.table.get_tagged(&key(DAY), &sort_key(text), true, soon()).await;
        read.expect("a response").expect("an item").1
    };
    let mut tags: Vec<(String, ETag)> = Vec::new();
    for text in numbered(0..20) {
        tags.push((text.clone(), tag(&text).await));
    }
    fixture.table.set_shards(&key(DAY), count(4), soon()).await.expect("grown");
    sleep(Duration::from_secs(5)).await;
    fixture.table.begin_settle(&key(DAY), soon()).await.expect("it begins");
    while !matches!(fixture.table.drain(&key(DAY), soon()).await, Ok(Drained::Done { .. })) {
        sleep(Duration::from_secs(25)).await;
    }
    assert!(rows(&fixture).await.len() < 20, "some have moved");
    for (text, before) in tags {
        assert_eq!(tag(&text).await, before, "{text}");
        let unchanged =
            Conditions { matches: Some(ETags::Of(vec![before.clone()])), ..Conditions::default() };
        let put = |value| item(DAY, &text, value);
        let written = fixture.table.put_if(&put(2), &unchanged, soon()).await;
        written.unwrap_or_else(|error| panic!("{text}: {error}"));
        let again = fixture.table.put_if(&put(3), &unchanged, soon()).await;
        assert!(again.is_err_and(|error| matches!(error.kind, WriteErrorKind::Precondition)));
    }
}

/// What another program stores under the key of a further shard is as if it were not there.
#[tokio::test(start_paused = true)]
async fn foreign_items_on_further_shards_are_as_if_absent() {
    let fixture = fixture(|_| {}).await;
    let table = &fixture.table;
    table.set_shards(&key(DAY), count(4), soon()).await.expect("grown");
    sleep(Duration::from_secs(5)).await;
    for text in numbered(0..60) {
        for shard in 2..=4 {
            store_plainly(&fixture.client, &format!("{DAY}\u{1f}s{shard}"), &text, 7).await;
        }
    }
    assert_eq!(fixture.all(DAY).await, BTreeMap::new());
    let mut expected = BTreeMap::new();
    for (number, text) in (0..).zip(numbered(0..60)) {
        assert_eq!(fixture.get(DAY, &text).await, None);
        match number % 3 {
            0 => drop(table.put(&item(DAY, &text, 1), soon()).await.expect("stored")),
            1 => drop(table.create(&item(DAY, &text, 1), None, soon()).await.expect("created")),
            _ => {
                table.delete(&key(DAY), &sort_key(&text), soon()).await.expect("there is none");
                continue;
            }
        }
        expected.insert(text, 1);
    }
    assert_eq!(fixture.all(DAY).await, expected);
    let survey = fixture.survey().await;
    assert!(survey.unknown() > 0 && survey.keys().len() <= 1);
    assert_eq!(fixture.all(&format!("{DAY}-other")).await, BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn a_table_of_fixed_shards_keeps_its_placement_and_their_number() {
    let fixture = fixture(|config| {
        config.placement = Placement::ModuloMd5;
        config.adopt_shards = count(10);
        config.shard_keys = ShardKeys::Suffixed(Separator::default());
    })
    .await;
    let home = |text: &str| {
        let home = Placement::ModuloMd5.home(&key("path"), &sort_key(text), count(10));
        home.expect("a home").get()
    };
    let mut expected = BTreeMap::new();
    for text in numbered(0..80) {
        store_plainly(&fixture.client, &format!("path.{}", home(&text)), &text, 1).await;
        expected.insert(text, 1);
    }
    assert_eq!(fixture.all("path").await, expected, "from the first read on");
    for text in numbered(80..120) {
        let written = fixture.table.put(&item("path", &text, 2), soon()).await.expect("stored");
        assert_eq!((written.shard, written.number_of_shards), (home(&text), 10));
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
