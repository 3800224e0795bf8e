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

/// A property that some state of a scenario must have, so that it is not vacuous.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown(&'static str, fn(&ProtocolModel, &State) -> bool);

pub(crate) const OPENED: Shown = Shown("an era was opened", is_opened);
pub(crate) const TAKEN_OVER: Shown =
    Shown("a dead actor's closing was opened by another", |model, state| {
        state.actors.iter().any(|actor| actor.step == Step::Dead) && is_opened(model, state)
    });
pub(crate) const LATE_REQUEST: Shown =
    Shown("a request was applied after its sender had given up", |_, state| {
        let mut requests = state.requests.iter();
        requests.any(|request| !request.awaited && matches!(request.body, Body::Item { .. }))
    });
pub(crate) const DRAINED: Shown = Shown("a drain was finished", |model, state| {
    state.metadata.settled && !model.scenario().metadata.settled
});
pub(crate) const PURGED: Shown =
    Shown("tombstones were removed", |_, state| state.metadata.settled && !state.metadata.unpurged);
/// A writer that waited for an open found it in the metadata item.
pub(crate) const REPAIRED: Shown =
    Shown("a page that was behind its item was repaired", |_, state| {
        publishes(state, |then| matches!(then, Then::Write(_, None)))
    });
/// A writer met a copy of a later era than its view knows.
pub(crate) const MET_LATER: Shown =
    Shown("a writer met a later era, and read the metadata item", |_, state| {
        publishes(state, |then| matches!(then, Then::Write(_, Some(_))))
    });
pub(crate) const LATE_PAGE: Shown =
    Shown("an entry in flight was older than the stored one", |_, state| {
        state.requests.iter().any(|request| {
            let Body::Page { copy, layout } = &request.body else { return false };
            let existing = state.pages.get(*copy as usize).and_then(|page| page.entry.as_ref());
            existing.is_some_and(|existing| existing.generation > layout.generation)
        })
    });
/// A page was filled and marked.
pub(crate) const FILLED: Shown = Shown("a copy of a page became complete", |model, state| {
    let complete = |pages: &[Page]| pages.iter().filter(|page| page.is_complete).count();
    complete(&state.pages) > complete(&model.scenario().pages)
});
pub(crate) const MOVED: Shown =
    Shown("a page was moved, and is written no more", |_, state| state.first_written > 0);

/// Every invariant, and the properties that the scenario must show.
pub(crate) fn properties(scenario: &Scenario) -> Vec<Property<ProtocolModel>> {
    let invariants = [
        Property::<ProtocolModel>::always(I1, |_, state| !state.broken.read),
        Property::<ProtocolModel>::always(I2, versions_are_unique),
        Property::<ProtocolModel>::always(I3, |_, state| !state.broken.create),
        Property::<ProtocolModel>::always(I4, |_, state| !state.broken.scan),
        Property::<ProtocolModel>::always(I5, |_, state| {
            state.metadata.number_of_shards <= state.metadata.read_shards
        }),
        Property::<ProtocolModel>::always(I6, nothing_is_lost),
    ];
    let shown = scenario.shows.iter().map(|Shown(name, holds)| Property::sometimes(name, *holds));
    invariants.into_iter().chain(shown).collect()
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
    !state.broken.lost && (0..model.scenario().sort_keys()).all(right)
}

fn is_opened(model: &ProtocolModel, state: &State) -> bool {
    state.metadata.era > model.scenario().metadata.era
}

/// Whether an actor publishes a layout, with a next step that satisfies `goes_on`.
fn publishes(state: &State, goes_on: fn(&Then) -> bool) -> bool {
    state.actors.iter().any(|actor| {
        if let Step::Publishing(_, then) = &actor.step { goes_on(then) } else { false }
    })
}
