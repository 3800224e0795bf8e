//! What must hold in every state, and what must be seen in some.

use stateright::Property;

use super::program::Op;
use super::state::{Body, Key, Page, State, Step, Then};
use super::{ProtocolModel, Scenario};

/// Reads: an acknowledged write or a later one is returned.
pub const I1: &str = "I1 a read returns the last acknowledged write or a later one";
/// No two copies stand that a reader could not tell apart.
pub const I2: &str = "I2 of two copies of an item one is newer";
/// Create-only answers can all be true.
pub const I3: &str = "I3 of concurrent create-only writes one is acknowledged";
/// A page of a scan misses nothing that stood, and returns nothing twice.
pub const I4: &str = "I4 a scan returns every item that stood throughout, once and in order";
/// The widths.
pub const I5: &str = "I5 the write width stays within the read width";
/// Whatever stops, nothing is lost.
pub const I6: &str = "I6 nothing acknowledged is lost";

/// Not vacuous: a width was changed.
pub const OPENED: &str = "an era was opened";
/// Not vacuous: a scaler died between close and open, and another actor has opened.
pub const TAKEN_OVER: &str = "a dead actor's closing was opened by another";
/// Not vacuous: a request was applied when nobody waited for it any more.
pub const LATE_REQUEST: &str = "a request was applied after its sender had given up";
/// Not vacuous: a drain reached its end.
pub const DRAINED: &str = "a drain was finished";
/// Not vacuous: a writer that waited for an open found it in the key's item, and wrote it to the page.
pub const REPAIRED: &str = "a page that was behind its item was repaired";
/// Not vacuous: a writer met a copy of a later era than its view knows.
pub const MET_LATER: &str = "a writer met a later era, and asked the key's item";
/// Not vacuous: what is on its way to a copy of the page is older than what stands there.
pub const LATE_PAGE: &str = "an entry was on its way below the one that stands";
/// Not vacuous: a page was filled and marked.
pub const FILLED: &str = "a copy of a page became complete";

/// Every invariant, and what the scenario must show.
pub(crate) fn properties(scenario: &Scenario) -> Vec<Property<ProtocolModel>> {
    let mut properties = vec![
        Property::<ProtocolModel>::always(I1, |_, state| !state.broken.read),
        Property::<ProtocolModel>::always(I2, copies_are_told_apart),
        Property::<ProtocolModel>::always(I3, |_, state| !state.broken.create),
        Property::<ProtocolModel>::always(I4, |_, state| !state.broken.scan),
        Property::<ProtocolModel>::always(I5, |_, state| state.metadata.number_of_shards <= state.metadata.read_shards),
        Property::<ProtocolModel>::always(I6, nothing_is_lost),
    ];
    for shown in &scenario.shows {
        let condition: fn(&ProtocolModel, &State) -> bool = match *shown {
            OPENED => |model, state| state.metadata.era > model.scenario().metadata.era,
            TAKEN_OVER => taken_over,
            LATE_REQUEST => |_, state| state.requests.iter().any(|request| !request.awaited && is_item(&request.body)),
            DRAINED => |model, state| state.metadata.settled && !model.scenario().metadata.settled,
            REPAIRED => |_, state| publishes(state, |then| matches!(then, Then::Write(_, None))),
            MET_LATER => |_, state| publishes(state, |then| matches!(then, Then::Write(_, Some(_)))),
            LATE_PAGE => late_page,
            FILLED => |model, state| {
                let complete = |pages: &[Page]| pages.iter().filter(|page| page.is_complete).count();
                complete(&state.pages) > complete(&model.scenario().pages)
            },
            other => unreachable!("no property is called {other}"),
        };
        properties.push(Property::sometimes(shown, condition));
    }
    properties
}

const fn is_item(body: &Body) -> bool {
    matches!(body, Body::Item { .. })
}

/// A version stands for one write: copies of the same version are equal.
fn copies_are_told_apart(_: &ProtocolModel, state: &State) -> bool {
    state.table.iter().all(|row| {
        let copies = || row.iter().flatten();
        copies().all(|one| copies().all(|other| one.copy.version != other.copy.version || one.value == other.value))
    })
}

/// A get and a query that would be made now, at once, may find what they find; and no writer has taken the metadata for lost.
fn nothing_is_lost(model: &ProtocolModel, state: &State) -> bool {
    let layout = state.metadata.layout();
    let may_find = |op: Op, key: Key| {
        let newest = model.read_at_once(state, &layout, op, key);
        let value = newest.as_ref().and_then(|(stored, _)| stored.value);
        state.monitors[usize::from(key)].allows(value) || model.is_late(state, &layout, key, newest.as_ref())
    };
    let right = |key: Key| may_find(Op::Get(key), key) && may_find(Op::Query, key);
    let told_wrong = state.broken.read || state.broken.create || state.broken.scan;
    !state.broken.lost && (told_wrong || (0..model.scenario().sort_keys()).all(right))
}

fn taken_over(model: &ProtocolModel, state: &State) -> bool {
    let scaled = |(actor, cast): (&std::sync::Arc<super::state::Actor>, &super::program::Cast)| {
        actor.step == Step::Dead && matches!(cast.program[usize::from(actor.op)], Op::Scale(_))
    };
    let died = state.actors.iter().zip(&model.scenario().cast).any(scaled);
    died && state.metadata.era > model.scenario().metadata.era
}

/// Whether an actor publishes, to go on like this.
fn publishes(state: &State, goes_on: fn(&Then) -> bool) -> bool {
    state.actors.iter().any(|actor| if let Step::Publishing(_, then) = &actor.step { goes_on(then) } else { false })
}

fn late_page(_: &ProtocolModel, state: &State) -> bool {
    let is_late = |body: &Body| {
        let Body::Page { copy, layout } = body else { return false };
        let stands = state.pages.get(*copy as usize).and_then(|page| page.entry.as_ref());
        stands.is_some_and(|stands| stands.generation > layout.generation)
    };
    state.requests.iter().any(|request| is_late(&request.body))
}
