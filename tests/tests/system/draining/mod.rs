//! Shrinking and settling in the real code over the embedded engine, in virtual time: which items
//! move, which stay, and the metadata.

mod duplicates;
mod expiry;
mod waits;

use std::time::Duration;

use sharding::internal::{Clock, Separator, ShardKeys, TableEngine};
use sharding::maintenance::{DrainRefused, Drained};
use sharding::{Placement, TableConfig, Writes};
use system_tests::{count, numbered, soon};
use tokio::time::sleep;

use crate::one_key::{fixture, key};

#[tokio::test(start_paused = true)]
async fn a_drain_is_taken_over_once_its_instance_seems_stopped() {
    let fixture = fixture(|_| {}).await;
    fixture.store(numbered(0..80)).await;
    fixture.grow(8).await;
    fixture.table.until(soon()).settle(&key()).await.expect("it begins");
    let (first, second) = (fixture.table.clone(), fixture.another_instance());
    let on = async |table: &TableEngine| {
        let drained = table.until(soon()).drain(&key(), &[]).await.expect("the tables respond");
        let Drained::Waiting { until } = drained else { panic!("{drained:?}") };
        until
    };
    let now = || fixture.tables.clock.now().epoch_seconds();
    let until =
        async |second: u64| sleep(Duration::from_secs(second.saturating_sub(now()) + 1)).await;
    fixture.wait_out_the_change().await;
    let reads_have_ended = on(&first).await;
    let first_is_away = on(&second).await;
    assert!(first_is_away > reads_have_ended, "{first_is_away} {reads_have_ended}");
    until(first_is_away).await;
    let copied = fixture.by_shard().await;
    let its_reads_have_ended = on(&second).await;
    let kept = fixture.by_shard().await;
    assert_eq!(kept, copied, "an instance deletes nothing that only another one has read");
    assert!(on(&first).await > its_reads_have_ended, "the first leaves the key to the second");
    until(its_reads_have_ended).await;
    until(on(&second).await).await;
    let done = first.until(soon()).drain(&key(), &[]).await.expect("the tables respond");
    assert!(matches!(done, Drained::Done { .. }), "any instance may make the last read: {done:?}");
    assert_eq!((fixture.stored().await, fixture.all().await.len()), (80, 80));
}

#[tokio::test(start_paused = true)]
async fn a_key_shrinks_under_every_placement() {
    for (_, placement) in Placement::NAMES {
        let fixture = fixture(|of_table| {
            of_table.placement = placement;
            if !matches!(placement, Placement::Calculated | Placement::Random) {
                of_table.shard_keys = ShardKeys::Suffixed(Separator::default());
            }
        })
        .await;
        fixture.store(numbered(0..40)).await;
        fixture.grow(9).await;
        fixture.store(numbered(40..160)).await;
        for to in [5, 1] {
            fixture.table.until(soon()).shrink(&key(), count(to)).await.expect("it begins");
            fixture.drain().await;
            sleep(Duration::from_secs(5)).await;
            let shards = fixture.by_shard().await;
            assert!(shards.keys().all(|shard| *shard <= to), "{placement:?}: {:?}", shards.keys());
            let found = (fixture.stored().await, fixture.all().await.len());
            assert_eq!(found, (160, 160), "{placement:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_cannot_begin_is_rejected() {
    let fixture = fixture(|_| {}).await;
    let refused = fixture.table.until(soon()).shrink(&key(), count(1)).await;
    let is_refused = matches!(refused, Err(DrainRefused::NotLower { .. }));
    assert!(is_refused, "a key without metadata: {refused:?}");
    fixture.grow(4).await;
    let refused = fixture.table.until(soon()).shrink(&key(), count(4)).await;
    assert!(matches!(refused, Err(DrainRefused::NotLower { .. })), "{refused:?}");
    fixture.table.until(soon()).shrink(&key(), count(2)).await.expect("it begins");
    for refused in [
        fixture.table.until(soon()).shrink(&key(), count(1)).await,
        fixture.table.until(soon()).settle(&key()).await,
    ] {
        assert!(matches!(refused, Err(DrainRefused::Busy(_))), "{refused:?}");
    }
    for (placement, writes) in
        [(Placement::Calculated, Writes::Appends), (Placement::Random, Writes::Items)]
    {
        let set = |table: &mut TableConfig| (table.placement, table.writes) = (placement, writes);
        let appends = self::fixture(set).await;
        appends.grow(4).await;
        let refused = appends.table.until(soon()).settle(&key()).await;
        let is_refused = matches!(refused, Err(DrainRefused::NoHomes));
        assert!(is_refused, "{placement:?} {writes:?}: {refused:?}");
    }
}
