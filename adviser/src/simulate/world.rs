//! One run: arrivals, partitions, retries.

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

/// The length of a step.
pub(super) const STEP: Duration = Duration::from_millis(10);
const STEPS_A_SECOND: u64 = 100;
/// After this a request gives up: what the template gives the writer, less the margin for the answer.
const DEADLINE_STEPS: u64 = 960;
/// Relief: less than this part of the new writes is throttled or waits for an open...
const RELIEVED: f64 = 0.01;
/// ...in so many seconds on end.
const STAYS_RELIEVED: usize = 5;

/// One row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What the table calls the policy.
    pub policy: &'static str,
    /// The policy.
    pub contender: Contender,
    /// Write units a second, from second 0 on.
    pub demand: u32,
    /// Partitions of the table, at the beginning.
    pub partitions: u32,
    /// Instances know how many there are, as the directory says.
    pub knows_partitions: bool,
    /// Write units a second that the shard-scaler may raise the table's warm throughput to; 0 for never.
    pub budget: u32,
    /// How long such a raise takes.
    pub warming: Duration,
    /// Simulated seconds.
    pub seconds: u32,
    /// Instances, each of which writes and reads.
    pub instances: u32,
    /// Reads a second, of all instances.
    pub reads: u32,
    /// How the instances start.
    pub starts: Starts,
    /// Copies of the key's page in the directory.
    pub copies: u32,
    /// Partitions of the metadata table; without a number, each of its items has one to itself.
    pub metadata_partitions: Option<u32>,
    /// Of the random numbers.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The scenario.
    pub scenario: Scenario,
    /// Seconds until under 1 % of the new writes were throttled or waited for an open, for five seconds on end; `None` where that never came.
    pub relieved_after: Option<f64>,
    /// The part of the writes that was accepted within their deadline.
    pub accepted: f64,
    /// The write width at the end.
    pub final_width: u32,
    /// When an instance first reported that the table is short of partitions, in seconds, and the write units a second that it named first,
    /// where the partitions were known.
    pub short_after: Option<(f64, Option<u64>)>,
    /// When an instance first reported that the key has the most shards and lacks some, in seconds.
    pub at_maximum_after: Option<f64>,
    /// Partitions of the table at the end.
    pub final_partitions: u32,
    /// Conditional updates of the metadata that succeeded.
    pub updates_made: u64,
    /// Conditional updates that were tried.
    pub updates_tried: u64,
    /// The part of the new writes of every second that was throttled or waited for an open, with the write width at its end.
    pub by_second: Vec<(f64, u32)>,
    /// The part of the time of the running instances in which they had no view within its lease: what they were asked for waited.
    pub without_view: f64,
    /// What the metadata table bore; `None` where nobody uses it.
    pub metadata: Option<MetadataLoad>,
}

/// Requests are told apart by their time of birth, to this many steps...
const BORN: u64 = 50;
/// ...and by their repetitions so far, up to where the pause grows no more.
const TRIES: u32 = 6;

/// Requests that will try again: (born, repetitions so far) -> how many.
type Cohorts = BTreeMap<(u64, u32), u64>;

struct World {
    partitions: Partitions,
    instances: Instances,
    /// Where each shard lies. Another seed places them elsewhere.
    keys: Vec<StoredKey>,
    key: String,
    /// Due in the steps to come.
    retries: VecDeque<Cohorts>,
    /// Of instances that have no view, or wait for an open.
    held: Requests,
    rng: Xoshiro256PlusPlus,
}

/// Requests of one step.
#[derive(Default)]
struct Requests {
    /// Never sent before: born -> how many.
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

/// What a step accepted, of all attempts and by the width that they were placed under.
struct Admitted {
    share: f64,
    by_width: Vec<(ShardCount, f64)>,
}

pub(super) fn run(scenario: &Scenario) -> Outcome {
    let limits =
        PartitionLimits { partitions: scenario.partitions, warming: scenario.warming, ..PartitionLimits::default() };
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
            // A write that waited for an open before it was sent was not taken at once.
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
        if let Some(partitions) = scaler.act(&mut world.partitions, now).filter(|_| scenario.knows_partitions) {
            world.instances.publish_partitions(partitions);
        }
        if (step + 1) % STEPS_A_SECOND == 0 {
            let share = if of_second > 0.0 { throttled_of_second / of_second } else { 0.0 };
            by_second.push((share, world.instances.width().get()));
            world.instances.end_second();
            (of_second, throttled_of_second) = (0.0, 0.0);
        }
    }
    // What is still on its way has not failed.
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

/// The first second from which on the key stays relieved.
fn relieved_after(by_second: &[(f64, u32)]) -> Option<f64> {
    let calm = |window: &[(f64, u32)]| window.iter().all(|(throttled, _)| *throttled < RELIEVED);
    by_second.windows(STAYS_RELIEVED).position(calm).map(|second| second as f64)
}

impl World {
    /// The requests that go out in a step: those of instances that have no view, or wait for an open, are held until they may send.
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

    /// How many of so many attempts are accepted.
    fn let_in(&mut self, count: u64, share: f64) -> u64 {
        super::instances::whole(count as f64 * share, &mut self.rng).min(count)
    }

    /// A part of so many requests; chance decides only where the part is neither none nor all.
    fn part(&mut self, count: u64, share: f64) -> u64 {
        if share <= 0.0 {
            0
        } else if share >= 1.0 {
            count
        } else {
            self.let_in(count, share)
        }
    }

    /// Spreads attempts over the shards of each width in use, and takes what their partitions give.
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

    /// Sort keys are scattered, which gives DynamoDB's own split its best chance.
    fn take(&mut self, shard: u32, units: f64, now: Duration) -> f64 {
        while self.keys.len() <= shard as usize {
            self.keys.push(StoredKey::new(format!("{}.{}", self.key, self.keys.len() + 1)));
        }
        let Some(key) = self.keys.get(shard as usize) else { return 0.0 };
        let parts = 16;
        let of_part = units / f64::from(parts);
        if self.partitions.is_split(key) {
            (0..parts).map(|part| self.partitions.take(key, Some(&format!("{part}-{}", shard)), of_part, now)).sum()
        } else {
            let sort_key = if self.rng.random::<bool>() { "a" } else { "b" };
            self.partitions.take(key, Some(sort_key), units, now)
        }
    }

    /// Puts throttled requests off by their back-off.
    fn again(&mut self, born: u64, tries: u32, count: u64) {
        if count == 0 {
            return;
        }
        let longest = FIRST_PAUSE.saturating_mul(1 << tries.min(10)).min(LONGEST_PAUSE);
        // A few draws stand for the many of a cohort.
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
