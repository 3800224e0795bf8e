//! Compares the calculation with the partition model, under Poisson writes to fixed shards in steps
//! of ten milliseconds, over many placements. Retries and split for heat are off. The first ten of
//! twenty seconds, in which partitions spend their saved burst capacity, do not count.

use std::time::Duration;

use embedded_dynamodb::{Access, PartitionLimits, Partitions, StoredKey};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Poisson};

use super::admission::Admission;
use super::demand::Demand;
use super::throttling::throttled;

const STEP: Duration = Duration::from_millis(10);
const STEPS: u32 = 2_000;
const WARM_UP: u32 = 1_000;
/// The calculated share may differ from the measured one by this share of the measured one.
const TOLERATED: f64 = 0.2;

#[derive(Debug, Clone, Copy)]
struct Workload {
    writes: u32,
    item_bytes: u32,
    keys: u32,
    shards: u32,
    partitions: u32,
}

/// Workloads with large and small writes, few and many partitions, and one or several keys.
const DEMANDING: [Workload; 7] = [
    Workload { writes: 5_000, item_bytes: 1_024, keys: 1, shards: 5, partitions: 8 },
    Workload { writes: 20_000, item_bytes: 1_000, keys: 1, shards: 24, partitions: 64 },
    Workload { writes: 50_000, item_bytes: 300, keys: 1, shards: 60, partitions: 100 },
    Workload { writes: 60, item_bytes: 102_400, keys: 1, shards: 8, partitions: 12 },
    Workload { writes: 20, item_bytes: 409_600, keys: 1, shards: 16, partitions: 32 },
    Workload { writes: 3_000, item_bytes: 1_024, keys: 1, shards: 12, partitions: 4 },
    Workload { writes: 3_000, item_bytes: 3_000, keys: 3, shards: 4, partitions: 16 },
];

impl Workload {
    fn demand(&self) -> Demand {
        Demand::new(self.writes, self.item_bytes, self.keys)
    }

    fn calculated(&self) -> f64 {
        let demand = self.demand();
        throttled(
            &demand,
            &Admission::new(1_000.0, demand.units_per_write),
            self.shards,
            self.partitions,
        )
    }

    /// The mean over this number of placements, with its standard error.
    fn measured(&self, placements: u64) -> (f64, f64) {
        let shares: Vec<f64> = (0..placements).map(|placement| self.measure(placement)).collect();
        let count = shares.len() as f64;
        let mean = shares.iter().sum::<f64>() / count;
        let variance =
            shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, (variance / count).sqrt())
    }

    /// The throttled share of the first attempts, for keys with the names of this placement.
    fn measure(&self, placement: u64) -> f64 {
        let demand = self.demand();
        let units = f64::from(demand.units_per_write);
        let limits = PartitionLimits {
            partitions: self.partitions,
            split_after: None,
            ..PartitionLimits::default()
        };
        let mut model = Partitions::new(limits, Duration::ZERO);
        let names = (0..self.keys).flat_map(|key| (1..=self.shards).map(move |shard| (key, shard)));
        let shards: Vec<StoredKey> = names
            .map(|(key, shard)| StoredKey::new(format!("hot-{placement}-{key}.{shard}")))
            .collect();
        let mut rng = StdRng::seed_from_u64(placement);
        let per_step =
            Poisson::new(demand.writes_per_second / shards.len() as f64 * STEP.as_secs_f64())
                .unwrap();
        let (mut attempts, mut accepted) = (0.0, 0.0);
        for step in 0..STEPS {
            let now = STEP * step;
            for shard in &shards {
                let writes = per_step.sample(&mut rng);
                let taken = if units > 1.0 {
                    // As in the engine, a write is accepted while there is any token, and then
                    // charged in full.
                    (0..writes as u64).filter(|_| write(&mut model, shard, units, now)).count()
                        as f64
                } else {
                    model.take(shard, None, writes, now)
                };
                if step >= WARM_UP {
                    attempts += writes;
                    accepted += taken;
                }
            }
        }
        1.0 - accepted / attempts
    }
}

fn write(model: &mut Partitions, shard: &StoredKey, units: f64, now: Duration) -> bool {
    let open = model.is_open(shard, None, Access::Write, now);
    if open {
        model.charge(shard, None, Access::Write, units);
    }
    open
}

fn differ(calculated: f64, measured: f64) -> bool {
    (calculated / measured - 1.0).abs() >= TOLERATED
}

#[test]
fn the_calculation_agrees_with_the_partition_model() {
    println!("writes/s  bytes   keys  shards  partitions  calculated  measured (standard error)");
    for workload in DEMANDING {
        let placements = 5_600 / u64::from(workload.shards * workload.keys);
        let (calculated, (measured, error)) =
            (workload.calculated(), workload.measured(placements));
        let Workload { writes, item_bytes, keys, shards, partitions } = workload;
        println!(
            "{writes:8}  {item_bytes:6}  {keys:4}  {shards:6}  {partitions:10}  {:9.2}%  {:7.2}% ({:.2})",
            calculated * 100.0,
            measured * 100.0,
            error * 100.0
        );
        assert!(error < 0.05 * measured, "{workload:?}: too few placements: {measured} +- {error}");
        assert!(
            !differ(calculated, measured),
            "{workload:?}: calculated {calculated}, measured {measured} +- {error}"
        );
    }
}

#[test]
fn the_calculation_agrees_if_nothing_is_throttled() {
    for workload in [
        Workload { writes: 2_000, item_bytes: 1_024, keys: 1, shards: 16, partitions: 200 },
        Workload { writes: 300, item_bytes: 1_024, keys: 1, shards: 1, partitions: 4 },
    ] {
        let (calculated, (measured, _)) = (workload.calculated(), workload.measured(100));
        assert!(calculated < 0.001 && measured < 0.001, "{workload:?}: {calculated} {measured}");
    }
}

#[test]
fn the_comparison_detects_a_wrong_calculation() {
    let measured = DEMANDING.map(|workload| workload.measured(60).0);
    let caught = |wrong: &dyn Fn(&Workload) -> f64| {
        DEMANDING
            .iter()
            .zip(measured)
            .filter(|(workload, measured)| differ(wrong(workload), *measured))
            .count()
    };
    let each_shard_alone = |workload: &Workload| {
        let demand = workload.demand();
        Admission::new(1_000.0, demand.units_per_write)
            .refused(demand.units_per_shard(workload.shards))
    };
    let evenly_over_partitions = |workload: &Workload| {
        let load = workload.demand().write_units_per_second / f64::from(workload.partitions);
        (1.0 - 1_000.0 / load).max(0.0)
    };
    let every_write_of_one_unit = |workload: &Workload| {
        throttled(
            &workload.demand(),
            &Admission::new(1_000.0, 1),
            workload.shards,
            workload.partitions,
        )
    };
    let smaller_partitions = |workload: &Workload| {
        let demand = workload.demand();
        throttled(
            &demand,
            &Admission::new(850.0, demand.units_per_write),
            workload.shards,
            workload.partitions,
        )
    };
    assert_eq!(caught(&Workload::calculated), 0);
    assert_eq!(caught(&each_shard_alone), 7, "shards that share partitions");
    assert_eq!(caught(&evenly_over_partitions), 7, "uneven partitions");
    assert_eq!(caught(&every_write_of_one_unit), 1, "the one of the largest items");
    assert!(
        caught(&smaller_partitions) >= 4,
        "a rate that is wrong: {}",
        caught(&smaller_partitions)
    );
}
