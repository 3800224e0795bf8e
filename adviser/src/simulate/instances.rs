//! The instances: their views of the key, and their actions to relieve it.
//!
//! Each instance follows the crate (`shared/src/sharded_table`): `views.rs` for its view, and
//! `scale.rs` for the relief of the key. A request to the metadata table takes one step.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use sharding::internal::protocol::metadata::Change;
use sharding::internal::{
    CROWD_BACKOFF, DRIFT_MARGIN, EVIDENCE_LASTS, FIRST_PAUSE, GrowthRecord, LONGEST_GATHERING,
    LONGEST_PAUSE, LOOK_AGAIN, MAX_LEASE, OBSERVER_PAUSE, Pressure, PressureTracker,
    ScalingDecision, ScalingPolicy, Seen, ShardCount, ShardMetadata, TOGETHER,
};

use super::metadata::{MetadataItem, MetadataLoad, MetadataTable};
use super::scaler::Shortage;
use super::world::{STEP, Scenario};
use super::{Contender, Starts};
use crate::plan::renewed_after;

/// The wall-clock second at which a run starts. Only differences matter.
const EPOCH: u64 = 1_000_000;
/// The time from a close, once every copy of the page has it, to its open.
const OPENING_WAIT: Duration = MAX_LEASE.saturating_add(DRIFT_MARGIN);
/// The time of an actor's requests between a close and its open; `opens_at` includes it.
const OPENING_TIME: Duration = Duration::from_millis(20);
/// The pause between two reads of an instance that waits for an open, and the longest random pause
/// on top.
const POLL: Duration = Duration::from_millis(100);

/// The instances that Lambda starts at once, and in each later second. (AWS Lambda developer guide,
/// "Lambda scaling behavior": 1,000 every 10 seconds, refilled continuously and not saved up.)
const STARTED_AT_ONCE: u32 = 1_000;
const STARTED_A_SECOND: u32 = 100;

/// The key's entry in its page.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Entry {
    generation: u64,
    width: ShardCount,
    is_closing: bool,
    /// The earliest time of the open.
    opens_at: Duration,
}

impl Entry {
    fn of(metadata: &ShardMetadata, opens_at: Duration) -> Self {
        Self {
            generation: metadata.generation,
            width: metadata.number_of_shards,
            is_closing: metadata.closing().is_some(),
            opens_at,
        }
    }
}

/// A request to the metadata table, repeated until it is served.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Attempt {
    at: Duration,
    throttled: u32,
}

impl Attempt {
    const fn at(at: Duration) -> Self {
        Self { at, throttled: 0 }
    }

    /// Returns the next attempt after a throttle: exponential back-off with full jitter.
    fn repeated(self, now: Duration, rng: &mut Xoshiro256PlusPlus) -> Self {
        let longest = FIRST_PAUSE.saturating_mul(1 << self.throttled.min(10)).min(LONGEST_PAUSE);
        Self { at: now + STEP + longest.mul_f64(rng.random()), throttled: self.throttled + 1 }
    }
}

/// The state of an instance's relief of the key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Relief {
    Idle,
    /// The instance was throttled, and waits until it has enough evidence.
    Gathering {
        since: Duration,
        until: Duration,
    },
    /// The instance needs a view that was requested after `since`.
    Looking {
        since: Duration,
        then: Then,
    },
    /// The instance reads whether the table is still known to be short of partitions.
    ReadingShortage {
        attempt: Attempt,
    },
    /// The instance adds its evidence to the shared evidence.
    Adding {
        attempt: Attempt,
        until: Duration,
    },
    /// The instance waits for others to add their evidence.
    Added {
        until: Duration,
    },
    /// The instance reads the shared evidence.
    ReadingEvidence {
        attempt: Attempt,
    },
    /// The instance reads the key's item.
    Reading {
        why: Why,
        attempt: Attempt,
    },
    /// The instance has changed the item and publishes the change: it reads the number of copies,
    /// and writes the copies.
    Publishing {
        entry: Entry,
        attempt: Attempt,
    },
    /// The instance has closed the key.
    Closed {
        until: Duration,
        generation: u64,
    },
    /// The instance has found a closing in the item that its page did not show.
    WaitingOut {
        until: Duration,
        generation: u64,
    },
}

/// The next action of an instance if its view shows no closing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// Add its evidence, which is too little for its own decision.
    Add,
    /// Read whether the table is still short of partitions, and then add its evidence.
    ReadShortage,
    ReadEvidence,
    Decide,
}

/// The purpose of a read of the key's item.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Why {
    /// A decision.
    Decide,
    /// The takeover of a closing that the page has shown for longer than a change takes.
    TakeOver { generation: u64 },
    /// The takeover of a closing that the item has shown for longer than a change takes.
    WaitOut { generation: u64 },
}

/// The time in which a throttled instance makes no decision.
#[derive(Debug, Clone, Copy, Default)]
struct Quiet {
    until: Duration,
    /// Whether the reason is that the table was short of partitions.
    is_short: bool,
}

#[derive(Debug)]
struct Instance {
    starts_at: Duration,
    /// Whether the instance has read the table item, which has the number of copies.
    knows_table: bool,
    /// The copy that the instance reads.
    copy: u32,
    entry: Entry,
    /// The time at which the instance requested its view; `None` before the first request.
    asked_at: Option<Duration>,
    /// The next read of the table item or the page.
    look: Attempt,
    /// The generation of the closing that the instance waits for, and the time at which it takes
    /// the closing over.
    watched: Option<(u64, Duration)>,
    /// Whether the instance may send writes in this step.
    sends: bool,
    tracker: PressureTracker,
    relief: Relief,
    quiet: Quiet,
    /// The number of partitions of the main table, from the page.
    partitions: Option<u32>,
    /// The shared evidence, after the instance has added its own or read it.
    together: Option<Pressure>,
}

/// The shared evidence of all instances on the key.
#[derive(Debug, Clone, Copy, Default)]
struct Evidence {
    generation: u64,
    partitions: Option<u32>,
    begun: Duration,
    seen: Pressure,
}

impl Evidence {
    fn of(self, generation: u64, partitions: Option<u32>) -> Option<Pressure> {
        ((self.generation, self.partitions) == (generation, partitions)).then_some(self.seen)
    }
}

/// The state of the key that all instances share.
#[derive(Debug)]
struct Key {
    item: ShardMetadata,
    page: Entry,
    /// The item and the page at the start of the step, because requests of one step run
    /// concurrently.
    seen_item: ShardMetadata,
    seen_page: Entry,
    table: MetadataTable,
    copies: u32,
    /// Whether instances also read.
    is_read: bool,
    /// The width that the first instance sets when it starts.
    once: Option<ShardCount>,
    updates_tried: u64,
    updates_made: u64,
    evidence: Evidence,
    /// A known shortage of partitions: the generation of the key, the number of partitions, and the
    /// end of the knowledge.
    short: Option<(u64, Option<u32>, Duration)>,
    /// The shortage that an instance has reported in this step.
    shortage: Option<Shortage>,
    /// The time at which an instance first found that the key needs more than the maximum of
    /// shards.
    at_maximum_after: Option<Duration>,
    /// The number of partitions of the main table, from the directory.
    partitions: Option<u32>,
    rng: Xoshiro256PlusPlus,
}

/// All instances that use the key.
#[derive(Debug)]
pub(super) struct Instances {
    all: Vec<Instance>,
    policy: Option<ScalingPolicy>,
    key: Key,
}

/// The shares of the running instances that may not send writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Held {
    /// The share that may not send, because it has no view or waits for an open.
    pub(super) waiting: f64,
    /// The share of the instances held in the previous step that may send now.
    pub(super) released: f64,
    /// The share that needs a view and has none within its lease.
    pub(super) without_view: f64,
}

impl Instances {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let policy = match scenario.contender {
            Contender::Nothing => None,
            Contender::Policy(policy) => Some(policy),
            // The first instance makes the one change at once. The policy never makes another.
            Contender::Once(_) => {
                Some(ScalingPolicy { evidence: u64::MAX, ..ScalingPolicy::default() })
            }
        };
        let item = ShardMetadata::unregistered();
        let page = Entry::of(&item, Duration::ZERO);
        let mut key = Key {
            seen_item: item.clone(),
            seen_page: page,
            item,
            page,
            table: MetadataTable::new(scenario.copies, scenario.metadata_partitions),
            copies: scenario.copies,
            is_read: scenario.reads > 0,
            once: if let Contender::Once(to) = scenario.contender { Some(to) } else { None },
            updates_tried: 0,
            updates_made: 0,
            evidence: Evidence::default(),
            short: None,
            shortage: None,
            at_maximum_after: None,
            partitions: scenario.knows_partitions.then_some(scenario.partitions),
            rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed),
        };
        let all = (0..scenario.instances)
            .map(|number| Instance::new(number, scenario, &mut key))
            .collect();
        Self { all, policy, key }
    }

    /// Takes the shortage of partitions that was reported since the last call.
    pub(super) const fn shortage(&mut self) -> Option<Shortage> {
        self.key.shortage.take()
    }

    /// Returns the time at which an instance first found that the key needs more than the maximum
    /// of shards.
    pub(super) const fn at_maximum_after(&self) -> Option<Duration> {
        self.key.at_maximum_after
    }

    /// Publishes the main table's number of partitions in the directory.
    pub(super) const fn publish_partitions(&mut self, partitions: u32) {
        self.key.partitions = Some(partitions);
    }

    /// Returns the write width.
    pub(super) const fn width(&self) -> ShardCount {
        self.key.item.number_of_shards
    }

    /// Returns the successful and all conditional updates of the key's item.
    pub(super) const fn updates(&self) -> (u64, u64) {
        (self.key.updates_made, self.key.updates_tried)
    }

    /// Returns the load on the metadata table; `None` without a policy, which does not use it.
    pub(super) fn metadata(&self) -> Option<MetadataLoad> {
        self.policy.is_some().then(|| self.key.table.load())
    }

    /// Ends a second of the metadata table's load.
    pub(super) fn end_second(&mut self) {
        self.key.table.end_second();
    }

    /// Determines the instances that may send writes in this step.
    pub(super) fn hold(&mut self, now: Duration) -> Held {
        let (mut running, mut waiting, mut waited, mut released, mut without_view) =
            (0, 0, 0, 0, 0);
        for instance in self.all.iter_mut().filter(|instance| now >= instance.starts_at) {
            let has_view = self.policy.is_none() || instance.has_view(now);
            let sends = has_view && !instance.entry.is_closing;
            running += 1;
            waiting += u32::from(!sends);
            waited += u32::from(!instance.sends);
            released += u32::from(sends && !instance.sends);
            // Without reads, an instance that waits for an open needs no view before it.
            without_view +=
                u32::from(!has_view && (self.key.is_read || !instance.entry.is_closing));
            instance.sends = sends;
        }
        let part =
            |some: u32, all: u32| if all == 0 { 0.0 } else { f64::from(some) / f64::from(all) };
        Held {
            waiting: if running == 0 { 1.0 } else { part(waiting, running) },
            released: part(released, waited),
            without_view: part(without_view, running),
        }
    }

    /// Returns the instances that send writes.
    fn active(&self) -> impl Iterator<Item = &Instance> {
        self.all.iter().filter(|instance| instance.sends)
    }

    /// Returns the widths that instances write under, with the share of the writing instances.
    pub(super) fn widths(&self) -> Vec<(ShardCount, f64)> {
        let mut widths: Vec<(ShardCount, f64)> = Vec::new();
        let one = 1.0 / self.active().count() as f64;
        for instance in self.active() {
            match widths.iter_mut().find(|(width, _)| *width == instance.entry.width) {
                Some((_, share)) => *share += one,
                None => widths.push((instance.entry.width, one)),
            }
        }
        widths
    }

    /// Records in every instance the results of its share of a step's attempts. `refused` is the
    /// throttled share by width.
    pub(super) fn learn(
        &mut self,
        first_attempts: f64,
        repetitions: f64,
        refused: &[(ShardCount, f64)],
        now: Duration,
    ) {
        let count = self.active().count() as f64;
        let rng = &mut self.key.rng;
        for instance in self.all.iter_mut().filter(|instance| instance.sends) {
            let Some((width, refused)) =
                refused.iter().find(|(width, _)| *width == instance.entry.width).copied()
            else {
                continue;
            };
            let attempts = whole(first_attempts / count, rng);
            let throttled = (0..attempts).filter(|_| rng.random::<f64>() < refused).count() as u64;
            let late = whole(repetitions / count * (1.0 - refused), rng);
            instance.tracker.record(
                width,
                Pressure { attempts, throttled, accepted: attempts - throttled + late },
                now,
            );
            // A throttled retry also starts a relief.
            let is_throttled =
                throttled > 0 || rng.random::<f64>() < refused * (repetitions / count);
            if is_throttled
                && self.policy.is_some()
                && instance.relief == Relief::Idle
                && !instance.is_quiet(now)
            {
                let until = now + CROWD_BACKOFF.mul_f64(rng.random());
                instance.relief = Relief::Gathering { since: now, until };
            }
        }
    }

    /// Sends the due requests of every instance to the metadata table.
    pub(super) fn act(&mut self, now: Duration) {
        let Some(policy) = self.policy else { return };
        self.key.seen_item = self.key.item.clone();
        self.key.seen_page = self.key.page;
        for instance in self.all.iter_mut().filter(|instance| now >= instance.starts_at) {
            instance.look_if_due(&mut self.key, now);
            while instance.advance(&policy, &mut self.key, now) {
                instance.look_if_due(&mut self.key, now);
            }
        }
    }
}

impl Key {
    /// Writes a change of the item conditionally; `None` if another instance was first, or the
    /// write was throttled.
    fn change(&mut self, change: &Change, now: Duration) -> Option<Entry> {
        self.updates_tried += 1;
        let is_served = self.table.write(MetadataItem::Key, now);
        if !is_served || self.item.generation != self.seen_item.generation {
            return None;
        }
        self.item = self.seen_item.apply(change, EPOCH + now.as_secs())?;
        self.updates_made += 1;
        Some(Entry::of(&self.item, now + OPENING_WAIT + OPENING_TIME))
    }

    /// Writes an entry to every copy of the page; `false` if a request was throttled.
    fn publish(&mut self, entry: Entry, now: Duration) -> bool {
        let is_served = self.table.read(MetadataItem::Table, now)
            && (0..self.copies).all(|copy| self.table.write(MetadataItem::Page(copy), now));
        if is_served && entry.generation > self.page.generation {
            self.page = entry;
        }
        is_served
    }

    /// Returns the end of a known shortage, for an instance that knows this number of partitions.
    fn short_until(&self, partitions: Option<u32>, now: Duration) -> Option<Duration> {
        let (generation, on, until) = self.short?;
        (generation == self.item.generation && on == partitions && now < until).then_some(until)
    }

    fn jitter(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.rng.random())
    }

    /// Returns the time at which an instance that sees a closing now takes it over.
    fn patience(&mut self, now: Duration) -> Duration {
        now + OPENING_WAIT + OBSERVER_PAUSE + self.jitter(OBSERVER_PAUSE)
    }
}

impl Instance {
    fn new(number: u32, scenario: &Scenario, key: &mut Key) -> Self {
        let starts_at = match scenario.starts {
            Starts::Warm | Starts::AtOnce => Duration::ZERO,
            Starts::Lambda => {
                Duration::from_secs(1).saturating_mul((number + 1).saturating_sub(STARTED_AT_ONCE))
                    / STARTED_A_SECOND
            }
        };
        let is_warm = scenario.starts == Starts::Warm;
        // Warm instances have views of different ages.
        let age = f64::from(number + 1) / f64::from(scenario.instances.max(1));
        let first_look = if is_warm { renewed_after().mul_f64(age) } else { starts_at };
        let mut tracker = PressureTracker::default();
        tracker.observe_width(key.page.width, Duration::ZERO);
        Self {
            starts_at,
            knows_table: is_warm,
            copy: key.rng.random_range(0..scenario.copies.max(1)),
            entry: key.page,
            asked_at: is_warm.then_some(Duration::ZERO),
            look: Attempt::at(first_look),
            watched: None,
            sends: false,
            tracker,
            relief: if number == 0 && key.once.is_some() {
                Relief::Reading { why: Why::Decide, attempt: Attempt::at(starts_at) }
            } else {
                Relief::Idle
            },
            quiet: Quiet::default(),
            partitions: key.partitions.filter(|_| is_warm),
            together: None,
        }
    }

    fn has_view(&self, now: Duration) -> bool {
        self.asked_at.is_some_and(|asked_at| now.saturating_sub(asked_at) < MAX_LEASE)
    }

    fn is_quiet(&self, now: Duration) -> bool {
        now < self.quiet.until
    }

    fn be_quiet(&mut self, until: Duration, is_short: bool) {
        self.quiet = Quiet { until, is_short };
    }

    /// Reads the page, or the table item before its first page.
    fn look_if_due(&mut self, key: &mut Key, now: Duration) {
        if now < self.look.at {
            return;
        }
        // If one copy does not respond, the instance tries another.
        let copy = if self.look.throttled == 0 {
            self.copy
        } else {
            key.rng.random_range(0..key.copies.max(1))
        };
        let item = if self.knows_table { MetadataItem::Page(copy) } else { MetadataItem::Table };
        if !key.table.read(item, now) {
            self.look = self.look.repeated(now, &mut key.rng);
        } else if self.knows_table {
            if self.partitions != key.partitions && self.quiet.until > Duration::ZERO {
                self.quiet = Quiet::default();
                self.tracker.forget(now);
            }
            self.partitions = key.partitions;
            self.see(key.seen_page, key, now);
        } else {
            (self.knows_table, self.look) = (true, Attempt::at(now + STEP));
        }
    }

    /// Updates the view from a page or from the instance's own change. An entry of a higher
    /// generation stays.
    fn see(&mut self, entry: Entry, key: &mut Key, now: Duration) {
        if entry.generation >= self.entry.generation {
            if entry.width != self.entry.width {
                self.quiet = Quiet::default();
            }
            self.entry = entry;
        }
        self.asked_at = Some(now);
        self.tracker.observe_width(self.entry.width, now);
        let renewed = now + renewed_after();
        if !self.entry.is_closing {
            (self.watched, self.look) = (None, Attempt::at(renewed));
            return;
        }
        let generation = self.entry.generation;
        let watched = self.watched.filter(|(watched, _)| *watched == generation);
        let (_, ends) =
            *self.watched.insert(watched.unwrap_or_else(|| (generation, key.patience(now))));
        let left = self.entry.opens_at.saturating_sub(now).min(OPENING_WAIT);
        let mut next = now + left.max(POLL) + key.jitter(POLL);
        if now < ends {
            next = next.min(ends);
        }
        // Reads do not wait for the open, so they keep the view fresh.
        self.look = Attempt::at(if key.is_read { next.min(renewed) } else { next });
    }

    /// Takes the next step of a relief if it is due. Returns whether another step may follow at
    /// once.
    fn advance(&mut self, policy: &ScalingPolicy, key: &mut Key, now: Duration) -> bool {
        match self.relief {
            Relief::Idle => {
                let Some((generation, _)) = self.watched.filter(|(_, ends)| now >= *ends) else {
                    return false;
                };
                self.relief = Relief::Reading {
                    why: Why::TakeOver { generation },
                    attempt: Attempt::at(now),
                };
                true
            }
            Relief::Gathering { since, until } if now >= until => {
                let seen = self.tracker.seen(now);
                let is_sure = ScalingPolicy::is_sure(seen.pressure);
                if is_sure || now.saturating_sub(since) >= LONGEST_GATHERING {
                    if ScalingPolicy::is_calm(seen) {
                        self.relief = Relief::Idle;
                        return false;
                    }
                    let then = match (is_sure, self.quiet.is_short) {
                        (true, _) => Then::Decide,
                        (false, true) => Then::ReadShortage,
                        (false, false) => Then::Add,
                    };
                    (self.together, self.relief) = (None, Relief::Looking { since: now, then });
                    self.look_at_once(now);
                    return true;
                }
                self.relief = Relief::Gathering { since, until: now + key.jitter(CROWD_BACKOFF) };
                false
            }
            Relief::Looking { since, then }
                if self.asked_at.is_some_and(|asked_at| asked_at >= since) =>
            {
                // The page is read first. Most of a crowd of instances find that another has
                // already closed the key, and do not read the key's items.
                let attempt = Attempt::at(now);
                self.relief = match then {
                    _ if self.entry.is_closing => Relief::Idle,
                    Then::Add => Relief::Adding { attempt, until: now + TOGETHER },
                    Then::ReadShortage => Relief::ReadingShortage { attempt },
                    Then::ReadEvidence => Relief::ReadingEvidence { attempt },
                    Then::Decide => Relief::Reading { why: Why::Decide, attempt },
                };
                true
            }
            Relief::ReadingShortage { attempt } if now >= attempt.at => {
                self.relief = if !key.table.read(MetadataItem::Evidence, now) {
                    Relief::ReadingShortage { attempt: attempt.repeated(now, &mut key.rng) }
                } else if self.is_known_short(key, now) {
                    Relief::Idle
                } else {
                    Relief::Adding { attempt: Attempt::at(now + STEP), until: now + TOGETHER }
                };
                false
            }
            Relief::Adding { attempt, until } if now >= attempt.at => {
                self.relief = if !key.table.write(MetadataItem::Evidence, now) {
                    // Enough other instances add their evidence.
                    if now >= until {
                        self.be_quiet(now + EVIDENCE_LASTS, false);
                        Relief::Idle
                    } else {
                        Relief::Adding { attempt: attempt.repeated(now, &mut key.rng), until }
                    }
                } else if self.is_known_short(key, now) {
                    Relief::Idle
                } else if ScalingPolicy::is_sure(self.add_evidence(key, now)) {
                    self.decided_together(now)
                } else {
                    Relief::Added { until: now + TOGETHER }
                };
                false
            }
            Relief::Added { until } if now >= until => {
                self.relief = Relief::Looking { since: now, then: Then::ReadEvidence };
                self.look_at_once(now);
                true
            }
            Relief::ReadingEvidence { attempt } if now >= attempt.at => {
                self.relief = if !key.table.read(MetadataItem::Evidence, now) {
                    Relief::ReadingEvidence { attempt: attempt.repeated(now, &mut key.rng) }
                } else if self.is_known_short(key, now) {
                    Relief::Idle
                } else {
                    self.together = key.evidence.of(self.entry.generation, self.partitions);
                    self.decided_together(now)
                };
                false
            }
            Relief::Reading { why, attempt } if now >= attempt.at => {
                self.relief = if key.table.read(MetadataItem::Key, now) {
                    self.judge(why, policy, key, now)
                } else {
                    Relief::Reading { why, attempt: attempt.repeated(now, &mut key.rng) }
                };
                false
            }
            Relief::Publishing { entry, attempt } if now >= attempt.at => {
                self.relief = if !key.publish(entry, now) {
                    Relief::Publishing { entry, attempt: attempt.repeated(now, &mut key.rng) }
                } else if entry.is_closing {
                    Relief::Closed { until: now + OPENING_WAIT, generation: entry.generation }
                } else {
                    Relief::Idle
                };
                false
            }
            Relief::Closed { until, generation } if now >= until => {
                let is_own = key.seen_item.generation == generation;
                self.relief =
                    if is_own { self.change(&Change::Open, key, now) } else { Relief::Idle };
                false
            }
            Relief::WaitingOut { until, generation } if now >= until => {
                self.relief =
                    Relief::Reading { why: Why::WaitOut { generation }, attempt: Attempt::at(now) };
                true
            }
            Relief::Gathering { .. }
            | Relief::Looking { .. }
            | Relief::ReadingShortage { .. }
            | Relief::Adding { .. }
            | Relief::Added { .. }
            | Relief::ReadingEvidence { .. }
            | Relief::Reading { .. }
            | Relief::Publishing { .. }
            | Relief::Closed { .. }
            | Relief::WaitingOut { .. } => false,
        }
    }

    /// Returns the next state after a read of the key's item.
    fn judge(&mut self, why: Why, policy: &ScalingPolicy, key: &mut Key, now: Duration) -> Relief {
        let stored = key.seen_item.generation;
        // If this attempt fails, the next read of the page starts a new wait.
        self.watched = None;
        match why {
            Why::Decide => self.decide(policy, key, now),
            Why::TakeOver { generation } | Why::WaitOut { generation } if stored == generation => {
                self.change(&Change::CloseAgain, key, now)
            }
            // The actor of the change did not publish it to the page.
            Why::TakeOver { .. } => {
                self.look_at_once(now + 2 * STEP);
                Relief::Publishing {
                    entry: Entry::of(&key.seen_item, now),
                    attempt: Attempt::at(now + STEP),
                }
            }
            Why::WaitOut { .. } => Relief::Idle,
        }
    }

    /// Returns the next state after a read of the shared evidence.
    fn decided_together(&mut self, now: Duration) -> Relief {
        if ScalingPolicy::is_calm(self.seen(now)) {
            self.be_quiet(now + EVIDENCE_LASTS, false);
            return Relief::Idle;
        }
        Relief::Reading { why: Why::Decide, attempt: Attempt::at(now + STEP) }
    }

    /// Returns the evidence for a decision.
    fn seen(&mut self, now: Duration) -> Seen {
        let own = self.tracker.seen(now);
        let together = self.together.filter(|together| together.attempts > own.pressure.attempts);
        Seen { pressure: together.unwrap_or(own.pressure), partitions: self.partitions, ..own }
    }

    /// Adds the instance's evidence to the shared evidence, or starts it anew. Returns the shared
    /// evidence.
    fn add_evidence(&mut self, key: &mut Key, now: Duration) -> Pressure {
        let (own, evidence) = (self.tracker.take_untold(now), &mut key.evidence);
        let (generation, partitions) = (self.entry.generation, self.partitions);
        if evidence.of(generation, partitions).is_some()
            && now.saturating_sub(evidence.begun) <= EVIDENCE_LASTS
        {
            evidence.seen = evidence.seen.plus(own);
        } else if evidence.generation <= generation {
            *evidence = Evidence { generation, partitions, begun: now, seen: own };
        }
        let together = evidence.of(generation, partitions).unwrap_or(own);
        self.together = Some(together);
        together
    }

    /// Whether the table is known to be short of partitions. If so, the instance makes no decision
    /// for a while.
    fn is_known_short(&mut self, key: &Key, now: Duration) -> bool {
        let until = key.short_until(self.partitions, now);
        if let Some(until) = until {
            self.be_quiet(until, true);
        }
        until.is_some()
    }

    fn decide(&mut self, policy: &ScalingPolicy, key: &mut Key, now: Duration) -> Relief {
        if let Some(to) = key.once {
            return self.change(&Change::Close { to, growth: GrowthRecord::default() }, key, now);
        }
        let seen = self.seen(now);
        match policy.decide(&key.seen_item, seen, EPOCH + now.as_secs()) {
            ScalingDecision::ScaleOut(to) => {
                let close = Change::Close { to, growth: policy.record(&key.seen_item, seen) };
                self.change(&close, key, now)
            }
            ScalingDecision::Closing(_) => Relief::WaitingOut {
                until: key.patience(now),
                generation: key.seen_item.generation,
            },
            ScalingDecision::CoolingDown { until } => {
                self.be_quiet(Duration::from_secs(until.saturating_sub(EPOCH)), false);
                Relief::Idle
            }
            ScalingDecision::ShortOfPartitions { until, write_units } => {
                let until = Duration::from_secs(until.saturating_sub(EPOCH));
                self.be_quiet(until, true);
                // Only one instance of a crowd reports the shortage.
                if key.table.write(MetadataItem::Evidence, now)
                    && key.short_until(self.partitions, now).is_none()
                {
                    key.short = Some((key.item.generation, self.partitions, until));
                    key.shortage = Some(Shortage { write_units });
                }
                Relief::Idle
            }
            ScalingDecision::AtMaximum | ScalingDecision::DirectoryFull => {
                key.at_maximum_after.get_or_insert(now);
                self.be_quiet(now + LOOK_AGAIN, false);
                Relief::Idle
            }
            ScalingDecision::Calm => Relief::Idle,
        }
    }

    /// Changes the key's item, and updates the instance's own view.
    fn change(&mut self, change: &Change, key: &mut Key, now: Duration) -> Relief {
        let Some(entry) = key.change(change, now) else { return Relief::Idle };
        self.see(entry, key, now);
        Relief::Publishing { entry, attempt: Attempt::at(now + STEP) }
    }

    /// Schedules a read of the page at this time, unless a throttled read is being retried.
    fn look_at_once(&mut self, at: Duration) {
        if self.look.throttled == 0 {
            self.look = Attempt::at(at);
        }
    }
}

/// Draws a whole number with this mean.
pub(super) fn whole(mean: f64, rng: &mut Xoshiro256PlusPlus) -> u64 {
    let floor = mean.floor();
    floor as u64 + u64::from(rng.random::<f64>() < mean - floor)
}
