//! Readers: each place is read at its own moment, in any order, and [`read_end`] decides how the
//! read ends.

use std::cmp::Ordering;

use sharding::ShardNumber;
use sharding::internal::protocol::layout::Layout;
use sharding::internal::protocol::view::{ReadEnd, knows_era, read_end};

use super::monitor::{Kind, Outcome};
use super::program::Op;
use super::state::{Key, Reading, State, Step, Stored};
use super::{LEASE, LONGEST_READ, ProtocolModel, Turn};

impl Turn<'_> {
    /// Begins a read, or the next page of a scan.
    pub(crate) fn begin_read(&mut self, from: Key) -> Option<()> {
        let now = self.now();
        if !self.view().is_some_and(|view| view.is_valid(now, LEASE)) {
            self.look(None);
        }
        let (op, view) = (self.op()?, self.view()?);
        for key in self.model.keys_of(op, from) {
            self.invoke(key, Kind::Read);
        }
        let todo = self.model.shards_to_read(op, &view.layout);
        let newest = vec![None; usize::from(self.scenario.sort_keys())];
        self.go_to(Step::Reading(Reading { began: self.state.now, from, todo, newest }))
    }

    pub(crate) fn read_shard(&mut self, place: ShardNumber) -> Option<()> {
        let (op, view) = (self.op()?, self.view()?);
        let Step::Reading(mut reading) = self.me().step.clone() else { return None };
        reading.todo.retain(|other| *other != place);
        for key in self.model.keys_of(op, reading.from) {
            let is_shown = self.model.is_shown(op, &view.layout, key, place);
            let found = self.state.copy(key, place).filter(|_| is_shown);
            self.model.keep_newest(&mut reading.newest[usize::from(key)], found, place);
        }
        self.go_to(Step::Reading(reading))
    }

    /// Ends a read after its last response, or begins it again.
    pub(crate) fn end_read(&mut self, reading: Reading) -> Option<()> {
        let (op, view) = (self.op()?, self.view()?);
        if !reading.todo.is_empty() {
            return None;
        }
        let now = self.now();
        let began = (self.at(reading.began), LONGEST_READ);
        let end = |newer| read_end(began, (&view, LEASE), newer, now);
        let mut ending = if self.weakened.read_end { ReadEnd::Correct } else { end(None) };
        let eras = reading.newest.iter().flatten().map(|(stored, _)| stored.copy.version.era());
        let era = eras.max().unwrap_or(0);
        // A read that took too long always fails.
        if ending != ReadEnd::TooLong && !knows_era(&view, era) {
            self.read_item(Some(now));
            self.state.broken.lost |= self.state.metadata.era < era;
            ending = ReadEnd::Again;
        } else if ending == ReadEnd::Look {
            self.look(Some(now));
            ending = end(self.me().view.as_deref());
        }
        match ending {
            ReadEnd::Correct => self.return_read(op, &reading, &view.layout),
            ReadEnd::Look => None,
            ReadEnd::Again => {
                let todo = self.model.shards_to_read(op, &self.view()?.layout);
                let newest = vec![None; reading.newest.len()];
                self.go_to(Step::Reading(Reading { todo, newest, ..reading }))
            }
            ReadEnd::TooLong => {
                for key in self.model.keys_of(op, reading.from) {
                    self.cancel(key);
                }
                self.finish()
            }
        }
    }

    /// Returns the result to the caller: the first item of a scan, and everything otherwise.
    fn return_read(&mut self, op: Op, reading: &Reading, layout: &Layout) -> Option<()> {
        let mut page_ends_with = None;
        for key in self.model.keys_of(op, reading.from) {
            let newest = reading.newest[usize::from(key)].as_ref();
            let value = newest.and_then(|(stored, _)| stored.value);
            if page_ends_with.is_some() || self.model.is_late(&self.state, layout, key, newest) {
                self.cancel(key);
                continue;
            }
            self.respond(key, Outcome::Found(value));
            page_ends_with = value.filter(|_| op == Op::Scan).map(|_| key);
        }
        match page_ends_with {
            Some(key) if key + 1 < self.scenario.sort_keys() => self.begin_read(key + 1),
            Some(_) | None => self.finish(),
        }
    }
}

impl ProtocolModel {
    fn keys_of(&self, op: Op, from: Key) -> std::ops::Range<Key> {
        if let Op::Get(key) = op { key..key + 1 } else { from..self.scenario.sort_keys() }
    }

    fn shards_to_read(&self, op: Op, layout: &Layout) -> Vec<ShardNumber> {
        if let Op::Get(key) = op {
            return self.places(layout, key).all().into_iter().collect();
        }
        layout.read_shards.shards().collect()
    }

    /// Whether a read includes a copy at this place.
    fn is_shown(&self, op: Op, layout: &Layout, key: Key, place: ShardNumber) -> bool {
        let everything = matches!(op, Op::Get(_)) || self.weakened.query_ignores_misplaced;
        everything || self.places(layout, key).contains(place)
    }

    fn keep_newest(
        &self,
        newest: &mut Option<(Stored, ShardNumber)>,
        found: Option<&Stored>,
        place: ShardNumber,
    ) {
        let Some(found) = found else { return };
        let is_newer = |(known, _): &(Stored, ShardNumber)| {
            self.compare(&found.copy, &known.copy) == Ordering::Greater
        };
        if newest.as_ref().is_none_or(is_newer) {
            *newest = Some((found.clone(), place));
        }
    }

    /// The result of an instantaneous read under the current layout.
    pub(crate) fn read_at_once(
        &self,
        state: &State,
        layout: &Layout,
        op: Op,
        key: Key,
    ) -> Option<(Stored, ShardNumber)> {
        let mut newest = None;
        for place in self.shards_to_read(op, layout) {
            let found = state.copy(key, place).filter(|_| self.is_shown(op, layout, key, place));
            self.keep_newest(&mut newest, found, place);
        }
        newest
    }

    /// Whether the copy is a documented exception: a write with an unknown outcome that was applied
    /// late, at an old place.
    pub(crate) fn is_late(
        &self,
        state: &State,
        layout: &Layout,
        key: Key,
        newest: Option<&(Stored, ShardNumber)>,
    ) -> bool {
        let Some((stored, place)) = newest else { return false };
        let is_abandoned = |value| {
            let Some(&(actor, operation)) = self.writers.get(&value) else { return false };
            state.monitors[usize::from(key)].is_pending(operation)
                && actor.is_none_or(|(actor, op)| state.actors[actor].op > op)
        };
        // The reader's view may predate the change that made its home an old place.
        let is_old = |layout: &Layout| self.places(layout, key).home != *place;
        let is_old = is_old(layout) || is_old(&state.metadata.layout());
        self.scenario.late_writes_may_lose && is_old && stored.value.is_some_and(is_abandoned)
    }
}
