//! The cost of the pure core: the merge of pages, and the placement of items. What a request costs
//! beside a bare one is held by tests (`tests/system/costs.rs`).

#![expect(clippy::print_stdout, reason = "the rows are the product of a benchmark")]

use std::hint::black_box;

use sharding::internal::protocol::merge::{PageMerge, ShardPage, Stored};
use sharding::{Order, Placement, ShardNumber, SortKey, Version};
use system_tests::{count, median, partition_key, sort_key};
use tokio::time::Instant;

fn main() {
    merge();
    placement();
}

fn numbered(number: usize) -> SortKey {
    sort_key(&format!("{number:012}"))
}

/// Pages of 1,000 items from 64 shards.
fn merge() {
    const SHARDS: u32 = 64;
    const LIMIT: usize = 1_000;
    const ROUNDS: usize = 400;
    let count = count(SHARDS);
    let shards: Vec<ShardNumber> = count.shards().collect();
    let mut responses: Vec<Vec<Stored<usize>>> = shards.iter().map(|_| Vec::new()).collect();
    let key = partition_key("k");
    for number in 0..2 * LIMIT {
        let sort_key = numbered(number);
        let home = Placement::Calculated.home(&key, &sort_key, count).expect("a home");
        let stored = Stored { sort_key, version: Version::NONE, item: Some(number) };
        responses[home.get() as usize - 1].push(stored);
    }
    let mut nanos = Vec::new();
    for _ in 0..ROUNDS {
        let mut merge = PageMerge::new(LIMIT, Order::Ascending, None);
        merge.add_shards(shards.iter().copied());
        drop(merge.requests());
        let pages: Vec<_> =
            responses.iter().map(|items| ShardPage { items: items.clone(), next: None }).collect();
        let begun = Instant::now();
        for (shard, page) in shards.iter().zip(pages) {
            merge.supply(*shard, page);
        }
        merge.advance(|_| true);
        let (page, next) = black_box(merge.finish());
        nanos.push(begun.elapsed());
        assert!(page.len() == LIMIT && next.is_some());
    }
    let rate = LIMIT as f64 / median(nanos) / 1_000.0;
    println!("merge over {SHARDS} shards: {rate:.1} million items per second (target 2)");
}

/// The home of an item under 64 shards.
fn placement() {
    const CALLS: usize = 20_000;
    let (key, count) = (partition_key("/shared/firetvGen2.txt"), count(64));
    let sort_keys: Vec<SortKey> = (0..CALLS).map(numbered).collect();
    let with_homes = Placement::NAMES.iter().filter(|(_, placement)| !placement.is_append_only());
    for (_, placement) in with_homes {
        let rounds: Vec<_> = (0..20)
            .map(|_| {
                let begun = Instant::now();
                for sort_key in &sort_keys {
                    black_box(placement.home(black_box(&key), black_box(sort_key), count));
                }
                begun.elapsed()
            })
            .collect();
        let each = median(rounds) * 1e6 / CALLS as f64;
        println!("placement {placement:?}: {each:.0} ns (target 500)");
    }
}
