//! The two tables: requests are applied whole, or refused whole.

use std::fmt;

use super::state::{
    Answer, Body, Change, Condition, DrainGoal, Effect, Expected, Few, Metadata, Part, State, Stored, widths,
};
use super::{ProtocolModel, Story};

impl Condition {
    fn holds(self, standing: Option<Stored>) -> bool {
        match self {
            Self::Nothing => true,
            Self::Absent => standing.is_none(),
            Self::AbsentOrLower(version) => standing.is_none_or(|stored| stored.version < version),
            Self::Stands => standing.is_some(),
            Self::StandsLower(version) => standing.is_some_and(|stored| stored.version < version),
            Self::StandsAtLeast(version) => standing.is_some_and(|stored| stored.version >= version),
            Self::Is(expected) => standing == expected,
        }
    }
}

impl ProtocolModel {
    /// A request in flight is applied. `None` where nobody waits for it and it would change nothing: that is the same as never.
    pub(crate) fn apply(&self, state: &mut State, index: usize, story: &mut Story) -> Option<()> {
        let request = state.requests.remove(index);
        let (before, metadata_before) = (state.table.clone(), state.metadata);
        let answer = match &request.body {
            Body::Items { sort_key, parts } => self.transact(state, *sort_key, parts),
            Body::Metadata { change, expected } => self.update_metadata(state, *change, *expected),
        };
        let applied = matches!(answer, Answer::Applied | Answer::Updated(_));
        let late = if request.awaited { "" } else { " late, and nobody waits for it" };
        let verb = if applied { "is applied" } else { "is refused" };
        story.tell(format_args!("{}'s {} {verb}{late}", self.name(request.from), request.body));
        if request.awaited {
            state.actors[request.from].inbox = Some(answer);
        } else if !applied || (state.table == before && state.metadata == metadata_before) {
            return None;
        }
        Some(())
    }

    /// One conditional operation, or a transaction of several.
    fn transact(&self, state: &mut State, sort_key: u8, parts: &[Part]) -> Answer {
        if parts.iter().all(|part| part.condition.holds(state.copy(sort_key, part.shard))) {
            let row = &mut state.table[usize::from(sort_key)];
            for part in parts {
                let cell = &mut row[usize::from(part.shard)];
                match part.effect {
                    Effect::Put(stored) => *cell = Some(stored),
                    Effect::Delete => *cell = None,
                    Effect::Check => {}
                }
            }
            return Answer::Applied;
        }
        let standing: Few =
            parts.iter().map(|part| part.shard).filter(|shard| state.copy(sort_key, *shard).is_some()).collect();
        let copies: Vec<Stored> = standing.iter().filter_map(|shard| state.copy(sort_key, shard)).collect();
        let value = parts.iter().find_map(|part| match part.effect {
            Effect::Put(stored) => Some(stored.value),
            Effect::Delete | Effect::Check => None,
        });
        let highest = copies.iter().map(|stored| stored.version).max();
        let is_own = |stored: &&Stored| value == Some(stored.value);
        let is_highest = |stored: &Stored| Some(stored.version) == highest || !self.rules.own_is_highest;
        Answer::Refused {
            standing,
            highest,
            own: copies.iter().filter(is_own).any(is_highest),
            own_below: copies.iter().filter(is_own).any(|stored| !is_highest(stored)),
        }
    }

    /// What an update of the metadata that was seen so is conditional on.
    pub(crate) fn lock(&self, seen: Option<Metadata>) -> Expected {
        match seen {
            None => Expected::Absent,
            Some(seen) if self.rules.generation => Expected::Generation(seen.generation),
            Some(seen) => {
                Expected::Widths { write: seen.write_width, read: seen.read_width, last_updated: seen.last_updated }
            }
        }
    }

    fn update_metadata(&self, state: &mut State, change: Change, expected: Expected) -> Answer {
        if expected != Expected::Anything && expected != self.lock(state.metadata) {
            return Answer::Outrun;
        }
        let before = widths(state.metadata);
        let after = self.changed(state, before, change);
        state.metadata = Some(after);
        if self.scenario.cooldown > 0 && after.write_width != before.write_width {
            let early = |last: u8| state.now < last.saturating_add(self.scenario.cooldown);
            if state.last_change.is_some_and(early) {
                state.broken.cooldown = true;
            }
            state.last_change = Some(state.now);
        }
        Answer::Updated(after)
    }

    /// Sets the attributes that the step sets, and leaves the others as they are.
    fn changed(&self, state: &State, before: Metadata, change: Change) -> Metadata {
        let now = state.now / self.scenario.second;
        let next = Metadata { generation: before.generation + 1, ..before };
        match change {
            Change::Register => {
                Metadata { history: Few::up_to(1), last_updated: now, generation: 1, ..Metadata::unregistered() }
            }
            Change::Expand { to } if state.metadata.is_none() => {
                let history = if self.rules.width_one_is_candidate { Few::up_to(1) } else { Few::default() };
                Metadata { read_width: to, last_updated: now, history, ..next }
            }
            Change::Expand { to } => Metadata { read_width: to, ..next },
            Change::Activate { to } => {
                Metadata { write_width: to, read_width: to, last_updated: now, history: next.history.with(to), ..next }
            }
            Change::AnnounceWidth { to } => Metadata { history: next.history.with(to), ..next },
            Change::MarkDraining { goal, to } => {
                let draining = self.rules.drain_marker.then_some(goal);
                match goal {
                    DrainGoal::Shrink => {
                        let kept = if self.rules.history_kept { Few::up_to(Few::LAST) } else { Few::up_to(to) };
                        let history = next.history.common(kept);
                        Metadata { write_width: to, draining, last_updated: now, history, ..next }
                    }
                    DrainGoal::Settle if self.rules.history_kept => Metadata { draining, ..next },
                    DrainGoal::Settle => Metadata { draining, ..next.settled() },
                    DrainGoal::Migrate => Metadata { draining, ..next },
                }
            }
            Change::LowerReadWidth { to } => {
                Metadata { read_width: to, draining: None, history: next.history.common(Few::up_to(to)), ..next }
            }
            Change::StopDrain if before.write_width == before.read_width => Metadata { draining: None, ..next },
            Change::StopDrain => {
                let (to, history) = (before.read_width, next.history.with(before.read_width));
                Metadata { write_width: to, draining: None, last_updated: now, history, ..next }
            }
            Change::FinishMigration => Metadata { draining: None, ..next },
            Change::FinishSettling => Metadata { draining: None, ..next.settled() },
            Change::ShrinkAtOnce { to } => Metadata { write_width: to, read_width: to, last_updated: now, ..next },
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.effect {
            Effect::Put(stored) => write!(f, "put {} {} on shard {}", stored.value, stored.version, self.shard),
            Effect::Delete => write!(f, "delete on shard {}", self.shard),
            Effect::Check => write!(f, "check of shard {}", self.shard),
        }
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Items { sort_key, parts } => {
                for (index, part) in parts.iter().enumerate() {
                    let joint = if index == 0 { "" } else { " with " };
                    write!(f, "{joint}{part}")?;
                }
                write!(f, " of sort key {}", if *sort_key == 0 { "a" } else { "b" })
            }
            Self::Metadata { change, .. } => match change {
                Change::Register => f.write_str("registration"),
                Change::Expand { to } => write!(f, "expand to {to}"),
                Change::Activate { to } => write!(f, "activate {to}"),
                Change::AnnounceWidth { to } => write!(f, "announce_width {to}"),
                Change::StopDrain => f.write_str("stop_drain"),
                Change::MarkDraining { goal: DrainGoal::Shrink, to } => write!(f, "mark_draining to {to}"),
                Change::MarkDraining { goal: DrainGoal::Settle, .. } => f.write_str("mark_draining to settle"),
                Change::LowerReadWidth { to } => write!(f, "lower_read_width to {to}"),
                Change::MarkDraining { goal: DrainGoal::Migrate, .. } => f.write_str("mark_draining to migrate"),
                Change::FinishMigration => f.write_str("finish of the migration"),
                Change::FinishSettling => f.write_str("finish of the settling"),
                Change::ShrinkAtOnce { to } => write!(f, "shrink at once to {to}"),
            },
        }
    }
}
