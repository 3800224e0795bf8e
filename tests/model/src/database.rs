//! The tables: requests are applied one at a time, each at once.

use std::cmp::Ordering;
use std::sync::Arc;

use sharding::internal::ShardNumber;
use sharding::internal::protocol::copies::{Answer, Condition, Copy, Effect, Request};
use sharding::internal::protocol::version::Version;

use super::state::{Body, Content, Key, State, Step, Stored, index};
use super::{ProtocolModel, Story};

impl ProtocolModel {
    /// Applies a request in flight, and answers whoever waits for it.
    pub(crate) fn apply(&self, state: &mut State, request: usize, story: &mut Story) {
        let request = state.requests.remove(request);
        let late = if request.awaited { "" } else { ", though nobody waits for it" };
        story.tell(format_args!("{} is applied{late}", self.sender(request.from)));
        let copy = if let Body::Page { copy, .. } = request.body { Some(copy) } else { None };
        let answer = match request.body {
            Body::Item { place, key, content, request } => {
                self.apply_to_item(state, place, key, content, &request, story)
            }
            Body::Metadata { generation, new } if !self.rules.generation || state.metadata.generation == generation => {
                story.tell(format_args!("metadata: {}", super::told(&new.layout())));
                state.metadata = new;
                Answer::Applied
            }
            Body::Metadata { .. } => {
                story.tell(format_args!("refused: the generation is {}", state.metadata.generation));
                Answer::Refused(None)
            }
            Body::Page { copy, layout } => self.apply_to_page(state, copy, layout, story),
        };
        if !request.awaited {
            return;
        }
        let from = request.from;
        // Processing these later would be no different from doing the next step later: it only lengthens the waits that begin here.
        if let Some(copy) = copy {
            self.page_written(state, from, copy, story);
        } else if matches!(state.actors[from].step, Step::Changing(..)) {
            self.change_answered(state, from, &answer, story);
        } else if matches!(state.actors[from].step, Step::Draining(..)) {
            self.moved(state, from);
        } else {
            state.actor(from).inbox = Some(answer);
        }
    }

    fn apply_to_item(
        &self,
        state: &mut State,
        place: ShardNumber,
        key: Key,
        Content { value, mut base, applied }: Content,
        request: &Request,
        story: &mut Story,
    ) -> Answer {
        let row = Arc::make_mut(&mut state.table[usize::from(key)]);
        let cell = &mut row[index(place)];
        let stands = cell.as_ref().map(|stored| &stored.copy);
        if !self.holds(&request.condition, stands) {
            story.tell(format_args!("refused on shard {place}: {} stands", super::told_stored(cell.as_ref())));
            return Answer::Refused(stands.cloned());
        }
        let copy = |version: &Version, write_id: &Option<String>, is_tombstone| Copy {
            version: *version,
            is_tombstone,
            write_id: write_id.clone(),
            is_ours: true,
            applied: applied.clone().filter(|_| !is_tombstone),
        };
        *cell = match &request.effect {
            Effect::Put { version, write_id } => Some(Stored { copy: copy(version, write_id, false), value }),
            Effect::Bury { version, write_id } => {
                let write_id = if self.rules.tombstones_keep_write_id { write_id } else { &None };
                Some(Stored { copy: copy(version, write_id, true), value: None })
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
        if let (Some(value), Some(base)) = (value, base)
            && !state.replaced.iter().any(|(by, _)| *by == value)
        {
            state.replaced.push((value, base));
            state.replaced.sort_unstable();
        }
        story.tell(format_args!("shard {place} now holds {}", super::told_stored(cell.as_ref())));
        Answer::Applied
    }

    fn holds(&self, condition: &Condition, stands: Option<&Copy>) -> bool {
        if self.rules.era_first {
            return condition.holds(stands);
        }
        let condition = match condition {
            Condition::AbsentOrBelow(version) => Condition::AbsentOrBelow(without_era(*version)),
            Condition::Buries { version, write_id } => {
                Condition::Buries { version: without_era(*version), write_id: write_id.clone() }
            }
            Condition::Unchanged(version) => Condition::Unchanged(version.map(without_era)),
            Condition::Stands { from, once } => Condition::Stands { from: without_era(*from), once: *once },
        };
        let stands = stands.map(|copy| Copy { version: without_era(copy.version), ..copy.clone() });
        condition.holds(stands.as_ref())
    }

    /// Which of two copies a reader takes for the item.
    pub(crate) fn compare(&self, one: &Copy, other: &Copy) -> Ordering {
        if self.rules.era_first {
            one.version.cmp(&other.version)
        } else {
            without_era(one.version).cmp(&without_era(other.version))
        }
    }
}

/// The same clock and tie-breaker in era 0.
fn without_era(version: Version) -> Version {
    let clocks_and_ties = 10_u128.pow(27);
    let number: u128 = version.to_string().parse().unwrap_or_default();
    Version::parse(&(number % clocks_and_ties).to_string()).unwrap_or_default()
}
