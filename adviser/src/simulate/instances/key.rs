//! The state of the key that all instances share.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use sharding::internal::protocol::metadata::Change;
use sharding::internal::{DRIFT_MARGIN, MAX_LEASE, OBSERVER_PAUSE, ShardCount, ShardMetadata};

use super::evidence::Evidence;
use crate::simulate::metadata::{MetadataItem, MetadataTable};
use crate::simulate::scaler::Shortage;
use crate::simulate::scenario::{Contender, Scenario};

/// The wall-clock second at which a run starts. Only differences matter.
pub(super) const EPOCH: u64 = 1_000_000;
/// The time from a close, once every copy of the page has it, to its open.
pub(super) const OPENING_WAIT: Duration = MAX_LEASE.saturating_add(DRIFT_MARGIN);
/// The time of an actor's requests between a close and its open; `opens_at` includes it.
const OPENING_TIME: Duration = Duration::from_millis(20);

/// The key's entry in its page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Entry {
    pub(super) generation: u64,
    pub(super) width: ShardCount,
    pub(super) is_closing: bool,
    /// The earliest time of the open.
    pub(super) opens_at: Duration,
}

impl Entry {
    pub(super) fn of(metadata: &ShardMetadata, opens_at: Duration) -> Self {
        Self {
            generation: metadata.generation,
            width: metadata.number_of_shards,
            is_closing: metadata.closing().is_some(),
            opens_at,
        }
    }
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) item: ShardMetadata,
    pub(super) page: Entry,
    /// The item and the page at the start of the step, because requests of one step run
    /// concurrently.
    pub(super) seen_item: ShardMetadata,
    pub(super) seen_page: Entry,
    pub(super) table: MetadataTable,
    pub(super) copies: u32,
    /// Whether instances also read.
    pub(super) is_read: bool,
    /// The width that the first instance sets when it starts.
    pub(super) once: Option<ShardCount>,
    pub(super) updates_tried: u64,
    pub(super) updates_made: u64,
    pub(super) evidence: Evidence,
    /// A known shortage of partitions: the generation of the key, the number of partitions, and the
    /// end of the knowledge.
    short: Option<(u64, Option<u32>, Duration)>,
    /// The shortage that an instance has reported in this step.
    pub(super) shortage: Option<Shortage>,
    /// The time at which an instance first found that the key needs more than the maximum of
    /// shards.
    pub(super) at_maximum_after: Option<Duration>,
    /// The number of partitions of the main table, from the directory.
    pub(super) partitions: Option<u32>,
    pub(super) rng: Xoshiro256PlusPlus,
}

impl Key {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let item = ShardMetadata::unregistered();
        let page = Entry::of(&item, Duration::ZERO);
        Self {
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
        }
    }

    /// Starts a step. Its requests see the item and the page as they are now.
    pub(super) fn start_step(&mut self) {
        self.seen_item = self.item.clone();
        self.seen_page = self.page;
    }

    /// Writes a change of the item conditionally; `None` if another instance was first, or the
    /// write was throttled.
    pub(super) fn change(&mut self, change: &Change, now: Duration) -> Option<Entry> {
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
    pub(super) fn publish(&mut self, entry: Entry, now: Duration) -> bool {
        let is_served = self.table.read(MetadataItem::Table, now)
            && (0..self.copies).all(|copy| self.table.write(MetadataItem::Page(copy), now));
        if is_served && entry.generation > self.page.generation {
            self.page = entry;
        }
        is_served
    }

    /// Returns the end of a known shortage, for an instance that knows this number of partitions.
    pub(super) fn short_until(&self, partitions: Option<u32>, now: Duration) -> Option<Duration> {
        let (generation, on, until) = self.short?;
        (generation == self.item.generation && on == partitions && now < until).then_some(until)
    }

    /// Reports a shortage on this number of partitions, which is known until `until`. Only one
    /// instance of a crowd reports it.
    pub(super) fn report_shortage(
        &mut self,
        shortage: Shortage,
        partitions: Option<u32>,
        until: Duration,
        now: Duration,
    ) {
        if self.table.write(MetadataItem::Evidence, now)
            && self.short_until(partitions, now).is_none()
        {
            self.short = Some((self.item.generation, partitions, until));
            self.shortage = Some(shortage);
        }
    }

    pub(super) fn jitter(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.rng.random())
    }

    /// Returns the time at which an instance that sees a closing now takes it over.
    pub(super) fn patience(&mut self, now: Duration) -> Duration {
        now + OPENING_WAIT + OBSERVER_PAUSE + self.jitter(OBSERVER_PAUSE)
    }
}
