//! Shrinking and settling on the real code over the embedded engine, in virtual time: what moves, what stays, and what the metadata says.

use std::collections::BTreeMap;
use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess};
use local::{clients_over, create_tables, in_process_clients};
use sharding::{
    Attributes, Clock, Deadline, DrainGoal, DrainRefused, DrainStep, Drained, Environment, Item, PageQuery,
    PartitionKey, Placement, Pressure, ReadError, ScaleOutcome, ShardedTable, TableConfig, Value,
};
use system_tests::{Call, Fate, TestClock, Wire, config, count, numbered, soon, sort_key};
use tokio::time::sleep;

fn key() -> PartitionKey {
    PartitionKey::new("2014-07-09").expect("a key")
}

fn item(text: &str, value: u64) -> Item {
    let attributes = Attributes::from([("value".to_owned(), Value::N(value.to_string()))]);
    Item { partition_key: key(), sort_key: sort_key(text), attributes }
}

struct Fixture {
    engine: Engine,
    table: ShardedTable,
    wire: Wire,
    clock: TestClock,
}

/// A table with these settings, over a wire that passes everything.
async fn fixture(change: impl FnOnce(&mut TableConfig)) -> Fixture {
    let engine = Engine::in_memory().expect("an engine");
    create_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &config()).await.expect("tables");
    let wire = Wire::new(InProcess::new(engine.clone()), |_| Fate::Pass);
    let mut of_table = config();
    of_table.drain.units_per_second = 20_000;
    change(&mut of_table);
    let client = clients_over(wire.clone().into_shared()).dynamodb;
    let clock = TestClock::default();
    let table = ShardedTable::with_environment(&client, of_table, Environment::seeded(clock.clone(), 7));
    Fixture { engine, table, wire, clock }
}

impl Fixture {
    async fn grow(&self, to: u32) {
        let grown = self.table.set_shards(&key(), count(to), soon()).await.expect("the tables answer");
        assert!(matches!(grown, ScaleOutcome::Scaled { .. }), "{grown:?}");
        sleep(Duration::from_secs(5)).await;
    }

    async fn append(&self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.table.append(&item(&text, 1), soon()).await.expect("stored");
        }
    }

    /// Every item, with its value, by pages.
    async fn all(&self) -> BTreeMap<String, u64> {
        let mut query = PageQuery { limit: 70, consistent: true, ..PageQuery::new(key()) };
        let mut found = BTreeMap::new();
        loop {
            let page = self.table.query(&query, soon()).await.expect("a page");
            for item in &page.items {
                let Some(Value::N(value)) = item.attributes.get("value") else { panic!("{item:?}") };
                let before = found.insert(item.sort_key.to_string(), value.parse().expect("a number"));
                assert_eq!(before, None, "{} came twice", item.sort_key);
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return found,
            }
        }
    }

    /// The sort keys on each shard, as they are stored.
    async fn by_shard(&self) -> BTreeMap<u32, Vec<String>> {
        let client = in_process_clients(&InProcess::new(self.engine.clone())).dynamodb;
        let mut start = None;
        let mut shards: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        loop {
            let page = client.scan().table_name("items").set_exclusive_start_key(start).send().await.expect("a page");
            for stored in page.items() {
                let text = |name: &str| stored[name].as_s().expect("a text").clone();
                let shard = text("partition_key").rsplit('.').next().and_then(|n| n.parse().ok()).expect("a shard");
                assert_eq!(text("_partition_key"), "2014-07-09");
                shards.entry(shard).or_default().push(text("sort_key"));
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                return shards;
            }
        }
    }

    /// Calls again and again, as a schedule does, until the drain is done.
    async fn drain(&self) -> Vec<Drained> {
        let mut told = Vec::new();
        for _ in 0..300 {
            let drained =
                self.table.drain(&key(), Deadline::now() + Duration::from_secs(4)).await.expect("the tables answer");
            let is_end = matches!(drained, Drained::Done { .. } | Drained::Nothing);
            told.push(drained);
            if is_end {
                return told;
            }
            sleep(Duration::from_secs(60)).await;
        }
        panic!("the drain does not end: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shrink_moves_what_is_on_the_shards_that_are_given_up_and_nothing_else() {
    let fixture = fixture(|_| {}).await;
    fixture.append(numbered(0..40)).await;
    fixture.grow(5).await;
    fixture.append(numbered(40..120)).await;
    fixture.grow(16).await;
    fixture.append(numbered(120..400)).await;
    let before = fixture.by_shard().await;
    assert!(before.len() > 12, "{before:?}");

    let marked = fixture.table.begin_shrink(&key(), count(4), soon()).await.expect("it begins");
    assert_eq!((marked.number_of_shards, marked.read_shards, marked.draining), (count(4), count(16), true));
    assert_eq!(fixture.all().await.len(), 400, "readers look everywhere");
    let told = fixture.drain().await;
    assert!(told.iter().any(|one| matches!(one, Drained::Waiting { step: DrainStep::WaitOutWriters, .. })), "{told:?}");
    assert!(told.iter().any(|one| matches!(one, Drained::Waiting { step: DrainStep::WaitOutReads, .. })), "{told:?}");
    let Some(Drained::Done { goal: DrainGoal::Shrink, from, to, .. }) = told.last() else { panic!("{told:?}") };
    assert_eq!((*from, *to), (count(16), count(4)));

    let after = fixture.by_shard().await;
    assert_eq!(after.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(after.values().map(Vec::len).sum::<usize>(), 400, "no item is doubled");
    for (shard, kept) in before.iter().filter(|(shard, _)| **shard <= 4) {
        assert!(kept.iter().all(|sort_key| after[shard].contains(sort_key)), "what was on shard {shard} stays");
    }
    assert_eq!(fixture.all().await.into_keys().collect::<Vec<_>>(), numbered(0..400).collect::<Vec<_>>());
    for text in ["order-0007", "order-0100", "order-0399"] {
        let found = fixture.table.get(&key(), &sort_key(text), true, soon()).await.expect("an answer");
        assert!(found.is_some(), "{text}");
    }
    let metadata = fixture.table.shards(&key(), soon()).await.expect("an answer").expect("metadata");
    let widths: Vec<u32> = metadata.shard_history.entries().map(|entry| entry.count.get()).collect();
    assert_eq!((metadata.draining, metadata.drain, widths), (false, None, vec![1, 4]));
}

#[tokio::test(start_paused = true)]
async fn writes_and_reads_go_on_while_a_key_shrinks() {
    let fixture = fixture(|of_table| of_table.drain.units_per_second = 80).await;
    fixture.grow(12).await;
    fixture.append(numbered(0..300)).await;
    let mut expected: BTreeMap<String, u64> = numbered(0..300).map(|text| (text, 1)).collect();
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    let mut step = 0u64;
    loop {
        // Short invocations: each is cut off in the middle of a step.
        let drained =
            fixture.table.drain(&key(), Deadline::now() + Duration::from_millis(3_500)).await.expect("it goes on");
        for _ in 0..4 {
            step += 1;
            let text = format!("order-{:04}", step * 37 % 300);
            match step % 4 {
                0 => {
                    fixture.table.delete(&key(), &sort_key(&text), soon()).await.expect("deleted");
                    expected.remove(&text);
                }
                1 => {
                    fixture.table.put(&item(&text, step + 10), soon()).await.expect("put");
                    expected.insert(text, step + 10);
                }
                2 => {
                    let created = fixture.table.create(&item(&text, step + 10), None, soon()).await;
                    assert_eq!(created.is_ok(), !expected.contains_key(&text), "{text}: {created:?}");
                    expected.entry(text).or_insert(step + 10);
                }
                _ => {
                    fixture.table.append(&item(&text, step + 10), soon()).await.expect("appended");
                    expected.insert(text, step + 10);
                }
            }
            assert_eq!(fixture.all().await, expected, "after step {step}");
        }
        match drained {
            Drained::Done { .. } => break,
            Drained::Nothing => panic!("nobody else drains"),
            Drained::Waiting { .. } => sleep(Duration::from_secs(45)).await,
            Drained::Working { .. } => {}
        }
    }
    assert!(step > 60, "the drain was cut into many invocations: {step}");
    let shards = fixture.by_shard().await;
    assert_eq!(shards.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(shards[&1].len(), expected.len(), "no copy is left");
}

#[tokio::test(start_paused = true)]
async fn a_settled_key_takes_point_writes_by_one_operation_again() {
    let fixture = fixture(|of_table| of_table.cold_append = false).await;
    fixture.append(numbered(0..60)).await;
    fixture.grow(8).await;
    fixture.append(numbered(60..200)).await;
    let put = async |text: &str, value| {
        let before = fixture.wire.operations().len();
        fixture.table.put(&item(text, value), soon()).await.expect("put");
        let operations = fixture.wire.operations();
        operations[before..].iter().filter(|operation| *operation == "TransactWriteItems").count()
    };
    let mut transactions = 0;
    for text in numbered(100..120) {
        transactions += put(&text, 2).await;
    }
    assert!(transactions > 10, "a grown key needs transactions: {transactions}");

    fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
    let told = fixture.drain().await;
    assert!(matches!(told.last(), Some(Drained::Done { goal: DrainGoal::Settle, .. })), "{told:?}");
    for (shard, texts) in fixture.by_shard().await {
        for text in texts {
            let home = Placement::Calculated.home(&key(), &sort_key(&text), count(8)).map(|home| home.get());
            assert_eq!(home, Some(shard), "{text} is at home");
        }
    }
    for text in numbered(100..120) {
        assert_eq!(put(&text, 3).await, 0, "{text} has one candidate");
    }
    let mut expected: BTreeMap<String, u64> = numbered(0..200).map(|text| (text, 1)).collect();
    expected.extend(numbered(100..120).map(|text| (text, 3)));
    assert_eq!(fixture.all().await, expected);

    // It grows again, and shrinks again, as any key does.
    fixture.grow(20).await;
    fixture.append(numbered(200..260)).await;
    assert_eq!(fixture.all().await.len(), 260);
    fixture.table.begin_shrink(&key(), count(2), soon()).await.expect("it begins");
    assert!(matches!(fixture.drain().await.last(), Some(Drained::Done { .. })));
    assert_eq!(fixture.all().await.len(), 260);
    assert_eq!(fixture.by_shard().await.keys().copied().collect::<Vec<_>>(), [1, 2]);
    for text in numbered(0..260) {
        assert!(
            fixture.table.get(&key(), &sort_key(&text), true, soon()).await.expect("an answer").is_some(),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_turns_hot_while_it_shrinks_is_wide_again_at_once() {
    let fixture = fixture(|_| {}).await;
    fixture.grow(8).await;
    fixture.append(numbered(0..100)).await;
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    sleep(Duration::from_secs(3)).await;
    let hot = Pressure { attempts: 200, throttled: 150, accepted: 50 };
    let widened = fixture.table.scale_by_policy(&key(), hot, soon()).await.expect("the tables answer");
    assert_eq!(widened, ScaleOutcome::Scaled { from: count(1), to: count(8) });
    assert_eq!(
        fixture.table.drain(&key(), soon()).await.expect("an answer"),
        Drained::Nothing,
        "the drain has stopped"
    );
    let metadata = fixture.table.shards(&key(), soon()).await.expect("an answer").expect("metadata");
    assert_eq!((metadata.number_of_shards, metadata.read_shards, metadata.draining), (count(8), count(8), false));
    assert_eq!(fixture.all().await.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_lower_width_is_a_candidate_for_the_length_of_a_lease_before_anybody_writes_by_it() {
    let fixture = fixture(|_| {}).await;
    fixture.grow(4).await;
    let widths = async || {
        let metadata = fixture.table.shards(&key(), soon()).await.expect("an answer").expect("metadata");
        (metadata.number_of_shards.get(), metadata.widths().any(|width| width == count(2)))
    };
    let began = tokio::time::Instant::now();
    let table = fixture.table.clone();
    let shrink = tokio::spawn(async move { table.begin_shrink(&key(), count(2), soon()).await });
    sleep(Duration::from_millis(100)).await;
    assert_eq!(widths().await, (4, true), "it is told, and not used");
    sleep(Duration::from_millis(800)).await;
    assert_eq!(widths().await, (4, true), "a view from before may still be relied on");
    shrink.await.expect("it ends").expect("it begins");
    assert!(began.elapsed() > sharding::MAX_LEASE, "{:?}", began.elapsed());
    assert_eq!(widths().await, (2, true));
}

#[tokio::test(start_paused = true)]
async fn a_settling_that_heat_stops_is_no_growth() {
    let fixture = fixture(|of_table| of_table.cold_append = false).await;
    fixture.grow(8).await;
    let grown = fixture.table.shards(&key(), soon()).await.expect("an answer").expect("metadata");
    sleep(Duration::from_secs(7_200)).await;
    fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
    let hot = Pressure { attempts: 200, throttled: 150, accepted: 50 };
    let stopped = fixture.table.scale_by_policy(&key(), hot, soon()).await.expect("the tables answer");
    assert_eq!(stopped, ScaleOutcome::Scaled { from: count(8), to: count(8) });
    let metadata = fixture.table.shards(&key(), soon()).await.expect("an answer").expect("metadata");
    assert_eq!((metadata.last_updated, metadata.draining), (grown.last_updated, false));
    let widened = fixture.table.scale_by_policy(&key(), hot, soon()).await.expect("the tables answer");
    assert!(matches!(widened, ScaleOutcome::Scaled { to, .. } if to > count(20)), "{widened:?}");
}

/// As the local edition does it: leases and bounds end a second before the waits.
fn short_waits(of_table: &mut TableConfig) {
    of_table.append_lease = Duration::from_secs(4);
    of_table.longest_read = Duration::from_secs(4);
    of_table.drain.wait_for_writers = Duration::from_secs(5);
    of_table.drain.wait_for_reads = Duration::from_secs(5);
}

#[tokio::test(start_paused = true)]
async fn with_shorter_waits_a_writer_with_an_older_view_does_not_store_on_a_shard_that_was_given_up() {
    let fixture = fixture(short_waits).await;
    fixture.grow(8).await;
    fixture.append(numbered(0..40)).await;
    // Another instance, with views of its own.
    let client = clients_over(fixture.wire.clone().into_shared()).dynamodb;
    let other = ShardedTable::with_environment(
        &client,
        fixture.table.config().clone(),
        Environment::seeded(TestClock::default(), 8),
    );
    other.put(&item("order-9999", 1), soon()).await.expect("stored");
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    let began = tokio::time::Instant::now();
    loop {
        let drained = fixture.table.drain(&key(), soon()).await.expect("the tables answer");
        if matches!(drained, Drained::Done { .. }) {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    let took = began.elapsed();
    assert!(took > Duration::from_secs(10) && took < Duration::from_secs(20), "{took:?}");
    for text in numbered(100..120) {
        other.append(&item(&text, 1), soon()).await.expect("stored");
    }
    assert_eq!(fixture.by_shard().await.keys().copied().collect::<Vec<_>>(), [1]);
}

#[tokio::test(start_paused = true)]
async fn with_shorter_waits_a_read_that_took_longer_than_its_bound_claims_nothing() {
    let engine = Engine::in_memory().expect("an engine");
    create_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &config()).await.expect("tables");
    let slow = |call: &Call| if call.operation == "Query" { Fate::Delay(Duration::from_secs(2)) } else { Fate::Pass };
    let client = clients_over(Wire::new(InProcess::new(engine), slow).into_shared()).dynamodb;
    let mut of_table = config();
    short_waits(&mut of_table);
    let clock = TestClock::default();
    let table = ShardedTable::with_environment(&client, of_table, Environment::seeded(clock.clone(), 7));
    table.append(&item("order-1", 1), soon()).await.expect("stored");
    let read = async |frozen| {
        let (table, query) = (table.clone(), PageQuery { consistent: true, ..PageQuery::new(key()) });
        let page = tokio::spawn(async move { table.query(&query, soon()).await });
        sleep(Duration::from_secs(1)).await;
        clock.jump(frozen);
        page.await.expect("it ends")
    };
    assert_eq!(read(Duration::from_secs(1)).await.expect("a page").items.len(), 1);
    let late = read(Duration::from_secs(3)).await;
    assert!(matches!(late, Err(ReadError::Capacity(_))), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_takes_longer_to_move_than_the_lease_lasts_is_moved_all_the_same() {
    let fixture = fixture(|of_table| {
        short_waits(of_table);
        of_table.drain.units_per_second = 80;
    })
    .await;
    fixture.grow(2).await;
    fixture.append(numbered(0..300)).await;
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    let on = async || {
        let long = Deadline::now() + Duration::from_secs(100);
        fixture.table.drain(&key(), long).await.expect("the tables answer")
    };
    for step in [DrainStep::WaitOutWriters, DrainStep::WaitOutReads] {
        let drained = on().await;
        assert!(matches!(drained, Drained::Waiting { step: at, .. } if at == step), "{step:?}: {drained:?}");
        sleep(Duration::from_secs(7)).await;
    }
    let drained = on().await;
    assert!(matches!(drained, Drained::Done { .. }), "{drained:?}");
    assert_eq!(fixture.by_shard().await.values().map(Vec::len).collect::<Vec<_>>(), [300]);
}

#[tokio::test(start_paused = true)]
async fn a_key_shrinks_under_every_placement() {
    for placement in [Placement::Random, Placement::ModuloSha256, Placement::ModuloMd5, Placement::CodePoints] {
        let fixture = fixture(|of_table| of_table.placement = placement).await;
        fixture.append(numbered(0..40)).await;
        fixture.grow(9).await;
        fixture.append(numbered(40..160)).await;
        for to in [5, 1] {
            fixture.table.begin_shrink(&key(), count(to), soon()).await.expect("it begins");
            assert!(matches!(fixture.drain().await.last(), Some(Drained::Done { .. })), "{placement:?}");
            sleep(Duration::from_secs(5)).await;
            let shards = fixture.by_shard().await;
            assert!(shards.keys().all(|shard| *shard <= to), "{placement:?}: {:?}", shards.keys());
            assert_eq!(shards.values().map(Vec::len).sum::<usize>(), 160, "{placement:?}");
            assert_eq!(fixture.all().await.len(), 160, "{placement:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_expires_is_not_moved() {
    let fixture = fixture(|of_table| of_table.ttl_attribute = Some("expires".to_owned())).await;
    fixture.grow(8).await;
    let began = fixture.table.shards(&key(), soon()).await.expect("an answer").expect("metadata").last_updated;
    for (index, text) in numbered(0..90).enumerate() {
        let mut item = item(&text, 1);
        // A third has expired, a third will within the hour, a third stays for years.
        let expires = [began.saturating_sub(100), began + 3_000, began + 100_000_000][index % 3];
        item.attributes.insert("expires".to_owned(), Value::N(expires.to_string()));
        fixture.table.append(&item, soon()).await.expect("stored");
    }
    let before = fixture.by_shard().await;
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    let told = fixture.drain().await;
    let waited = told.iter().any(
        |one| matches!(one, Drained::Waiting { step: DrainStep::DeleteOldCopies, until } if *until == began + 3_000),
    );
    assert!(waited, "{told:?}");
    assert!(matches!(told.last(), Some(Drained::Done { .. })), "{told:?}");
    let after = fixture.by_shard().await;
    assert_eq!(after.keys().copied().collect::<Vec<_>>(), [1]);
    for (index, text) in numbered(0..90).enumerate() {
        let stands = after[&1].contains(&text);
        assert_eq!(stands, index % 3 == 2 || before[&1].contains(&text), "{text}: only what stays was moved");
    }
}

#[tokio::test(start_paused = true)]
async fn what_will_expire_stands_until_then_though_it_was_written_anew_at_home() {
    let fixture = fixture(|of_table| of_table.ttl_attribute = Some("expires".to_owned())).await;
    fixture.grow(8).await;
    let began = fixture.table.shards(&key(), soon()).await.expect("an answer").expect("metadata").last_updated;
    let expires = began + 3_000;
    let short_lived = |text: &str, value| {
        let mut item = item(text, value);
        item.attributes.insert("expires".to_owned(), Value::N(expires.to_string()));
        item
    };
    for text in numbered(0..40) {
        fixture.table.append(&short_lived(&text, 1), soon()).await.expect("stored");
    }
    let before = fixture.by_shard().await;
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    while !matches!(
        fixture.table.drain(&key(), soon()).await.expect("an answer"),
        Drained::Waiting { step: DrainStep::WaitOutReads, .. }
    ) {
        sleep(Duration::from_secs(60)).await;
    }
    // A read that began now may have asked shard 1 already. It finds what stands elsewhere, and must go on doing so.
    for text in numbered(0..40) {
        fixture.table.append(&short_lived(&text, 2), soon()).await.expect("stored");
    }
    while fixture.clock.now().epoch_seconds() < expires - 70 {
        fixture.table.drain(&key(), soon()).await.expect("an answer");
        let now = fixture.by_shard().await;
        for (shard, texts) in before.iter().filter(|(shard, _)| **shard > 1) {
            assert_eq!(now.get(shard), Some(texts), "shard {shard}");
        }
        sleep(Duration::from_secs(60)).await;
    }
    assert!(matches!(fixture.drain().await.last(), Some(Drained::Done { .. })));
    assert_eq!(fixture.by_shard().await.keys().copied().collect::<Vec<_>>(), [1]);
}

#[tokio::test(start_paused = true)]
async fn what_is_prolonged_again_and_again_is_moved_in_the_end() {
    let fixture = fixture(|of_table| of_table.ttl_attribute = Some("expires".to_owned())).await;
    fixture.grow(8).await;
    let begun = fixture.table.shards(&key(), soon()).await.expect("an answer").expect("metadata").last_updated;
    let started = tokio::time::Instant::now();
    let put = async |text: &str| {
        let mut item = item(text, 1);
        let expires = begun + started.elapsed().as_secs() + 1_800;
        item.attributes.insert("expires".to_owned(), Value::N(expires.to_string()));
        fixture.table.put(&item, soon()).await.expect("put");
    };
    for text in numbered(0..30) {
        put(&text).await;
    }
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    loop {
        assert!(started.elapsed() < Duration::from_secs(3 * 3_600), "the drain does not end");
        match fixture.table.drain(&key(), soon()).await.expect("the tables answer") {
            Drained::Done { .. } => break,
            Drained::Nothing => panic!("nobody else drains"),
            Drained::Waiting { .. } | Drained::Working { .. } => {}
        }
        for text in numbered(0..30) {
            put(&text).await;
        }
        sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(fixture.all().await.len(), 30);
    assert_eq!(fixture.by_shard().await.keys().copied().collect::<Vec<_>>(), [1]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_begin_is_told() {
    let fixture = fixture(|_| {}).await;
    let refused = fixture.table.begin_shrink(&key(), count(1), soon()).await;
    assert!(matches!(refused, Err(DrainRefused::NotLower { .. })), "a key without metadata: {refused:?}");
    fixture.grow(4).await;
    let refused = fixture.table.begin_shrink(&key(), count(4), soon()).await;
    assert!(matches!(refused, Err(DrainRefused::NotLower { .. })), "{refused:?}");
    let refused = fixture.table.begin_settle(&key(), soon()).await;
    assert!(matches!(refused, Err(DrainRefused::ColdAppend)), "{refused:?}");
    fixture.table.begin_shrink(&key(), count(2), soon()).await.expect("it begins");
    let refused = fixture.table.begin_shrink(&key(), count(1), soon()).await;
    assert!(matches!(refused, Err(DrainRefused::Busy(_))), "{refused:?}");
}
