//! The pure core: the merge of pages, and the placement of items.

use std::hint::black_box;
use std::time::Instant;

use sharding::internal::protocol::merge::{PageMerge, ShardPage, Stored};
use sharding::{
    Order, PartitionKey, Placement, ShardCount, ShardNumber, SortKey, SortKeyType, Version,
};

fn sort_key(number: usize) -> SortKey {
    SortKey::parse(SortKeyType::String, &format!("{number:012}")).expect("a sort key")
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the time")]
fn now() -> Instant {
    Instant::now()
}

/// Pages of 1,000 items from 64 shards.
pub(crate) fn merge() {
    const SHARDS: u32 = 64;
    const LIMIT: usize = 1_000;
    const ROUNDS: usize = 400;
    let count = ShardCount::new(SHARDS).expect("a count");
    let shards: Vec<ShardNumber> = count.shards().collect();
    let mut responses: Vec<Vec<Stored<usize>>> = shards.iter().map(|_| Vec::new()).collect();
    let key = PartitionKey::new("k").expect("a key");
    for number in 0..2 * LIMIT {
        let sort_key = sort_key(number);
        let home = Placement::Calculated.home(&key, &sort_key, count).expect("a home");
        responses[home.get() as usize - 1].push(Stored {
            sort_key,
            version: Version::NONE,
            item: Some(number),
        });
    }
    let mut nanos = Vec::new();
    for _ in 0..ROUNDS {
        let mut merge = PageMerge::new(LIMIT, Order::Ascending, None);
        merge.add_shards(shards.iter().copied());
        drop(merge.requests());
        let pages: Vec<_> =
            responses.iter().map(|items| ShardPage { items: items.clone(), next: None }).collect();
        let begun = now();
        for (shard, page) in shards.iter().zip(pages) {
            merge.supply(*shard, page);
        }
        merge.advance(|_| true);
        let (page, next) = black_box(merge.finish());
        nanos.push(begun.elapsed());
        assert!(page.len() == LIMIT && next.is_some());
    }
    let millis = crate::median(nanos);
    println!(
        "merge over {SHARDS} shards: {:.1} million items per second (target 2)",
        LIMIT as f64 / millis / 1_000.0
    );
}

/// The home of an item under 64 shards.
pub(crate) fn placement() {
    const CALLS: usize = 20_000;
    let key = PartitionKey::new("/shared/firetvGen2.txt").expect("a key");
    let count = ShardCount::new(64).expect("a count");
    let sort_keys: Vec<SortKey> = (0..CALLS).map(sort_key).collect();
    let with_homes = Placement::NAMES.iter().filter(|(_, placement)| !placement.is_append_only());
    for (_, placement) in with_homes {
        let rounds: Vec<_> = (0..20)
            .map(|_| {
                let begun = now();
                for sort_key in &sort_keys {
                    black_box(placement.home(black_box(&key), black_box(sort_key), count));
                }
                begun.elapsed()
            })
            .collect();
        println!(
            "placement {placement:?}: {:.0} ns (target 500)",
            crate::median(rounds) * 1e6 / CALLS as f64
        );
    }
}
