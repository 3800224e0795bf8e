//! The time to read a page of 100 items of 1 KB: unsharded, by this product, and by a full page
//! from each shard. Its units and round trips are exact, and `tests/tests/system/costs.rs` asserts
//! them.

use sharding::internal::TableEngine;
use system_tests::config;
use system_tests::pages::{Keys, PageBench, WIDTHS, starts};

use crate::now;

pub(crate) async fn latency() {
    let service_time = crate::SERVICE_TIME;
    println!(
        "latency of a page of 100 items of 1 KB with {service_time:?} service time, medians in ms"
    );
    println!(
        "  sort keys  shards  unsharded    ours  ask for all   ours/unsharded (target 1.5 on 16, \
         2.5 on 64)"
    );
    for keys in [Keys::Even, Keys::Uneven] {
        let single = PageBench::new(1, keys).await;
        for width in WIDTHS {
            let bench = PageBench::new(width, keys).await;
            let (client, plain) = (bench.client(service_time), single.client(service_time));
            let table = TableEngine::new(&client, config());
            let (mut unsharded, mut of_ours, mut all) = (Vec::new(), Vec::new(), Vec::new());
            for after in starts() {
                let begun = now();
                single.unsharded(&plain, after).await;
                unsharded.push(begun.elapsed());
                let begun = now();
                bench.ours(&table, after).await;
                of_ours.push(begun.elapsed());
                let begun = now();
                bench.ask_all(&client, after).await;
                all.push(begun.elapsed());
            }
            let [unsharded, ours, all] = [unsharded, of_ours, all].map(crate::median);
            let ratio = ours / unsharded;
            println!(
                "  {keys:9?}  {width:6}  {unsharded:9.2}  {ours:6.2}  {all:11.2}   {ratio:.2}"
            );
        }
    }
}
