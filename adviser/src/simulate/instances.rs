//! The instances: what each sees of the key, and what each does about it.
//!
//! Each follows the crate: `shared/src/sharded_table`, `views.rs` in how it gets its view, `scale.rs` in how it relieves the key. A request
//! to the metadata table takes one step.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use sharding::internal::protocol::metadata::Change;
use sharding::internal::{
    CROWD_BACKOFF, DRIFT_MARGIN, EVIDENCE_LASTS, FIRST_PAUSE, GrowthRecord, LONGEST_GATHERING, LONGEST_PAUSE,
    LOOK_AGAIN, MAX_LEASE, OBSERVER_PAUSE, Pressure, PressureTracker, ScalingDecision, ScalingPolicy, Seen, ShardCount,
    ShardMetadata, TOGETHER,
};

use super::metadata::{MetadataItem, MetadataLoad, MetadataTable};
use super::scaler::Shortage;
use super::world::{STEP, Scenario};
use super::{Contender, Starts};
use crate::plan::renewed_after;

/// Wall-clock seconds at which a run begins; only differences matter.
const EPOCH: u64 = 1_000_000;
/// Between a close, once every copy of the page has it, and its open.
const OPENING_WAIT: Duration = MAX_LEASE.saturating_add(DRIFT_MARGIN);
/// What an actor takes for its requests between a close and its open; `opens_at` counts on it.
const OPENING_TIME: Duration = Duration::from_millis(20);
/// Between two looks of an instance that waits for an open, and the longest random pause on top.
const POLL: Duration = Duration::from_millis(100);

/// Instances that Lambda starts at once, and in each second after that. (AWS Lambda developer guide, "Lambda scaling behavior": 1,000 every 10
/// seconds, refilled continuously and not saved up.)
const STARTED_AT_ONCE: u32 = 1_000;
const STARTED_A_SECOND: u32 = 100;

/// What a page says of the key.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Entry {
    generation: u64,
    width: ShardCount,
    is_closing: bool,
    /// Nobody opens before.
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

    /// After a throttle: exponential back-off with full jitter.
    fn repeated(self, now: Duration, rng: &mut Xoshiro256PlusPlus) -> Self {
        let longest = FIRST_PAUSE.saturating_mul(1 << self.throttled.min(10)).min(LONGEST_PAUSE);
        Self { at: now + STEP + longest.mul_f64(rng.random()), throttled: self.throttled + 1 }
    }
}

/// What an instance is doing about the width.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Relief {
    Idle,
    /// It was throttled, and waits until it has seen enough.
    Gathering {
        since: Duration,
        until: Duration,
    },
    /// It wants a view that was asked for since then.
    Looking {
        since: Duration,
        then: Then,
    },
    /// It reads whether the table is known to be short of partitions again.
    ReadingShortage {
        attempt: Attempt,
    },
    /// It adds what it has seen to what others have.
    Adding {
        attempt: Attempt,
        until: Duration,
    },
    /// It leaves others time to add theirs.
    Added {
        until: Duration,
    },
    /// It reads what all have seen.
    ReadingEvidence {
        attempt: Attempt,
    },
    /// It reads the key's item.
    Reading {
        why: Why,
        attempt: Attempt,
    },
    /// It has changed the item, and makes that known: it reads how many copies there are, and writes them.
    Publishing {
        entry: Entry,
        attempt: Attempt,
    },
    /// It has closed.
    Closed {
        until: Duration,
        generation: u64,
    },
    /// It has found a closing in the item that its page did not show.
    WaitingOut {
        until: Duration,
        generation: u64,
    },
}

/// What an instance does with a view that shows no closing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// It has seen too little to decide by itself.
    Add,
    /// And the table was short of partitions.
    ReadShortage,
    ReadEvidence,
    Decide,
}

/// Why an instance reads the key's item.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Why {
    /// To decide.
    Decide,
    /// Its page has shown this closing for longer than a change takes.
    TakeOver { generation: u64 },
    /// The item has.
    WaitOut { generation: u64 },
}

/// Why an instance that is throttled makes no decision.
#[derive(Debug, Clone, Copy, Default)]
struct Quiet {
    until: Duration,
    /// The table was short of partitions.
    is_short: bool,
}

#[derive(Debug)]
struct Instance {
    starts_at: Duration,
    /// It has read the table item, and so knows of the copies.
    knows_table: bool,
    /// The copy that it reads.
    copy: u32,
    entry: Entry,
    /// When it asked for its view; absent before the first.
    asked_at: Option<Duration>,
    /// Its next read of the table item or the page.
    look: Attempt,
    /// The closing that it waits for, and when it takes that over.
    watched: Option<(u64, Duration)>,
    /// It may send writes in this step.
    sends: bool,
    tracker: PressureTracker,
    relief: Relief,
    quiet: Quiet,
    /// Of the main table, as its page says.
    partitions: Option<u32>,
    /// What it and others have seen, where that was added up.
    together: Option<Pressure>,
}

/// What instances have seen of the key together.
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

/// The key, as all instances share it.
#[derive(Debug)]
struct Key {
    item: ShardMetadata,
    page: Entry,
    /// Both as they were when the step began: requests of one step cross on their way.
    seen_item: ShardMetadata,
    seen_page: Entry,
    table: MetadataTable,
    copies: u32,
    /// Instances read besides writing.
    is_read: bool,
    /// The width that the first instance sets when it starts.
    once: Option<ShardCount>,
    updates_tried: u64,
    updates_made: u64,
    evidence: Evidence,
    /// Until when the table is known to be short of partitions, under which generation of the key and on how many partitions.
    short: Option<(u64, Option<u32>, Duration)>,
    /// What an instance has reported for all in this step.
    shortage: Option<Shortage>,
    /// When an instance first found that the key lacks shards and has the most.
    at_maximum_after: Option<Duration>,
    /// Of the main table, as the directory tells.
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

/// The instances that run, by whether they may send writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Held {
    /// The part that may not: it has no view, or waits for an open.
    pub(super) waiting: f64,
    /// The part of those which might not in the step before that may now.
    pub(super) released: f64,
    /// The part that needs a view and has none within its lease.
    pub(super) without_view: f64,
}

impl Instances {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let policy = match scenario.contender {
            Contender::Nothing => None,
            Contender::Policy(policy) => Some(policy),
            // It makes its one change at once, and never another.
            Contender::Once(_) => Some(ScalingPolicy { evidence: u64::MAX, ..ScalingPolicy::default() }),
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
        let all = (0..scenario.instances).map(|number| Instance::new(number, scenario, &mut key)).collect();
        Self { all, policy, key }
    }

    /// What was reported of a table that is short of partitions, since the last call.
    pub(super) const fn shortage(&mut self) -> Option<Shortage> {
        self.key.shortage.take()
    }

    /// When an instance first reported that the key lacks shards and has the most.
    pub(super) const fn at_maximum_after(&self) -> Option<Duration> {
        self.key.at_maximum_after
    }

    /// The directory says from now on that the main table has so many partitions.
    pub(super) const fn publish_partitions(&mut self, partitions: u32) {
        self.key.partitions = Some(partitions);
    }

    /// The write width.
    pub(super) const fn width(&self) -> ShardCount {
        self.key.item.number_of_shards
    }

    /// Conditional updates of the key's item that succeeded, and those that were tried.
    pub(super) const fn updates(&self) -> (u64, u64) {
        (self.key.updates_made, self.key.updates_tried)
    }

    /// What the metadata table bore; `None` where nobody uses it.
    pub(super) fn metadata(&self) -> Option<MetadataLoad> {
        self.policy.is_some().then(|| self.key.table.load())
    }

    /// Closes the books of a second.
    pub(super) fn end_second(&mut self) {
        self.key.table.end_second();
    }

    /// Settles who may send writes in this step.
    pub(super) fn hold(&mut self, now: Duration) -> Held {
        let (mut running, mut waiting, mut waited, mut released, mut without_view) = (0, 0, 0, 0, 0);
        for instance in self.all.iter_mut().filter(|instance| now >= instance.starts_at) {
            let has_view = self.policy.is_none() || instance.has_view(now);
            let sends = has_view && !instance.entry.is_closing;
            running += 1;
            waiting += u32::from(!sends);
            waited += u32::from(!instance.sends);
            released += u32::from(sends && !instance.sends);
            // Without reads, whoever waits for an open needs no view before it.
            without_view += u32::from(!has_view && (self.key.is_read || !instance.entry.is_closing));
            instance.sends = sends;
        }
        let part = |some: u32, all: u32| if all == 0 { 0.0 } else { f64::from(some) / f64::from(all) };
        Held {
            waiting: if running == 0 { 1.0 } else { part(waiting, running) },
            released: part(released, waited),
            without_view: part(without_view, running),
        }
    }

    /// The instances that send writes.
    fn active(&self) -> impl Iterator<Item = &Instance> {
        self.all.iter().filter(|instance| instance.sends)
    }

    /// The widths that instances write under, with the share of the instances that write.
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

    /// Every instance learns what became of its part of a step's attempts; `refused` is the part that was throttled, by width.
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
            let Some((width, refused)) = refused.iter().find(|(width, _)| *width == instance.entry.width).copied()
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
            // A repetition that is throttled is a reason as well.
            let is_throttled = throttled > 0 || rng.random::<f64>() < refused * (repetitions / count);
            if is_throttled && self.policy.is_some() && instance.relief == Relief::Idle && !instance.is_quiet(now) {
                let until = now + CROWD_BACKOFF.mul_f64(rng.random());
                instance.relief = Relief::Gathering { since: now, until };
            }
        }
    }

    /// Every instance makes the requests to the metadata table that are due.
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
    /// One conditional write of the item as it was seen; `None` where another was first, or it was throttled.
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

    /// Writes an entry to every copy of the page; `false` where a request was throttled.
    fn publish(&mut self, entry: Entry, now: Duration) -> bool {
        let is_served = self.table.read(MetadataItem::Table, now)
            && (0..self.copies).all(|copy| self.table.write(MetadataItem::Page(copy), now));
        if is_served && entry.generation > self.page.generation {
            self.page = entry;
        }
        is_served
    }

    /// Until when the table is known to be short, for an instance that knows of so many partitions.
    fn short_until(&self, partitions: Option<u32>, now: Duration) -> Option<Duration> {
        let (generation, on, until) = self.short?;
        (generation == self.item.generation && on == partitions && now < until).then_some(until)
    }

    fn jitter(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.rng.random())
    }

    /// From now on, when somebody who sees a closing takes it over.
    fn patience(&mut self, now: Duration) -> Duration {
        now + OPENING_WAIT + OBSERVER_PAUSE + self.jitter(OBSERVER_PAUSE)
    }
}

impl Instance {
    fn new(number: u32, scenario: &Scenario, key: &mut Key) -> Self {
        let starts_at = match scenario.starts {
            Starts::Warm | Starts::AtOnce => Duration::ZERO,
            Starts::Lambda => {
                Duration::from_secs(1).saturating_mul((number + 1).saturating_sub(STARTED_AT_ONCE)) / STARTED_A_SECOND
            }
        };
        let is_warm = scenario.starts == Starts::Warm;
        // Views of different ages.
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

    /// Reads the page, and before its first page the table item.
    fn look_if_due(&mut self, key: &mut Key, now: Duration) {
        if now < self.look.at {
            return;
        }
        // Where one copy does not answer, another may.
        let copy = if self.look.throttled == 0 { self.copy } else { key.rng.random_range(0..key.copies.max(1)) };
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

    /// Learns what a page, or a change of its own, says of the key. What is known of a higher generation stays.
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
        let (_, ends) = *self.watched.insert(watched.unwrap_or_else(|| (generation, key.patience(now))));
        let left = self.entry.opens_at.saturating_sub(now).min(OPENING_WAIT);
        let mut next = now + left.max(POLL) + key.jitter(POLL);
        if now < ends {
            next = next.min(ends);
        }
        // Reads do not wait for the open, and keep the view fresh.
        self.look = Attempt::at(if key.is_read { next.min(renewed) } else { next });
    }

    /// Takes the next step of a relief, if its time has come; says whether another may follow at once.
    fn advance(&mut self, policy: &ScalingPolicy, key: &mut Key, now: Duration) -> bool {
        match self.relief {
            Relief::Idle => {
                let Some((generation, _)) = self.watched.filter(|(_, ends)| now >= *ends) else { return false };
                self.relief = Relief::Reading { why: Why::TakeOver { generation }, attempt: Attempt::at(now) };
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
            Relief::Looking { since, then } if self.asked_at.is_some_and(|asked_at| asked_at >= since) => {
                // The page first: of a crowd of instances, most find that another has closed already, and leave the key's items alone.
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
                    // So many add what they saw that this one is not missed.
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
                self.relief = if is_own { self.change(&Change::Open, key, now) } else { Relief::Idle };
                false
            }
            Relief::WaitingOut { until, generation } if now >= until => {
                self.relief = Relief::Reading { why: Why::WaitOut { generation }, attempt: Attempt::at(now) };
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

    /// What follows from the key's item, as it was read now.
    fn judge(&mut self, why: Why, policy: &ScalingPolicy, key: &mut Key, now: Duration) -> Relief {
        let stored = key.seen_item.generation;
        // Where this comes to nothing, the next look begins a new wait.
        self.watched = None;
        match why {
            Why::Decide => self.decide(policy, key, now),
            Why::TakeOver { generation } | Why::WaitOut { generation } if stored == generation => {
                self.change(&Change::CloseAgain, key, now)
            }
            // Its actor did not get as far as the page.
            Why::TakeOver { .. } => {
                self.look_at_once(now + 2 * STEP);
                Relief::Publishing { entry: Entry::of(&key.seen_item, now), attempt: Attempt::at(now + STEP) }
            }
            Why::WaitOut { .. } => Relief::Idle,
        }
    }

    /// What follows from what all have seen.
    fn decided_together(&mut self, now: Duration) -> Relief {
        if ScalingPolicy::is_calm(self.seen(now)) {
            self.be_quiet(now + EVIDENCE_LASTS, false);
            return Relief::Idle;
        }
        Relief::Reading { why: Why::Decide, attempt: Attempt::at(now + STEP) }
    }

    /// What it decides from.
    fn seen(&mut self, now: Duration) -> Seen {
        let own = self.tracker.seen(now);
        let together = self.together.filter(|together| together.attempts > own.pressure.attempts);
        Seen { pressure: together.unwrap_or(own.pressure), partitions: self.partitions, ..own }
    }

    /// Adds what it has seen to what others have, or begins anew. Returns all of it.
    fn add_evidence(&mut self, key: &mut Key, now: Duration) -> Pressure {
        let (own, evidence) = (self.tracker.take_untold(now), &mut key.evidence);
        let (generation, partitions) = (self.entry.generation, self.partitions);
        if evidence.of(generation, partitions).is_some() && now.saturating_sub(evidence.begun) <= EVIDENCE_LASTS {
            evidence.seen = evidence.seen.plus(own);
        } else if evidence.generation <= generation {
            *evidence = Evidence { generation, partitions, begun: now, seen: own };
        }
        let together = evidence.of(generation, partitions).unwrap_or(own);
        self.together = Some(together);
        together
    }

    /// Whether the table is known to be short of partitions; then it makes no decision for a while.
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
            ScalingDecision::Closing(_) => {
                Relief::WaitingOut { until: key.patience(now), generation: key.seen_item.generation }
            }
            ScalingDecision::CoolingDown { until } => {
                self.be_quiet(Duration::from_secs(until.saturating_sub(EPOCH)), false);
                Relief::Idle
            }
            ScalingDecision::ShortOfPartitions { until, write_units } => {
                let until = Duration::from_secs(until.saturating_sub(EPOCH));
                self.be_quiet(until, true);
                // One of a crowd reports it.
                if key.table.write(MetadataItem::Evidence, now) && key.short_until(self.partitions, now).is_none() {
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

    /// Changes the key's item; what it has made of it, this instance sees first.
    fn change(&mut self, change: &Change, key: &mut Key, now: Duration) -> Relief {
        let Some(entry) = key.change(change, now) else { return Relief::Idle };
        self.see(entry, key, now);
        Relief::Publishing { entry, attempt: Attempt::at(now + STEP) }
    }

    /// Reads the page then, unless it repeats a read that was throttled.
    fn look_at_once(&mut self, at: Duration) {
        if self.look.throttled == 0 {
            self.look = Attempt::at(at);
        }
    }
}

/// A whole number with this mean.
pub(super) fn whole(mean: f64, rng: &mut Xoshiro256PlusPlus) -> u64 {
    let floor = mean.floor();
    floor as u64 + u64::from(rng.random::<f64>() < mean - floor)
}
