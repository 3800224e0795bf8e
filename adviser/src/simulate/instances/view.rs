//! An instance's view of the key, which it reads from a copy of the key's page.
//!
//! It follows `shared/src/sharded_table/views.rs`.

use std::time::Duration;

use rand::RngExt;
use sharding::internal::MAX_LEASE;

use super::attempt::Attempt;
use super::key::{Entry, Key, OPENING_WAIT};
use crate::plan::renewed_after;
use crate::simulate::metadata::MetadataItem;
use crate::simulate::step::STEP;

/// The pause between two reads of an instance that waits for an open, and the longest random pause
/// on top.
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct View {
    pub(super) entry: Entry,
    /// Whether the instance has read the table item, which has the number of copies.
    knows_table: bool,
    /// The copy that the instance reads.
    copy: u32,
    /// The time at which the instance requested its view; `None` before the first request.
    asked_at: Option<Duration>,
    /// The next read of the table item or the page.
    look: Attempt,
    /// The generation of the closing that the instance waits for, and the time at which it takes
    /// the closing over.
    watched: Option<(u64, Duration)>,
}

impl View {
    /// Creates the view of an instance that first reads at `first_look`. A warm instance already
    /// has a view.
    pub(super) fn new(is_warm: bool, first_look: Duration, key: &mut Key) -> Self {
        Self {
            entry: key.page,
            knows_table: is_warm,
            copy: key.rng.random_range(0..key.copies.max(1)),
            asked_at: is_warm.then_some(Duration::ZERO),
            look: Attempt::at(first_look),
            watched: None,
        }
    }

    /// Whether the view is within its lease.
    pub(super) fn is_current(&self, now: Duration) -> bool {
        self.asked_at.is_some_and(|asked_at| now.saturating_sub(asked_at) < MAX_LEASE)
    }

    /// Whether the view was requested at this time or later.
    pub(super) fn is_of(&self, since: Duration) -> bool {
        self.asked_at.is_some_and(|asked_at| asked_at >= since)
    }

    /// Returns the generation of a closing that the view has shown for longer than a change takes.
    pub(super) fn overdue(&self, now: Duration) -> Option<u64> {
        self.watched.filter(|(_, ends)| now >= *ends).map(|(generation, _)| generation)
    }

    /// Forgets the closing that the instance waits for. The next read of the page starts a new
    /// wait.
    pub(super) const fn stop_watching(&mut self) {
        self.watched = None;
    }

    /// Schedules a read of the page at this time, unless a throttled read is being retried.
    pub(super) const fn look_at_once(&mut self, at: Duration) {
        if !self.look.is_repeated() {
            self.look = Attempt::at(at);
        }
    }

    /// Reads the page, or the table item before its first page, if the read is due. Returns whether
    /// it has read the page.
    pub(super) fn look_if_due(&mut self, key: &mut Key, now: Duration) -> bool {
        if now < self.look.at {
            return false;
        }
        // If one copy does not respond, the instance tries another.
        let copy = if self.look.is_repeated() {
            key.rng.random_range(0..key.copies.max(1))
        } else {
            self.copy
        };
        let item = if self.knows_table { MetadataItem::Page(copy) } else { MetadataItem::Table };
        if !key.table.read(item, now) {
            self.look = self.look.repeated(now, &mut key.rng);
            return false;
        }
        if !self.knows_table {
            (self.knows_table, self.look) = (true, Attempt::at(now + STEP));
            return false;
        }
        true
    }

    /// Updates the view from a page or from the instance's own change. An entry of a higher
    /// generation stays. Returns whether the width has changed.
    pub(super) fn see(&mut self, entry: Entry, key: &mut Key, now: Duration) -> bool {
        let width = self.entry.width;
        if entry.generation >= self.entry.generation {
            self.entry = entry;
        }
        self.asked_at = Some(now);
        self.look = Attempt::at(self.next_look(key, now));
        self.entry.width != width
    }

    /// Returns the time of the next read, and watches a closing.
    fn next_look(&mut self, key: &mut Key, now: Duration) -> Duration {
        let renewed = now + renewed_after();
        if !self.entry.is_closing {
            self.watched = None;
            return renewed;
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
        if key.is_read { next.min(renewed) } else { next }
    }
}
