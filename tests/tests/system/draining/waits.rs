//! The waits of a drain, and shorter ones as in the local edition.

use std::time::Duration;

use sharding::internal::{Deadline, PageQuery};
use sharding::maintenance::Drained;
use sharding::{ReadError, TableConfig, Writes};
use system_tests::{Call, Fate, count, numbered, soon};
use tokio::time::{Instant, sleep};

use crate::one_key::{Fixture, fixture, fixture_over, item, key};

/// The local edition's settings: leases and bounds end one second before the waits.
fn short_waits(of_table: &mut TableConfig) {
    of_table.append_lease = Duration::from_secs(4);
    of_table.drain.wait_for_requests = Duration::from_secs(5);
    of_table.drain.wait_for_reads = Duration::from_secs(5);
}

/// The wait for requests of the previous era and for reads, the lease, and the rounding to whole
/// seconds. An append-only table also waits for appends.
#[tokio::test(start_paused = true)]
async fn with_short_waits_a_shrink_is_short_and_no_old_view_is_used() {
    for (writes, least, most) in [(Writes::Items, 11, 17), (Writes::Appends, 20, 30)] {
        let fixture = fixture(|of_table| {
            short_waits(of_table);
            of_table.writes = writes;
        })
        .await;
        fixture.grow(8).await;
        fixture.store(numbered(0..40)).await;
        // Another instance, with its own views.
        let other = fixture.another_instance();
        other.put(&item("order-9999", 1), soon()).await.expect("stored");
        fixture.table.until(soon()).shrink(&key(), count(1)).await.expect("it begins");
        let began = Instant::now();
        let drain =
            async || fixture.table.until(soon()).drain(&key(), &[]).await.expect("a response");
        while !matches!(drain().await, Drained::Done { .. }) {
            sleep(Duration::from_secs(1)).await;
        }
        let took = began.elapsed().as_secs();
        assert!((least..most).contains(&took), "{writes:?}: {took} s");
        for text in numbered(100..120) {
            other.put(&item(&text, 1), soon()).await.expect("stored");
        }
        assert!(fixture.by_shard().await.keys().eq(&[1]), "{writes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_short_waits_a_read_longer_than_its_bound_claims_nothing() {
    let slow = |call: &Call| match call.operation.as_str() {
        "Query" => Fate::Delay(Duration::from_secs(2)),
        _ => Fate::Pass,
    };
    let Fixture { tables, table, .. } = fixture_over(slow, short_waits).await;
    table.put(&item("order-1", 1), soon()).await.expect("stored");
    let read = async |frozen| {
        let (table, query) =
            (table.clone(), PageQuery { consistent: true, ..PageQuery::new(key()) });
        let page = tokio::spawn(async move { table.query(&query, soon()).await });
        sleep(Duration::from_secs(1)).await;
        tables.clock.jump(frozen);
        page.await.expect("it ends")
    };
    assert_eq!(read(Duration::from_secs(1)).await.expect("a page").items.len(), 1);
    let late = read(Duration::from_secs(3)).await;
    assert!(matches!(late, Err(ReadError::Deadline(_))), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_moves_for_longer_than_a_lease_is_still_moved() {
    let fixture = fixture(|of_table| {
        short_waits(of_table);
        of_table.drain.units_per_second = 80;
    })
    .await;
    fixture.grow(2).await;
    fixture.store(numbered(0..300)).await;
    fixture.table.until(soon()).shrink(&key(), count(1)).await.expect("it begins");
    let on = async || {
        let long = Deadline::now() + Duration::from_secs(100);
        fixture.table.until(long).drain(&key(), &[]).await.expect("the tables respond")
    };
    for what in ["requests of the previous era", "reads"] {
        let drained = on().await;
        assert!(matches!(drained, Drained::Waiting { .. }), "for {what}: {drained:?}");
        sleep(Duration::from_secs(8)).await;
    }
    let drained = on().await;
    assert!(matches!(drained, Drained::Done { .. }), "{drained:?}");
    assert!(fixture.by_shard().await.keys().eq(&[1]));
    assert_eq!(fixture.stored().await, 300);
}
