//! A table with too few partitions, as seen by the instances that write to a hot key: through the
//! real SDK, over the embedded engine, and in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use sharding::internal::{Clock, Deadline, TableEngine};
use sharding::maintenance::{ScalingDecision, ScalingEvent, ScalingStep};
use sharding::{Attributes, Item, Value, WarmThroughput};
use system_tests::{Tables, TestClock, config, partition_key, soon, sort_key};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout, timeout_at};

/// The write units per second of all instances together: the capacity of five partitions.
const UNITS_A_SECOND: u32 = 5_000;
/// The units of each write.
const UNITS: u32 = 10;
/// The deadline of a write.
const PATIENCE: Duration = Duration::from_secs(1);

/// One partition, which never splits.
const LIMITS: PartitionLimits = PartitionLimits {
    partitions: 1,
    split_after: None,
    doubles_after: None,
    ..PartitionLimits::NEW_ON_DEMAND_TABLE
};
/// The capacity of one partition.
const WARM: WarmThroughput = WarmThroughput { write_units: 1_000, read_units: 3_000 };

fn item(instance: usize, number: u64) -> Item {
    let filler = "x".repeat((UNITS as usize - 1) * 1_024 + 1);
    let attributes = Attributes::from([("filler".to_owned(), Value::S(filler))]);
    let sort_key = sort_key(&format!("{instance}-{number:08}"));
    Item { partition_key: partition_key("hot"), sort_key, attributes }
}

/// A table of one partition, and instances that write to one key until the fixture is dropped.
struct Fixture {
    clock: TestClock,
    /// The reports of all instances, in order.
    events: UnboundedReceiver<ScalingEvent>,
    /// The throttled attempts of each instance.
    throttled: Vec<Arc<AtomicU64>>,
    _running: JoinSet<()>,
}

impl Fixture {
    async fn new(instances: usize) -> Self {
        let tables = Tables::claimed(config()).await;
        // The service time lets instances act concurrently.
        let tables = Tables { service_time: Duration::from_millis(5), ..tables };
        tables.engine.set_limits([("items".to_owned(), LIMITS)]);
        tables.instance(0).publish_warm_throughput(WARM, soon()).await.expect("published");
        let (sender, events) = unbounded_channel();
        let (mut running, mut throttled) = (JoinSet::new(), Vec::new());
        let writes_a_second = UNITS_A_SECOND / UNITS / u32::try_from(instances).expect("few");
        for (number, seed) in (0..instances).zip(1..) {
            let (table, sender, of_instance) =
                (tables.instance(seed), sender.clone(), Arc::new(AtomicU64::new(0)));
            let mut of_table = table.scaling_events();
            running.spawn(async move {
                while let Ok(event) = of_table.recv().await {
                    sender.send(event).expect("the test looks");
                }
            });
            let pace = Duration::from_secs(1) / writes_a_second;
            running.spawn(write(table, number, pace, Arc::clone(&of_instance)));
            throttled.push(of_instance);
        }
        Self { clock: tables.clock, events, throttled, _running: running }
    }

    /// The next step of any instance.
    async fn next(&mut self) -> ScalingStep {
        let event = timeout(Duration::from_secs(15), self.events.recv()).await;
        event.expect("an event in time").expect("instances are running").step
    }

    /// The next report of a shortage: its end, and its write units.
    async fn next_shortage(&mut self) -> (u64, Option<u64>) {
        loop {
            if let ScalingStep::Unchanged(ScalingDecision::ShortOfPartitions {
                until,
                write_units,
            }) = self.next().await
            {
                return (until, write_units);
            }
        }
    }

    /// The instant just before this second since the Unix epoch.
    fn just_before(&self, epoch_second: u64) -> Instant {
        let left = Duration::from_secs(epoch_second).saturating_sub(self.clock.now().wall);
        Instant::now() + left.saturating_sub(Duration::from_millis(1))
    }
}

/// Writes at this pace forever, and ignores failures.
async fn write(table: TableEngine, instance: usize, pace: Duration, throttled: Arc<AtomicU64>) {
    let (mut pace, mut under_way) = (interval(pace), JoinSet::new());
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

#[tokio::test(start_paused = true)]
async fn one_of_two_instances_reports_a_table_short_of_partitions() {
    let mut fixture = Fixture::new(2).await;
    let (until, write_units) = fixture.next_shortage().await;
    // The demand is the capacity of five partitions, and some shards share a partition.
    assert!(write_units.is_some_and(|units| (5_000..=40_000).contains(&units)), "{write_units:?}");
    let end = fixture.just_before(until);
    let second = timeout_at(end, fixture.events.recv()).await;
    assert!(second.is_err(), "{second:?} before {until}");
    let throttled: Vec<u64> =
        fixture.throttled.iter().map(|throttled| throttled.load(Ordering::Relaxed)).collect();
    assert!(throttled.iter().all(|throttled| *throttled > 20), "{throttled:?}");
    // The shortage lasts until the table's capacity is raised.
    let (again, write_units) = fixture.next_shortage().await;
    assert!(again > until && write_units.is_some(), "{again} after {until}: {write_units:?}");
}
