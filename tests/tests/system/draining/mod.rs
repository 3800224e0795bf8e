//! Shrinking and settling on the real code over the embedded engine, in virtual time: what moves, what stays, and what the metadata says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess};
use local::{clients_over, create_tables, in_process_clients};
use sharding::internal::{
    Attributes, Clock, Deadline, DrainRefused, Drained, Environment, Item, PageQuery, PartitionKey, Placement,
    Pressure, ReadError, ScaleOutcome, ShardMetadata, TableConfig, TableEngine, Value, Writes,
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
    table: TableEngine,
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
    let table = TableEngine::with_environment(&client, of_table, Environment::seeded(clock.clone(), 7));
    Fixture { engine, table, wire, clock }
}

impl Fixture {
    async fn grow(&self, to: u32) {
        let grown = self.table.set_shards(&key(), count(to), soon()).await.expect("the tables answer");
        assert!(matches!(grown, ScaleOutcome::Scaled { .. }), "{grown:?}");
        sleep(Duration::from_secs(5)).await;
    }

    async fn store(&self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.table.put(&item(&text, 1), soon()).await.expect("stored");
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

    /// An instance that knows nothing yet, on the same clock.
    fn another_instance(&self) -> TableEngine {
        let client = clients_over(self.wire.clone().into_shared()).dynamodb;
        let environment = Environment::seeded(self.clock.clone(), 8);
        TableEngine::with_environment(&client, self.table.config().clone(), environment)
    }

    async fn metadata(&self) -> ShardMetadata {
        self.table.shards(&key(), soon()).await.expect("an answer").expect("metadata")
    }

    /// That every item is where a write would put it, once, and nothing stands elsewhere.
    async fn assert_all_are_at_home(&self, items: usize) {
        let width = self.metadata().await.number_of_shards;
        let by_shard = self.by_shard().await;
        for (shard, text) in by_shard.iter().flat_map(|(shard, texts)| texts.iter().map(move |text| (shard, text))) {
            let home = Placement::Calculated.home(&key(), &sort_key(text), width).map(|home| home.get());
            assert_eq!(home, Some(*shard), "{text} is at home");
        }
        assert_eq!(by_shard.values().map(Vec::len).sum::<usize>(), items, "no item is doubled");
    }

    /// Requests of the era before are waited out before a drain begins.
    async fn wait_out_the_change(&self) {
        let config = self.table.config();
        sleep(config.drain.wait_for_requests + config.lease.max(config.append_lease) + Duration::from_secs(2)).await;
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
async fn a_shrink_brings_every_item_home_and_forgets_the_other_places() {
    let fixture = fixture(|_| {}).await;
    fixture.store(numbered(0..40)).await;
    fixture.grow(5).await;
    fixture.store(numbered(40..120)).await;
    fixture.grow(16).await;
    fixture.store(numbered(120..400)).await;
    let before = fixture.by_shard().await;
    assert!(before.len() > 12, "{before:?}");

    let marked = fixture.table.begin_shrink(&key(), count(4), soon()).await.expect("it begins");
    assert_eq!((marked.number_of_shards, marked.read_shards), (count(4), count(16)));
    assert!(marked.draining().is_some());
    assert_eq!(fixture.all().await.len(), 400, "readers look everywhere");
    let began = tokio::time::Instant::now();
    let told = fixture.drain().await;
    let waited: BTreeSet<u64> = told
        .iter()
        .filter_map(|one| match one {
            Drained::Waiting { until } => Some(*until),
            Drained::Nothing | Drained::Working { .. } | Drained::Done { .. } => None,
        })
        .collect();
    assert!(waited.len() >= 2, "for reads, and for requests: {told:?}");
    let pace = fixture.table.config().drain;
    assert!(began.elapsed() > pace.wait_for_reads + pace.wait_for_requests, "{:?}", began.elapsed());
    let Some(Drained::Done { from, to, .. }) = told.last() else { panic!("{told:?}") };
    assert_eq!((*from, *to), (count(16), count(4)));

    let after = fixture.by_shard().await;
    assert_eq!(after.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
    fixture.assert_all_are_at_home(400).await;
    for (shard, kept) in before.iter().filter(|(shard, _)| (2..=4).contains(*shard)) {
        assert!(kept.iter().all(|sort_key| after[shard].contains(sort_key)), "what was on shard {shard} stays");
    }
    assert_eq!(fixture.all().await.into_keys().collect::<Vec<_>>(), numbered(0..400).collect::<Vec<_>>());
    for text in ["order-0007", "order-0100", "order-0399"] {
        let found = fixture.table.get(&key(), &sort_key(text), true, soon()).await.expect("an answer");
        assert!(found.is_some(), "{text}");
    }
    let metadata = fixture.metadata().await;
    let widths: Vec<u32> = metadata.shard_history.entries().map(|entry| entry.count.get()).collect();
    assert_eq!((metadata.draining(), metadata.settled, widths), (None, true, vec![4]));
}

#[tokio::test(start_paused = true)]
async fn writes_and_reads_go_on_while_a_key_shrinks() {
    let fixture = fixture(|of_table| of_table.drain.units_per_second = 80).await;
    fixture.grow(12).await;
    fixture.store(numbered(0..300)).await;
    let mut expected: BTreeMap<String, u64> = numbered(0..300).map(|text| (text, 1)).collect();
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    let mut step = 0u64;
    for call in 0.. {
        // Short invocations: each is cut off in the middle of something. The last ones have time to remove the tombstones.
        let lasts = Duration::from_millis(if call < 20 { 3_500 } else { 20_000 });
        let drained = fixture.table.drain(&key(), Deadline::now() + lasts).await.expect("it goes on");
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
                    fixture.table.put_once(&item(&text, step + 10), soon()).await.expect("stored");
                    // Where anything of it stands, a tombstone too, an earlier request has stored it.
                    let stands = fixture.table.get(&key(), &sort_key(&text), true, soon()).await.expect("an answer");
                    if stands.is_some() {
                        expected.entry(text).or_insert(step + 10);
                    }
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
async fn a_settled_key_has_every_item_at_home_and_looks_nowhere_else() {
    let fixture = fixture(|_| {}).await;
    fixture.store(numbered(0..60)).await;
    fixture.grow(8).await;
    fixture.store(numbered(60..200)).await;
    let requests = async |text: &str| {
        let before = fixture.wire.operations().len();
        fixture.table.create(&item(text, 2), None, soon()).await.expect("nothing stood");
        fixture.wire.operations().split_off(before)
    };
    let mut looked = 0;
    for text in numbered(200..220) {
        let requests = requests(&text).await;
        assert_eq!(requests.last().map(String::as_str), Some("PutItem"), "{requests:?}");
        looked += requests.len() - 1;
    }
    assert!(looked > 10, "a creation looks at the old places of a grown key: {looked}");

    fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
    let told = fixture.drain().await;
    let Some(Drained::Done { from, to, .. }) = told.last() else { panic!("{told:?}") };
    assert_eq!((*from, *to), (count(8), count(8)));
    fixture.assert_all_are_at_home(220).await;
    for text in numbered(220..240) {
        assert_eq!(requests(&text).await, ["PutItem"], "{text} has one candidate");
    }
    let mut expected: BTreeMap<String, u64> = numbered(0..240).map(|text| (text, 1)).collect();
    expected.extend(numbered(200..240).map(|text| (text, 2)));
    assert_eq!(fixture.all().await, expected);

    // It grows again, and shrinks again, as any key does.
    fixture.grow(20).await;
    fixture.store(numbered(240..300)).await;
    assert_eq!(fixture.all().await.len(), 300);
    fixture.table.begin_shrink(&key(), count(2), soon()).await.expect("it begins");
    assert!(matches!(fixture.drain().await.last(), Some(Drained::Done { .. })));
    assert_eq!(fixture.all().await.len(), 300);
    fixture.assert_all_are_at_home(300).await;
    for text in numbered(0..300) {
        assert!(
            fixture.table.get(&key(), &sort_key(&text), true, soon()).await.expect("an answer").is_some(),
            "{text}"
        );
    }
}

/// A deleted item leaves a tombstone while older copies may stand, and none when the key is settled.
#[tokio::test(start_paused = true)]
async fn what_was_deleted_stays_deleted_and_leaves_nothing_behind() {
    let fixture = fixture(|_| {}).await;
    fixture.store(numbered(0..60)).await;
    fixture.grow(8).await;
    let delete = async |text: &str| {
        fixture.table.delete(&key(), &sort_key(text), soon()).await.expect("deleted");
    };
    for text in numbered(0..30) {
        delete(&text).await;
    }
    assert_eq!(fixture.all().await.len(), 30, "the copies on shard 1 are hidden");
    fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
    for text in numbered(30..40) {
        delete(&text).await;
    }
    assert!(matches!(fixture.drain().await.last(), Some(Drained::Done { .. })));
    assert_eq!(fixture.all().await.into_keys().collect::<Vec<_>>(), numbered(40..60).collect::<Vec<_>>());
    fixture.assert_all_are_at_home(20).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_turns_hot_while_it_is_drained_is_wide_again() {
    for shrinks in [true, false] {
        let fixture = fixture(|_| {}).await;
        fixture.store(numbered(0..50)).await;
        fixture.grow(8).await;
        fixture.store(numbered(50..100)).await;
        if shrinks {
            fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
        } else {
            // Long after its growth, so that heat does not say that it has not helped.
            sleep(Duration::from_secs(7_200)).await;
            fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
        }
        fixture.table.drain(&key(), soon()).await.expect("an answer");
        sleep(Duration::from_secs(3)).await;
        let hot = Pressure { attempts: 200, throttled: 150, accepted: 50 };
        let widened = fixture.table.scale_by_policy(&key(), hot, soon()).await.expect("the tables answer");
        assert!(matches!(widened, ScaleOutcome::Scaled { to, .. } if to >= count(8)), "{widened:?}");
        let drained = fixture.table.drain(&key(), soon()).await.expect("an answer");
        assert_eq!(drained, Drained::Nothing, "the drain has been cut off");
        let metadata = fixture.metadata().await;
        assert_eq!(metadata.number_of_shards, metadata.read_shards, "{metadata:?}");
        let stopped_at = metadata.drain_stopped_at.expect("a request of the drain may be under way");
        assert_eq!(fixture.all().await.len(), 100);

        // The next drain waits such requests out before it moves anything.
        sleep(Duration::from_secs(3)).await;
        fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
        let before = fixture.by_shard().await;
        let drained = fixture.table.drain(&key(), soon()).await.expect("an answer");
        let wait = fixture.table.config().drain.wait_for_requests.as_secs();
        assert!(matches!(drained, Drained::Waiting { until } if until >= stopped_at + wait), "{drained:?}");
        assert_eq!(fixture.by_shard().await, before);
        assert!(matches!(fixture.drain().await.last(), Some(Drained::Done { .. })));
        fixture.assert_all_are_at_home(100).await;
    }
}

/// What an instance has seen at home stays in its memory: who takes over looks itself, and not while the first is taken to be at work.
#[tokio::test(start_paused = true)]
async fn who_takes_a_drain_over_makes_a_pass_of_its_own() {
    let fixture = fixture(|_| {}).await;
    fixture.store(numbered(0..80)).await;
    fixture.grow(8).await;
    fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
    let first = fixture.table.clone();
    let second = fixture.another_instance();
    let on = async |table: &TableEngine| {
        let drained = table.drain(&key(), soon()).await.expect("the tables answer");
        let Drained::Waiting { until } = drained else { panic!("{drained:?}") };
        until
    };
    let now = || fixture.clock.now().epoch_seconds();
    let until = async |second: u64| sleep(Duration::from_secs(second.saturating_sub(now()) + 1)).await;
    fixture.wait_out_the_change().await;
    let reads_have_ended = on(&first).await;
    let first_is_away = on(&second).await;
    assert!(first_is_away > reads_have_ended, "{first_is_away} {reads_have_ended}");
    until(first_is_away).await;
    let copied = fixture.by_shard().await;
    let its_reads_have_ended = on(&second).await;
    assert!(its_reads_have_ended >= now() + fixture.table.config().drain.wait_for_reads.as_secs());
    assert_eq!(fixture.by_shard().await, copied, "nothing is deleted by what another has seen");
    assert!(on(&first).await > its_reads_have_ended, "the first leaves the key to the second");
    until(its_reads_have_ended).await;
    until(on(&second).await).await;
    let done = first.drain(&key(), soon()).await.expect("the tables answer");
    assert!(matches!(done, Drained::Done { .. }), "the last look is anybody's: {done:?}");
    fixture.assert_all_are_at_home(80).await;
}

#[tokio::test(start_paused = true)]
async fn a_lower_width_is_a_candidate_for_the_length_of_a_lease_before_anybody_writes_by_it() {
    let fixture = fixture(|_| {}).await;
    fixture.grow(4).await;
    let widths = async || {
        let metadata = fixture.metadata().await;
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
    assert!(began.elapsed() > sharding::internal::MAX_LEASE, "{:?}", began.elapsed());
    assert_eq!(widths().await, (2, true));
}

/// As the local edition does it: leases and bounds end a second before the waits.
fn short_waits(of_table: &mut TableConfig) {
    of_table.append_lease = Duration::from_secs(4);
    of_table.longest_read = Duration::from_secs(4);
    of_table.drain.wait_for_requests = Duration::from_secs(5);
    of_table.drain.wait_for_reads = Duration::from_secs(5);
}

#[tokio::test(start_paused = true)]
async fn with_shorter_waits_a_writer_with_an_older_view_does_not_store_on_a_shard_that_was_given_up() {
    // Requests of the era before, and reads where something moves; the lease, and what whole seconds add. Appends are waited out once more.
    for (writes, least, most) in [(Writes::Items, 11, 17), (Writes::Appends, 20, 30)] {
        let fixture = fixture(|of_table| {
            short_waits(of_table);
            of_table.writes = writes;
        })
        .await;
        fixture.grow(8).await;
        fixture.store(numbered(0..40)).await;
        // Another instance, with views of its own.
        let other = fixture.another_instance();
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
        assert!(took > Duration::from_secs(least) && took < Duration::from_secs(most), "{writes:?}: {took:?}");
        for text in numbered(100..120) {
            other.put(&item(&text, 1), soon()).await.expect("stored");
        }
        assert_eq!(fixture.by_shard().await.keys().copied().collect::<Vec<_>>(), [1], "{writes:?}");
    }
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
    let table = TableEngine::with_environment(&client, of_table, Environment::seeded(clock.clone(), 7));
    table.put(&item("order-1", 1), soon()).await.expect("stored");
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
    fixture.store(numbered(0..300)).await;
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    let on = async || {
        let long = Deadline::now() + Duration::from_secs(100);
        fixture.table.drain(&key(), long).await.expect("the tables answer")
    };
    for what in ["requests of the era before", "reads"] {
        let drained = on().await;
        assert!(matches!(drained, Drained::Waiting { .. }), "for {what}: {drained:?}");
        sleep(Duration::from_secs(8)).await;
    }
    let drained = on().await;
    assert!(matches!(drained, Drained::Done { .. }), "{drained:?}");
    assert_eq!(fixture.by_shard().await.values().map(Vec::len).collect::<Vec<_>>(), [300]);
}

#[tokio::test(start_paused = true)]
async fn a_key_shrinks_under_every_placement() {
    for placement in [Placement::Random, Placement::ModuloSha256, Placement::ModuloMd5, Placement::CodePoints] {
        let fixture = fixture(|of_table| of_table.placement = placement).await;
        fixture.store(numbered(0..40)).await;
        fixture.grow(9).await;
        fixture.store(numbered(40..160)).await;
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
    let began = fixture.metadata().await.last_updated;
    for (index, text) in numbered(0..90).enumerate() {
        let mut item = item(&text, 1);
        // A third has expired, a third will within the hour, a third stays for years.
        let expires = [began.saturating_sub(100), began + 3_000, began + 100_000_000][index % 3];
        item.attributes.insert("expires".to_owned(), Value::N(expires.to_string()));
        fixture.table.put(&item, soon()).await.expect("stored");
    }
    let before = fixture.by_shard().await;
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    let told = fixture.drain().await;
    let waited = told.iter().any(|one| matches!(one, Drained::Waiting { until } if *until == began + 3_000));
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
    let began = fixture.metadata().await.last_updated;
    let expires = began + 3_000;
    let short_lived = |text: &str, value| {
        let mut item = item(text, value);
        item.attributes.insert("expires".to_owned(), Value::N(expires.to_string()));
        item
    };
    for text in numbered(0..40) {
        fixture.table.put(&short_lived(&text, 1), soon()).await.expect("stored");
    }
    let before = fixture.by_shard().await;
    fixture.table.begin_shrink(&key(), count(1), soon()).await.expect("it begins");
    fixture.wait_out_the_change().await;
    let drained = fixture.table.drain(&key(), soon()).await.expect("an answer");
    assert_eq!(drained, Drained::Waiting { until: expires }, "nothing is moved");
    // A read that began now may have asked shard 1 already. It finds what stands elsewhere, and must go on doing so.
    for text in numbered(0..40) {
        fixture.table.put(&short_lived(&text, 2), soon()).await.expect("stored");
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
    let begun = fixture.metadata().await.last_updated;
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
    fixture.table.begin_shrink(&key(), count(2), soon()).await.expect("it begins");
    for refused in
        [fixture.table.begin_shrink(&key(), count(1), soon()).await, fixture.table.begin_settle(&key(), soon()).await]
    {
        assert!(matches!(refused, Err(DrainRefused::Busy(_))), "{refused:?}");
    }
    for (placement, writes) in [(Placement::Calculated, Writes::Appends), (Placement::Random, Writes::Items)] {
        let appends = self::fixture(|of_table| (of_table.placement, of_table.writes) = (placement, writes)).await;
        appends.grow(4).await;
        let refused = appends.table.begin_settle(&key(), soon()).await;
        assert!(matches!(refused, Err(DrainRefused::NoHomes)), "{placement:?} {writes:?}: {refused:?}");
    }
}
