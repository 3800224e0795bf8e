//! How often an instance reads a page: ahead of the end of its lease, so that frequent requests do
//! not wait for it.

use std::time::Duration;

use local::clients_over;
use sharding::internal::{TableEngine, protocol::directory::PAGES, protocol::view::MAX_LEASE};
use system_tests::metadata::page_copy;
use system_tests::{Fate, Tables, Wire, config, partition_key, soon, valued_item};
use tokio::time::{Instant, sleep};

use super::{KEY, reads_of};
use crate::costs::{Counted, ROUND_TRIP};

fn pages_read(wire: &Wire) -> usize {
    (0..PAGES).map(|page| reads_of(wire, &page_copy(page, 0))).sum()
}

async fn write(table: &TableEngine, key: &str) -> Duration {
    let (item, sent) = (valued_item(partition_key(key), "order", 1), Instant::now());
    table.put(&item, soon()).await.expect("stored");
    sent.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_busy_instance_reads_a_page_once_a_lease_and_never_waits() {
    const SECONDS: u64 = 60;
    let Counted { table, wire, .. } = Counted::new().await;
    write(&table, KEY).await;
    let (began, mut slowest) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < Duration::from_secs(SECONDS) {
        slowest = slowest.max(write(&table, KEY).await);
        sleep(Duration::from_millis(10)).await;
    }
    assert!(slowest < 2 * ROUND_TRIP, "{slowest:?}");
    let least = SECONDS as f64 / (MAX_LEASE.as_secs_f64() * 0.8);
    let (read, asked) =
        (pages_read(&wire) as f64, wire.calls().iter().filter(|call| !call.to_items).count());
    println!("{read} reads of a page in {SECONDS} s, {:.2} a second", read / SECONDS as f64);
    assert!(read <= least + 2.0 && read > least * 0.9, "{read}, {least}");
    assert!(asked <= pages_read(&wire) + 2, "and the table item once a minute: {asked}");
}

/// A function's time ends with its response, so everything that it has begun must have ended by
/// then.
#[tokio::test(start_paused = true)]
async fn a_renewed_page_arrives_before_the_response_that_follows_it() {
    let Counted { table, wire, .. } = Counted::new().await;
    write(&table, KEY).await;
    sleep(Duration::from_millis(900)).await;
    let before = pages_read(&wire);
    assert!(write(&table, KEY).await < 2 * ROUND_TRIP);
    assert_eq!(pages_read(&wire), before + 1, "it is read concurrently with the write");
    // From here on the process is frozen, for longer than the rest of the first lease.
    sleep(Duration::from_millis(700)).await;
    assert!(write(&table, KEY).await < 2 * ROUND_TRIP, "under the lease of the second");
    assert_eq!(pages_read(&wire), before + 1);
}

/// The process is frozen between two invocations, and its clock is set back meanwhile: neither clock
/// shows that time has passed. The deadlines of the invocations do.
#[tokio::test(start_paused = true)]
async fn an_invocation_shows_that_a_lease_is_over() {
    let wire = Wire::new(Tables::unclaimed(config()).await.connection(), |_| Fate::Pass);
    // With the clocks of the machine.
    let table = TableEngine::new(&clients_over(wire.clone().into_shared()).dynamodb, config());
    let reads_metadata = async |ends_at: u64| {
        table.invoked(Duration::from_secs(ends_at));
        let before = wire.calls().len();
        write(&table, KEY).await;
        table.finish_background_work().await;
        wire.calls().split_off(before).iter().any(|call| !call.to_items)
    };
    assert!(reads_metadata(1_000).await);
    assert!(!reads_metadata(1_000).await, "the view is good");
    assert!(reads_metadata(1_002).await, "the lease is over");
}
