//! Paging with any limit, order, range and number of shards, while the width grows between pages:
//! every item that exists throughout is returned once and in order.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sharding::internal::{PageQuery, TableEngine};
use sharding::{Attributes, Item, Order, PartitionKey, SortKey};
use system_tests::{Tables, config, count, partition_key, soon, sort_key};

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
    partition_key("k")
}

fn numbered(number: u32) -> SortKey {
    sort_key(&format!("{number:05}"))
}

async fn store(table: &TableEngine, number: u32) {
    let item =
        Item { partition_key: key(), sort_key: numbered(number), attributes: Attributes::new() };
    table.put(&item, soon()).await.expect("stored");
}

async fn act(table: &TableEngine, between: Between) {
    match between {
        Between::Nothing => {}
        Between::Grow(by) => {
            let metadata = table.shards(&key(), soon()).await.expect("read");
            let width = metadata.map_or(1, |metadata| metadata.number_of_shards.get());
            table.set_shards(&key(), count(width + by), soon()).await.expect("grown");
        }
        Between::Store(number) => store(table, number).await,
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
    let tables = Tables::unclaimed(config()).await;
    tables.set_unlimited();
    let table = tables.instance(1);
    // Some items are at their home under width 1, and the others at their home under the current
    // width.
    for (index, number) in case.lasting.iter().enumerate() {
        if index == case.lasting.len() / 3 && case.width > 1 {
            table.set_shards(&key(), count(case.width), soon()).await.expect("grown");
        }
        store(&table, *number).await;
    }
    let mut query =
        PageQuery { limit: case.limit, consistent: case.consistent, ..PageQuery::new(key()) };
    query.order = if case.descending { Order::Descending } else { Order::Ascending };
    let inside: Box<dyn Fn(u32) -> bool> = if case.prefix {
        query.prefix = Some("002".into());
        Box::new(|number| (200..300).contains(&number))
    } else {
        let (from, to) = case.range;
        (query.from, query.to) = (from.map(numbered), to.map(numbered));
        Box::new(move |number| {
            from.is_none_or(|from| from <= number) && to.is_none_or(|to| number <= to)
        })
    };
    let (mut seen, mut between) = (Vec::new(), case.between.iter());
    loop {
        let page = table.query(&query, soon()).await.expect("a page");
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
        act(&table, between.next().copied().unwrap_or(Between::Nothing)).await;
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
