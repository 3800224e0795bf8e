//! Shrinking and settling in the real code over the embedded engine, in virtual time: which items
//! move, which stay, and the metadata.

mod duplicates;
mod expiry;
mod fixture;
mod waits;

use std::collections::BTreeMap;
use std::time::Duration;

use sharding::internal::{Clock, Separator, ShardKeys, TableEngine};
use sharding::maintenance::{DrainRefused, Drained, ScaleOutcome};
use sharding::{Placement, Writes};
use system_tests::{count, numbered, report_throttles, soon, sort_key};
use tokio::time::sleep;

use fixture::{fixture, item, key};

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
    assert!(looked > 10, "a creation reads the old places of a grown key: {looked}");

    fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
    let reports = fixture.drain().await;
    let Some(Drained::Done { from, to, .. }) = reports.last() else { panic!("{reports:?}") };
    assert_eq!((*from, *to), (count(8), count(8)));
    fixture.assert_all_are_at_home(220).await;
    for text in numbered(220..240) {
        assert_eq!(requests(&text).await, ["PutItem"], "{text} has one candidate");
    }
    let mut expected: BTreeMap<String, u64> = numbered(0..240).map(|text| (text, 1)).collect();
    expected.extend(numbered(200..240).map(|text| (text, 2)));
    assert_eq!(fixture.all().await, expected);

    // Like any key, it grows again, and shrinks again.
    fixture.grow(20).await;
    fixture.store(numbered(240..300)).await;
    assert_eq!(fixture.all().await.len(), 300);
    fixture.table.begin_shrink(&key(), count(2), soon()).await.expect("it begins");
    assert!(matches!(fixture.drain().await.last(), Some(Drained::Done { .. })));
    assert_eq!(fixture.all().await.len(), 300);
    fixture.assert_all_are_at_home(300).await;
    for text in numbered(0..300) {
        assert!(
            fixture
                .table
                .get(&key(), &sort_key(&text), true, soon())
                .await
                .expect("a response")
                .is_some(),
            "{text}"
        );
    }
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
            // A long time after its growth, so that its heat does not show a growth without effect.
            sleep(Duration::from_secs(7_200)).await;
            fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
        }
        fixture.table.drain(&key(), soon()).await.expect("a response");
        sleep(Duration::from_secs(3)).await;
        let widened = report_throttles(&fixture.table, &key()).await.expect("the tables respond");
        assert!(
            matches!(widened, ScaleOutcome::Scaled { to, .. } if to >= count(8)),
            "{widened:?}"
        );
        let drained = fixture.table.drain(&key(), soon()).await.expect("a response");
        assert_eq!(drained, Drained::Nothing, "the drain has been cut off");
        let metadata = fixture.metadata().await;
        assert_eq!(metadata.number_of_shards, metadata.read_shards, "{metadata:?}");
        let stopped_at =
            metadata.drain_stopped_at.expect("a request of the drain may be in flight");
        assert_eq!(fixture.all().await.len(), 100);

        // The next drain waits for such requests before it moves an item.
        sleep(Duration::from_secs(3)).await;
        fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
        let before = fixture.by_shard().await;
        let drained = fixture.table.drain(&key(), soon()).await.expect("a response");
        let wait = fixture.table.config().drain.wait_for_requests.as_secs();
        assert!(
            matches!(drained, Drained::Waiting { until } if until >= stopped_at + wait),
            "{drained:?}"
        );
        assert_eq!(fixture.by_shard().await, before);
        assert!(matches!(fixture.drain().await.last(), Some(Drained::Done { .. })));
        fixture.assert_all_are_at_home(100).await;
    }
}

/// An instance's knowledge of moved items is in its memory only. So an instance that takes over
/// reads the places itself, and does so only when the first one seems to have stopped.
#[tokio::test(start_paused = true)]
async fn an_instance_that_takes_a_drain_over_makes_its_own_pass() {
    let fixture = fixture(|_| {}).await;
    fixture.store(numbered(0..80)).await;
    fixture.grow(8).await;
    fixture.table.begin_settle(&key(), soon()).await.expect("it begins");
    let first = fixture.table.clone();
    let second = fixture.another_instance();
    let on = async |table: &TableEngine| {
        let drained = table.drain(&key(), soon()).await.expect("the tables respond");
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
    assert!(its_reads_have_ended >= now() + fixture.table.config().drain.wait_for_reads.as_secs());
    assert_eq!(
        fixture.by_shard().await,
        copied,
        "an instance deletes nothing that only another one has read"
    );
    assert!(on(&first).await > its_reads_have_ended, "the first leaves the key to the second");
    until(its_reads_have_ended).await;
    until(on(&second).await).await;
    let done = first.drain(&key(), soon()).await.expect("the tables respond");
    assert!(matches!(done, Drained::Done { .. }), "any instance may make the last read: {done:?}");
    fixture.assert_all_are_at_home(80).await;
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
            fixture.table.begin_shrink(&key(), count(to), soon()).await.expect("it begins");
            assert!(
                matches!(fixture.drain().await.last(), Some(Drained::Done { .. })),
                "{placement:?}"
            );
            sleep(Duration::from_secs(5)).await;
            let shards = fixture.by_shard().await;
            assert!(shards.keys().all(|shard| *shard <= to), "{placement:?}: {:?}", shards.keys());
            assert_eq!(shards.values().map(Vec::len).sum::<usize>(), 160, "{placement:?}");
            assert_eq!(fixture.all().await.len(), 160, "{placement:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_cannot_begin_is_rejected() {
    let fixture = fixture(|_| {}).await;
    let refused = fixture.table.begin_shrink(&key(), count(1), soon()).await;
    assert!(
        matches!(refused, Err(DrainRefused::NotLower { .. })),
        "a key without metadata: {refused:?}"
    );
    fixture.grow(4).await;
    let refused = fixture.table.begin_shrink(&key(), count(4), soon()).await;
    assert!(matches!(refused, Err(DrainRefused::NotLower { .. })), "{refused:?}");
    fixture.table.begin_shrink(&key(), count(2), soon()).await.expect("it begins");
    for refused in [
        fixture.table.begin_shrink(&key(), count(1), soon()).await,
        fixture.table.begin_settle(&key(), soon()).await,
    ] {
        assert!(matches!(refused, Err(DrainRefused::Busy(_))), "{refused:?}");
    }
    for (placement, writes) in
        [(Placement::Calculated, Writes::Appends), (Placement::Random, Writes::Items)]
    {
        let appends =
            self::fixture(|of_table| (of_table.placement, of_table.writes) = (placement, writes))
                .await;
        appends.grow(4).await;
        let refused = appends.table.begin_settle(&key(), soon()).await;
        assert!(
            matches!(refused, Err(DrainRefused::NoHomes)),
            "{placement:?} {writes:?}: {refused:?}"
        );
    }
}
