//! The invariants, which hold in every state, and the properties that some state must have.

use stateright::Property;

use super::program::Op;
use super::state::{Body, Key, Page, State, Step, Then};
use super::{ProtocolModel, Scenario};

/// Reads return the last acknowledged write or a later one.
pub const I1: &str = "I1 a read returns the last acknowledged write or a later one";
/// Any two different copies of an item have different versions.
pub const I2: &str = "I2 of two copies of an item one is newer";
/// The responses to create-only writes are consistent.
pub const I3: &str = "I3 of concurrent create-only writes one is acknowledged";
/// A scan returns every item that existed throughout, and returns none twice.
pub const I4: &str = "I4 a scan returns every item that existed throughout, once and in order";
/// The write width never exceeds the read width.
pub const I5: &str = "I5 the write width stays within the read width";
/// No crash loses an acknowledged write.
pub const I6: &str = "I6 nothing acknowledged is lost";

/// Not vacuous: a width was changed.
pub const OPENED: &str = "an era was opened";
/// Not vacuous: a scaler died between close and open, and another actor opened.
pub const TAKEN_OVER: &str = "a dead actor's closing was opened by another";
/// Not vacuous: a request was applied after its sender had given up.
pub const LATE_REQUEST: &str = "a request was applied after its sender had given up";
/// Not vacuous: a drain reached its end.
pub const DRAINED: &str = "a drain was finished";
/// Not vacuous: the tombstones of a settled key were removed.
pub const PURGED: &str = "tombstones were removed";
/// Not vacuous: a writer that waited for an open found it in the metadata item, and repaired the
/// page.
pub const REPAIRED: &str = "a page that was behind its item was repaired";
/// Not vacuous: a writer met a copy of a later era than its view knows.
pub const MET_LATER: &str = "a writer met a later era, and read the metadata item";
/// Not vacuous: an entry on its way to a copy of the page is older than the entry stored there.
pub const LATE_PAGE: &str = "an entry in flight was older than the stored one";
/// Not vacuous: a page was filled and marked.
pub const FILLED: &str = "a copy of a page became complete";

/// Not vacuous: the entries of a page were moved, and it is written no more.
pub const MOVED: &str = "a page was moved, and is written no more";

/// Every invariant, and the properties that the scenario must show.
pub(crate) fn properties(scenario: &Scenario) -> Vec<Property<ProtocolModel>> {
    let mut properties = vec![
        Property::<ProtocolModel>::always(I1, |_, state| !state.broken.read),
        Property::<ProtocolModel>::always(I2, versions_are_unique),
        Property::<ProtocolModel>::always(I3, |_, state| !state.broken.create),
        Property::<ProtocolModel>::always(I4, |_, state| !state.broken.scan),
        Property::<ProtocolModel>::always(I5, |_, state| {
            state.metadata.number_of_shards <= state.metadata.read_shards
        }),
        Property::<ProtocolModel>::always(I6, nothing_is_lost),
    ];
    for shown in &scenario.shows {
        let condition: fn(&ProtocolModel, &State) -> bool = match *shown {
            OPENED => |model, state| state.metadata.era > model.scenario().metadata.era,
            TAKEN_OVER => taken_over,
            LATE_REQUEST => |_, state| {
                state.requests.iter().any(|request| !request.awaited && is_item(&request.body))
            },
            DRAINED => |model, state| state.metadata.settled && !model.scenario().metadata.settled,
            PURGED => |_, state| state.metadata.settled && !state.metadata.unpurged,
            REPAIRED => |_, state| publishes(state, |then| matches!(then, Then::Write(_, None))),
            MET_LATER => {
                |_, state| publishes(state, |then| matches!(then, Then::Write(_, Some(_))))
            }
            LATE_PAGE => late_page,
            FILLED => |model, state| {
                let complete =
                    |pages: &[Page]| pages.iter().filter(|page| page.is_complete).count();
                complete(&state.pages) > complete(&model.scenario().pages)
            },
            MOVED => |_, state| state.first_written > 0,
            other => unreachable!("no property is called {other}"),
        };
        properties.push(Property::sometimes(shown, condition));
    }
    properties
}

const fn is_item(body: &Body) -> bool {
    matches!(body, Body::Item { .. })
}

/// Copies with the same version are equal.
fn versions_are_unique(_: &ProtocolModel, state: &State) -> bool {
    state.table.iter().all(|row| {
        let copies = || row.iter().flatten();
        copies().all(|one| {
            copies().all(|other| one.copy.version != other.copy.version || one.value == other.value)
        })
    })
}

/// Whether a get and a query at this instant return a permitted value, and no writer has taken the
/// metadata for lost.
fn nothing_is_lost(model: &ProtocolModel, state: &State) -> bool {
    let layout = state.metadata.layout();
    let may_find = |op: Op, key: Key| {
        let newest = model.read_at_once(state, &layout, op, key);
        let value = newest.as_ref().and_then(|(stored, _)| stored.value);
        state.monitors[usize::from(key)].allows(value)
            || model.is_late(state, &layout, key, newest.as_ref())
    };
    let right = |key: Key| may_find(Op::Get(key), key) && may_find(Op::Query, key);
    let already_broken = state.broken.read || state.broken.create || state.broken.scan;
    !state.broken.lost && (already_broken || (0..model.scenario().sort_keys()).all(right))
}

fn taken_over(model: &ProtocolModel, state: &State) -> bool {
    let scaled = |(actor, cast): (&std::sync::Arc<super::state::Actor>, &super::program::Cast)| {
        actor.step == Step::Dead && matches!(cast.program[usize::from(actor.op)], Op::Scale(_))
    };
    let died = state.actors.iter().zip(&model.scenario().cast).any(scaled);
    died && state.metadata.era > model.scenario().metadata.era
}

/// Whether an actor publishes a layout, with a next step that satisfies `goes_on`.
fn publishes(state: &State, goes_on: fn(&Then) -> bool) -> bool {
    state.actors.iter().any(|actor| {
        if let Step::Publishing(_, then) = &actor.step { goes_on(then) } else { false }
    })
}

fn late_page(_: &ProtocolModel, state: &State) -> bool {
    let is_late = |body: &Body| {
        let Body::Page { copy, layout } = body else { return false };
        let existing = state.pages.get(*copy as usize).and_then(|page| page.entry.as_ref());
        existing.is_some_and(|existing| existing.generation > layout.generation)
    };
    state.requests.iter().any(|request| is_late(&request.body))
}
