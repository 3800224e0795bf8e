//! The tables: they apply one request at a time, in a single step.

use std::cmp::Ordering;
use std::sync::Arc;

use sharding::ShardNumber;
use sharding::internal::protocol::copies::{Answer, Condition, Copy, Effect};
use sharding::internal::protocol::version::Version;

use super::expressing::Asked;
use super::state::{Body, Content, Key, Step, Stored, index};
use super::{ProtocolModel, Turn};

impl Turn<'_> {
    /// Applies a request in flight. If its sender still waits, it gets the response.
    pub(crate) fn apply(&mut self, request: usize) {
        let request = Arc::unwrap_or_clone(self.state.requests.remove(request));
        let copy = if let Body::Page { copy, .. } = request.body { Some(copy) } else { None };
        let answer = match request.body {
            Body::Item { place, key, content, request } => {
                self.apply_to_item(place, key, content, &request)
            }
            Body::Metadata { generation, new }
                if self.weakened.generation || self.state.metadata.generation == generation =>
            {
                self.state.metadata = new;
                Answer::Applied
            }
            Body::Metadata { .. } => Answer::Refused(None),
            Body::Page { copy, layout } => self.apply_to_page(copy, layout),
        };
        if !request.awaited {
            return;
        }
        // The actor processes these responses at once. A later time would be the same as a later
        // next step: it would only lengthen the waits that begin here.
        if let Some(copy) = copy {
            self.page_written(copy);
        } else if matches!(self.me().step, Step::Changing(..)) {
            self.change_answered(&answer);
        } else if matches!(self.me().step, Step::Draining(..)) {
            self.moved();
        } else {
            self.me_mut().inbox = Some(answer);
        }
    }

    fn apply_to_item(
        &mut self,
        place: ShardNumber,
        key: Key,
        Content { value, mut base, applied }: Content,
        request: &Asked,
    ) -> Answer {
        let request = match request {
            Asked::Plain(request) => request,
            Asked::Expressed { request, expects, pulled } => {
                let asked = (request, *expects, pulled.as_deref());
                return self.apply_expressed((place, key), value, asked);
            }
        };
        let row = Arc::make_mut(&mut self.state.table[usize::from(key)]);
        let cell = &mut row[index(place)];
        let existing = cell.as_ref().map(|stored| &stored.copy);
        if !self.model.holds(&request.condition, existing) || !request.marks.allow(existing) {
            return Answer::Refused(existing.cloned());
        }
        let late_until = request.marks.late_until;
        *cell = match &request.effect {
            Effect::Put { version, write_id } => {
                let mut stored = Stored::new(*version, value, (write_id.clone(), late_until));
                stored.copy.applied = applied;
                Some(stored)
            }
            Effect::Bury { version, write_id, .. } => {
                let write_id = write_id.clone().filter(|_| !self.weakened.tombstones_keep_write_id);
                Some(Stored::new(*version, None, (write_id, late_until)))
            }
            Effect::Remove => None,
            Effect::Add { once } => cell.clone().map(|Stored { mut copy, value: before }| {
                base = before;
                copy.version = copy.version.stepped();
                if let (Some(once), Some(applied)) = (once, &mut copy.applied) {
                    applied.young.insert(once.id);
                }
                Stored { copy, value }
            }),
        };
        self.state.note_replaced(value, base);
        Answer::Applied
    }
}

impl ProtocolModel {
    fn holds(&self, condition: &Condition, existing: Option<&Copy>) -> bool {
        if !self.weakened.era_first {
            return holds(condition, existing);
        }
        let mut condition = condition.clone();
        match &mut condition {
            Condition::AbsentOrBelow(version)
            | Condition::Buries { version, .. }
            | Condition::Unchanged(Some(version))
            | Condition::AtLeast { from: version, .. } => *version = without_era(*version),
            Condition::Unchanged(None) => {}
        }
        let existing =
            existing.map(|copy| Copy { version: without_era(copy.version), ..copy.clone() });
        holds(&condition, existing.as_ref())
    }

    /// Compares two copies as a reader does: the greater one is the item.
    pub(crate) fn compare(&self, one: &Copy, other: &Copy) -> Ordering {
        if self.weakened.era_first {
            without_era(one.version).cmp(&without_era(other.version))
        } else {
            one.version.cmp(&other.version)
        }
    }
}

/// Whether a condition holds for this copy: what its expression says.
fn holds(condition: &Condition, stored: Option<&Copy>) -> bool {
    match condition {
        Condition::AbsentOrBelow(version) => stored.is_none_or(|copy| copy.version < *version),
        Condition::Buries { version, write_id } => {
            stored.is_none_or(|copy| copy.version < *version && copy.write_id == *write_id)
        }
        Condition::Unchanged(version) => stored.map(|copy| copy.version) == *version,
        Condition::AtLeast { from, once } => stored.is_some_and(|copy| {
            let applied = copy.applied.as_ref();
            let takes = |once| applied.is_some_and(|applied| applied.takes(once));
            !copy.is_tombstone && copy.version >= *from && once.is_none_or(takes)
        }),
    }
}

/// The version with the same clock and tie-breaker, in era 0.
fn without_era(version: Version) -> Version {
    let clocks_and_ties = 10_u128.pow(27);
    let number: u128 = version.to_string().parse().unwrap_or_default();
    Version::parse(&(number % clocks_and_ties).to_string()).unwrap_or_default()
}
