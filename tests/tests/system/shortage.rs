//! A table with too few partitions, as seen by the instances that write to a hot key: through the
//! real SDK, over the embedded engine, and in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use sharding::internal::{Clock, Deadline, TableEngine};
use sharding::maintenance::{ScalingDecision, ScalingEvent, ScalingStep};
use sharding::{Item, WarmThroughput};
use system_tests::{Tables, config, filled_item, partition_key, soon};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// The instances, the writes of each, and the units of a write: together the capacity of five
/// partitions.
const INSTANCES: u64 = 2;
const WRITES_A_SECOND: u32 = 250;
const UNITS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(1);

/// One partition.
const LIMITS: PartitionLimits =
    PartitionLimits { partitions: 1, ..PartitionLimits::NEW_ON_DEMAND_TABLE };
/// The capacity of one partition.
const WARM: WarmThroughput = WarmThroughput { write_units: 1_000, read_units: 3_000 };

fn item(instance: u64, number: u64) -> Item {
    filled_item(partition_key("hot"), &format!("{instance}-{number:08}"), (UNITS - 1) * 1_024 + 1)
}

/// Writes forever, and ignores failures.
async fn write(table: TableEngine, instance: u64, throttled: Arc<AtomicU64>) {
    let mut pace = interval(Duration::from_secs(1) / WRITES_A_SECOND);
    let mut under_way = JoinSet::new();
    for number in 0.. {
        pace.tick().await;
        while under_way.try_join_next().is_some() {}
        let (table, item, throttled) =
            (table.clone(), item(instance, number), Arc::clone(&throttled));
        under_way.spawn(async move {
            let written = table.put(&item, Deadline::now() + PATIENCE).await;
            let attempts =
                written.map_or_else(|error| error.throttled, |written| written.throttled);
            throttled.fetch_add(attempts.into(), Ordering::Relaxed);
        });
    }
}

/// The next report of a shortage: its end, and its write units.
async fn next_shortage(events: &mut UnboundedReceiver<ScalingEvent>) -> (u64, Option<u64>) {
    loop {
        let event = timeout(Duration::from_secs(15), events.recv()).await;
        let step = event.expect("an event in time").expect("instances are running").step;
        if let ScalingStep::Unchanged(ScalingDecision::ShortOfPartitions { until, write_units }) =
            step
        {
            return (until, write_units);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_instances_reports_a_table_short_of_partitions() {
    let tables = Tables::claimed(config()).await;
    // The service time lets instances act concurrently.
    let tables = Tables { service_time: Duration::from_millis(5), ..tables };
    tables.engine.set_limits([("items".to_owned(), LIMITS)]);
    tables.instance(0).until(soon()).publish_warm_throughput(WARM).await.expect("published");
    let (sender, mut events) = unbounded_channel();
    let (mut running, mut throttled) = (JoinSet::new(), Vec::new());
    for instance in 1..=INSTANCES {
        let (table, sender) = (tables.instance(instance), sender.clone());
        let mut of_table = table.until(soon()).events();
        running.spawn(async move {
            while let Ok(event) = of_table.recv().await {
                sender.send(event).expect("the test looks");
            }
        });
        let of_instance = Arc::new(AtomicU64::new(0));
        running.spawn(write(table, instance, Arc::clone(&of_instance)));
        throttled.push(of_instance);
    }

    let (until, write_units) = next_shortage(&mut events).await;
    // The demand is the capacity of five partitions, and some shards share a partition.
    assert!(write_units.is_some_and(|units| (5_000..=40_000).contains(&units)), "{write_units:?}");
    let left = Duration::from_secs(until).saturating_sub(tables.clock.now().wall);
    let just_before = left.saturating_sub(Duration::from_millis(1));
    let second = timeout(just_before, events.recv()).await;
    assert!(second.is_err(), "{second:?} before {until}");
    let throttled: Vec<u64> =
        throttled.iter().map(|throttled| throttled.load(Ordering::Relaxed)).collect();
    assert!(throttled.iter().all(|throttled| *throttled > 20), "{throttled:?}");
    // The shortage lasts until the table's capacity is raised.
    let (again, write_units) = next_shortage(&mut events).await;
    assert!(again > until && write_units.is_some(), "{again} after {until}: {write_units:?}");
}
