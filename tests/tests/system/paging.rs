//! Paging with any limit, order, range and number of shards, while the width grows between pages:
//! every item that exists throughout is returned once and in order.

use std::collections::BTreeSet;
use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::in_process_clients;
use proptest::prelude::*;
use sharding::internal::{Deadline, Environment, PageQuery, TableEngine};
use sharding::{
    Attributes, Item, Order, PartitionKey, ShardCount, SortKey, SortKeyType, create_tables,
};
use system_tests::{TestClock, config};

/// The event between two pages.
#[derive(Debug, Clone, Copy)]
enum Between {
    Nothing,
    Grow(u32),
    /// Stores an item that did not exist from the beginning.
    Store(u32),
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        2 => Just(Between::Nothing),
        2 => (1u32..12).prop_map(Between::Grow),
        2 => (0u32..400).prop_map(Between::Store),
    ]
}

fn key() -> PartitionKey {
    PartitionKey::new("k").expect("a key")
}

fn sort_key(number: u32) -> SortKey {
    SortKey::parse(SortKeyType::String, &format!("{number:05}")).expect("a sort key")
}

fn count(shards: u32) -> ShardCount {
    ShardCount::new(shards).expect("a count")
}

fn soon() -> Deadline {
    Deadline::now() + Duration::from_secs(60)
}

struct World {
    table: TableEngine,
}

impl World {
    async fn new(seed: u64) -> Self {
        let engine = Engine::in_memory().expect("an engine");
        let limits = PartitionLimits {
            partitions: 1,
            write_units: 1e9,
            read_units: 1e9,
            ..PartitionLimits::default()
        };
        engine.set_limits([("items".to_owned(), limits), ("items-metadata".to_owned(), limits)]);
        let client = in_process_clients(&InProcess::new(engine)).dynamodb;
        create_tables(&client, &config()).await.expect("tables");
        let environment = Environment::seeded(TestClock::default(), seed);
        Self { table: TableEngine::with_environment(&client, config(), environment) }
    }

    async fn store(&self, number: u32) {
        let item = Item {
            partition_key: key(),
            sort_key: sort_key(number),
            attributes: Attributes::new(),
        };
        self.table.put(&item, soon()).await.expect("stored");
    }

    async fn width(&self) -> u32 {
        let metadata = self.table.shards(&key(), soon()).await.expect("read");
        metadata.map_or(1, |metadata| metadata.number_of_shards.get())
    }

    async fn act(&self, between: Between) {
        let width = self.width().await;
        match between {
            Between::Nothing => {}
            Between::Grow(by) => {
                self.table.set_shards(&key(), count(width + by), soon()).await.expect("grown");
            }
            Between::Store(number) => self.store(number).await,
        }
    }
}

#[derive(Debug, Clone)]
struct Case {
    lasting: BTreeSet<u32>,
    width: u32,
    limit: usize,
    descending: bool,
    range: (Option<u32>, Option<u32>),
    prefix: bool,
    between: Vec<Between>,
    consistent: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let lasting = prop_oneof![
        proptest::collection::btree_set(0u32..400, 0..150),
        // Evenly spaced, so that the reader can predict the ends of pages.
        (1u32..150).prop_map(|n| (0..n).map(|i| 2 * i).collect()),
    ];
    let range = (proptest::option::of(0u32..200), proptest::option::of(200u32..400));
    let between = proptest::collection::vec(between(), 0..12);
    (lasting, 1u32..20, 1usize..60, any::<bool>(), range, any::<bool>(), between, any::<bool>())
        .prop_map(|(lasting, width, limit, descending, range, prefix, between, consistent)| Case {
            lasting,
            width,
            limit,
            descending,
            range,
            prefix,
            between,
            consistent,
        })
}

async fn scan(case: &Case) -> Result<(), TestCaseError> {
    let world = World::new(1).await;
    // Some items are at their home under width 1, and the others at their home under the current
    // width.
    for (index, number) in case.lasting.iter().enumerate() {
        if index == case.lasting.len() / 3 && case.width > 1 {
            world.table.set_shards(&key(), count(case.width), soon()).await.expect("grown");
        }
        world.store(*number).await;
    }
    let mut query =
        PageQuery { limit: case.limit, consistent: case.consistent, ..PageQuery::new(key()) };
    query.order = if case.descending { Order::Descending } else { Order::Ascending };
    let inside: Box<dyn Fn(u32) -> bool> = if case.prefix {
        query.prefix = Some("002".into());
        Box::new(|number| (200..300).contains(&number))
    } else {
        let (from, to) = case.range;
        (query.from, query.to) = (from.map(sort_key), to.map(sort_key));
        Box::new(move |number| {
            from.is_none_or(|from| from <= number) && to.is_none_or(|to| number <= to)
        })
    };
    let (mut seen, mut between) = (Vec::new(), case.between.iter());
    loop {
        let page = world.table.query(&query, soon()).await.expect("a page");
        prop_assert!(page.items.len() <= case.limit);
        seen.extend(
            page.items
                .iter()
                .map(|item| item.sort_key.to_string().parse::<u32>().expect("a number")),
        );
        match page.next {
            None => break,
            next => query.after = next,
        }
        world.act(between.next().copied().unwrap_or(Between::Nothing)).await;
    }
    let in_order =
        |pair: &[u32]| if case.descending { pair[0] > pair[1] } else { pair[0] < pair[1] };
    prop_assert!(seen.windows(2).all(in_order), "in order, each once: {seen:?}");
    prop_assert!(seen.iter().all(|number| inside(*number)), "inside the range: {seen:?}");
    let seen: BTreeSet<u32> = seen.into_iter().collect();
    let missed: Vec<u32> = case
        .lasting
        .iter()
        .copied()
        .filter(|number| inside(*number) && !seen.contains(number))
        .collect();
    prop_assert!(missed.is_empty(), "missed: {missed:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn every_lasting_item_is_returned_once_and_in_order(case in case()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(scan(&case))?;
    }
}
