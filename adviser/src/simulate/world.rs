//! One run of the simulation: arrivals, partitions and retries.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use embedded_dynamodb::{PartitionLimits, Partitions, StoredKey};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Poisson};
use sharding::internal::{FIRST_PAUSE, LONGEST_PAUSE, ShardCount};

use super::instances::{Held, Instances};
use super::metadata::MetadataLoad;
use super::scaler::Scaler;
use super::{Contender, Starts};

/// The duration of a step.
pub(super) const STEP: Duration = Duration::from_millis(10);
const STEPS_A_SECOND: u64 = 100;
/// A request fails after this time: the writer's timeout in the template, less the margin for the
/// response.
const DEADLINE_STEPS: u64 = 960;
/// A key is relieved if a smaller share of its new writes is throttled or waits for an open.
const RELIEVED: f64 = 0.01;
/// The number of consecutive seconds of relief that count as lasting.
const STAYS_RELIEVED: usize = 5;

/// One row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The policy's name in the table.
    pub policy: &'static str,
    /// The policy.
    pub contender: Contender,
    /// Write units per second, from second 0 on.
    pub demand: u32,
    /// Partitions of the table at the start.
    pub partitions: u32,
    /// Whether instances know the number of partitions, from the directory.
    pub knows_partitions: bool,
    /// Write units per second that the shard-scaler may raise the table's warm throughput to; 0 for
    /// never.
    pub budget: u32,
    /// The duration of such a raise.
    pub warming: Duration,
    /// Simulated seconds.
    pub seconds: u32,
    /// The number of instances; each writes and reads.
    pub instances: u32,
    /// Reads per second of all instances.
    pub reads: u32,
    /// The start of the instances.
    pub starts: Starts,
    /// Copies of the key's page in the directory.
    pub copies: u32,
    /// Partitions of the metadata table; `None` for one partition for each item.
    pub metadata_partitions: Option<u32>,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The result of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The scenario.
    pub scenario: Scenario,
    /// Seconds until less than 1 % of the new writes were throttled or waited for an open, for five
    /// consecutive seconds; `None` if that never happened.
    pub relieved_after: Option<f64>,
    /// The share of the writes that was accepted within their deadline.
    pub accepted: f64,
    /// The write width at the end.
    pub final_width: u32,
    /// The second at which an instance first reported that the table is short of partitions, and
    /// the write units per second that it reported as enough, if the partitions were known.
    pub short_after: Option<(f64, Option<u64>)>,
    /// The second at which an instance first reported that the key needs more than the maximum of
    /// shards.
    pub at_maximum_after: Option<f64>,
    /// Partitions of the table at the end.
    pub final_partitions: u32,
    /// Conditional updates of the metadata that succeeded.
    pub updates_made: u64,
    /// All conditional updates.
    pub updates_tried: u64,
    /// For each second the share of the new writes that was throttled or waited for an open, and
    /// the write width at the end.
    pub by_second: Vec<(f64, u32)>,
    /// The share of the time in which running instances had no view within its lease. Their
    /// requests waited.
    pub without_view: f64,
    /// The load on the metadata table; `None` if the policy does not use it.
    pub metadata: Option<MetadataLoad>,
}

/// Cohorts distinguish requests by their time of birth, rounded to this many steps.
const BORN: u64 = 50;
/// Cohorts distinguish requests by their retries so far, up to this number, at which the pause
/// stops growing.
const TRIES: u32 = 6;

/// The number of requests that will retry, by time of birth and retries so far.
type Cohorts = BTreeMap<(u64, u32), u64>;

struct World {
    partitions: Partitions,
    instances: Instances,
    /// The stored key of each shard. Another seed places the shards on other partitions.
    keys: Vec<StoredKey>,
    key: String,
    /// The retries of each of the next steps.
    retries: VecDeque<Cohorts>,
    /// The requests of instances that have no view, or wait for an open.
    held: Requests,
    rng: Xoshiro256PlusPlus,
}

/// The requests of one step.
#[derive(Default)]
struct Requests {
    /// The number of first attempts, by time of birth.
    first: BTreeMap<u64, u64>,
    again: Cohorts,
}

impl Requests {
    fn first(&self) -> u64 {
        self.first.values().sum()
    }

    fn again(&self) -> u64 {
        self.again.values().sum()
    }
}

/// The accepted share of a step's attempts, and the refused share by width.
struct Admitted {
    share: f64,
    by_width: Vec<(ShardCount, f64)>,
}

pub(super) fn run(scenario: &Scenario) -> Outcome {
    let limits = PartitionLimits {
        partitions: scenario.partitions,
        warming: scenario.warming,
        ..PartitionLimits::default()
    };
    let mut scaler = Scaler::new(scenario.budget);
    let mut short_after = None;
    let mut world = World {
        partitions: Partitions::new(limits, Duration::ZERO),
        instances: Instances::new(scenario),
        keys: Vec::new(),
        key: format!("hot-{}", scenario.seed),
        retries: VecDeque::new(),
        held: Requests::default(),
        rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed ^ 0x5EED),
    };
    let per_step = f64::from(scenario.demand) / STEPS_A_SECOND as f64;
    let (mut offered, mut accepted) = (0u64, 0u64);
    let mut by_second = Vec::new();
    let (mut of_second, mut throttled_of_second, mut without_view) = (0.0, 0.0, 0.0);
    let steps = u64::from(scenario.seconds) * STEPS_A_SECOND;
    for step in 0..steps {
        let now = STEP.saturating_mul(u32::try_from(step).unwrap_or(u32::MAX));
        let arrivals = world.poisson(per_step);
        let due = world.retries.pop_front().unwrap_or_default();
        let held = world.instances.hold(now);
        without_view += held.without_view;
        let sent = world.sent(step, arrivals, due, held);
        let (first, repeated) = (sent.first(), sent.again());
        let admitted = world.admit(first + repeated, now);
        offered += arrivals;
        of_second += arrivals as f64;
        throttled_of_second += arrivals as f64;
        for (born, count) in sent.first {
            let let_in = world.let_in(count, admitted.share);
            accepted += let_in;
            // A write that waited for an open before it was sent was not accepted at once.
            throttled_of_second -= if born == step { let_in as f64 } else { 0.0 };
            world.again(born, 0, count - let_in);
        }
        for ((born, tries), count) in sent.again {
            let let_in = world.let_in(count, admitted.share);
            accepted += let_in;
            if step < born + DEADLINE_STEPS {
                world.again(born, tries + 1, count - let_in);
            }
        }
        world.instances.learn(first as f64, repeated as f64, &admitted.by_width, now);
        world.instances.act(now);
        if let Some(shortage) = world.instances.shortage() {
            short_after.get_or_insert((now.as_secs_f64(), shortage.write_units));
            scaler.wake(shortage, now);
        }
        if let Some(partitions) =
            scaler.act(&mut world.partitions, now).filter(|_| scenario.knows_partitions)
        {
            world.instances.publish_partitions(partitions);
        }
        if (step + 1) % STEPS_A_SECOND == 0 {
            let share = if of_second > 0.0 { throttled_of_second / of_second } else { 0.0 };
            by_second.push((share, world.instances.width().get()));
            world.instances.end_second();
            (of_second, throttled_of_second) = (0.0, 0.0);
        }
    }
    // Requests that still wait or retry have not failed.
    let waiting: u64 = world.retries.iter().flat_map(BTreeMap::values).sum();
    let waiting = waiting + world.held.first() + world.held.again();
    let (updates_made, updates_tried) = world.instances.updates();
    Outcome {
        scenario: scenario.clone(),
        relieved_after: relieved_after(&by_second),
        accepted: accepted as f64 / (offered - waiting.min(offered)).max(1) as f64,
        final_width: world.instances.width().get(),
        short_after,
        at_maximum_after: world.instances.at_maximum_after().map(|after| after.as_secs_f64()),
        final_partitions: u32::try_from(world.partitions.count()).unwrap_or(u32::MAX),
        updates_made,
        updates_tried,
        by_second,
        without_view: without_view / steps.max(1) as f64,
        metadata: world.instances.metadata(),
    }
}

/// Returns the first second of lasting relief.
fn relieved_after(by_second: &[(f64, u32)]) -> Option<f64> {
    let calm = |window: &[(f64, u32)]| window.iter().all(|(throttled, _)| *throttled < RELIEVED);
    by_second.windows(STAYS_RELIEVED).position(calm).map(|second| second as f64)
}

impl World {
    /// Returns the requests that are sent in a step. Requests of instances that have no view, or
    /// wait for an open, are held until the instances may send.
    fn sent(&mut self, step: u64, arrivals: u64, due: Cohorts, instances: Held) -> Requests {
        let Held { waiting, released, .. } = instances;
        let mut sent = Requests::default();
        let held = std::mem::take(&mut self.held);
        let fresh = self.part(arrivals, 1.0 - waiting);
        sent.first.insert(step, fresh);
        *self.held.first.entry(step / BORN * BORN).or_default() += arrivals - fresh;
        for (born, count) in held.first {
            let freed = self.part(count, released);
            *sent.first.entry(born).or_default() += freed;
            *self.held.first.entry(born).or_default() += count - freed;
        }
        for (of, count) in due {
            let free = self.part(count, 1.0 - waiting);
            *sent.again.entry(of).or_default() += free;
            *self.held.again.entry(of).or_default() += count - free;
        }
        for (of, count) in held.again {
            let freed = self.part(count, released);
            *sent.again.entry(of).or_default() += freed;
            *self.held.again.entry(of).or_default() += count - freed;
        }
        self.held.first.retain(|_, count| *count > 0);
        self.held.again.retain(|_, count| *count > 0);
        sent
    }

    /// Returns the number of accepted attempts of `count`.
    fn let_in(&mut self, count: u64, share: f64) -> u64 {
        super::instances::whole(count as f64 * share, &mut self.rng).min(count)
    }

    /// Returns a share of `count` requests. Chance decides only if the share is neither none nor
    /// all.
    fn part(&mut self, count: u64, share: f64) -> u64 {
        if share <= 0.0 {
            0
        } else if share >= 1.0 {
            count
        } else {
            self.let_in(count, share)
        }
    }

    /// Spreads attempts over the shards of each width in use, and charges their partitions.
    fn admit(&mut self, all: u64, now: Duration) -> Admitted {
        let (mut wanted_sum, mut granted_sum) = (0.0, 0.0);
        let mut by_width = Vec::new();
        for (width, share) in self.instances.widths() {
            let mean = all as f64 * share / f64::from(width.get());
            let (mut wanted, mut granted) = (0.0, 0.0);
            for shard in 0..width.get() {
                let units = self.poisson(mean) as f64;
                if units > 0.0 {
                    wanted += units;
                    granted += self.take(shard, units, now);
                }
            }
            let refused = if wanted > 0.0 { 1.0 - granted / wanted } else { 0.0 };
            by_width.push((width, refused));
            wanted_sum += wanted;
            granted_sum += granted;
        }
        let share = if wanted_sum > 0.0 { granted_sum / wanted_sum } else { 1.0 };
        Admitted { share, by_width }
    }

    /// Takes units from a shard's partition. Sort keys are scattered, which gives DynamoDB's own
    /// split its best chance.
    fn take(&mut self, shard: u32, units: f64, now: Duration) -> f64 {
        while self.keys.len() <= shard as usize {
            self.keys.push(StoredKey::new(format!("{}.{}", self.key, self.keys.len() + 1)));
        }
        let Some(key) = self.keys.get(shard as usize) else { return 0.0 };
        let parts = 16;
        let of_part = units / f64::from(parts);
        if self.partitions.is_split(key) {
            (0..parts)
                .map(|part| {
                    self.partitions.take(key, Some(&format!("{part}-{}", shard)), of_part, now)
                })
                .sum()
        } else {
            let sort_key = if self.rng.random::<bool>() { "a" } else { "b" };
            self.partitions.take(key, Some(sort_key), units, now)
        }
    }

    /// Schedules the retries of throttled requests, with back-off.
    fn again(&mut self, born: u64, tries: u32, count: u64) {
        if count == 0 {
            return;
        }
        let longest = FIRST_PAUSE.saturating_mul(1 << tries.min(10)).min(LONGEST_PAUSE);
        // A few draws represent the requests of a cohort.
        let draws = count.min(4);
        for draw in 0..draws {
            let part = count / draws + u64::from(draw < count % draws);
            let pause = longest.mul_f64(self.rng.random()).as_millis() / STEP.as_millis();
            let pause = usize::try_from(pause).unwrap_or(0);
            while self.retries.len() <= pause {
                self.retries.push_back(Cohorts::new());
            }
            if let Some(cohorts) = self.retries.get_mut(pause) {
                *cohorts.entry((born / BORN * BORN, tries.min(TRIES))).or_default() += part;
            }
        }
    }

    fn poisson(&mut self, mean: f64) -> u64 {
        Poisson::new(mean).map_or(0, |poisson| poisson.sample(&mut self.rng) as u64)
    }
}
