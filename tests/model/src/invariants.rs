//! What must hold in every state, and what must be seen in some.

use stateright::Property;

use super::program::{ReadOp, WriteKind};
use super::state::{Awaiting, BARE, Body, Few, Metadata, State, Step, widths};
use super::{ProtocolModel, Scenario, Story};

/// Reads: an acknowledged write or a later one is returned, by every read and by a fresh query or get at any moment.
pub const I1: &str = "I1 a read returns the last acknowledged write or a later one";
/// No two copies stand that a reader could not tell apart.
pub const I2: &str = "I2 of two copies of an item one is newer";
/// Create-only answers can all be true.
pub const I3: &str = "I3 of concurrent create-only writes one is acknowledged";
/// A scan misses nothing that stood throughout, and says nothing of a page that cannot be.
pub const I4: &str = "I4 a scan returns every item that stood throughout, once and in order";
/// The widths, and the cooldown.
pub const I5: &str = "I5 the write width stays within the read width, and changes once in a cooldown";
/// Whatever stops, nothing is lost or stuck.
pub const I6: &str = "I6 nothing acknowledged is lost and no key is stuck";

/// Not vacuous: an append landed on a shard that writers did not use at the beginning.
pub const NEW_SHARD: &str = "an append landed on a new shard";
/// Not vacuous: an actor died between expanding and activating, and another activated.
pub const TAKEN_OVER: &str = "an expansion was taken over from a dead actor";
/// Not vacuous: a request was applied when nobody waited for it any more.
pub const LATE_REQUEST: &str = "a request was applied after its sender had given up";
/// Not vacuous: a shrink reached its end.
pub const DRAINED: &str = "a drain was finished";
/// Not vacuous: a settling reached its end.
pub const SETTLED: &str = "a key was settled";

/// Not vacuous: a migration reached its end.
pub const MIGRATED: &str = "a key was migrated";

/// Every invariant, and what the scenario must show.
pub(crate) fn properties(scenario: &Scenario) -> Vec<Property<ProtocolModel>> {
    let mut properties = vec![
        Property::<ProtocolModel>::always(I1, reads_are_right),
        Property::<ProtocolModel>::always(I2, copies_are_told_apart),
        Property::<ProtocolModel>::always(I3, creations_are_unique),
        Property::<ProtocolModel>::always(I4, scans_are_complete),
        Property::<ProtocolModel>::always(I5, widths_are_right),
        Property::<ProtocolModel>::always(I6, nothing_is_lost_or_stuck),
    ];
    for shown in &scenario.shows {
        let condition: fn(&ProtocolModel, &State) -> bool = match *shown {
            NEW_SHARD => an_append_is_on_a_new_shard,
            TAKEN_OVER => an_expansion_was_taken_over,
            LATE_REQUEST => a_late_request_can_be_applied,
            DRAINED => a_drain_is_finished,
            SETTLED => a_key_is_settled,
            MIGRATED => a_key_is_migrated,
            other => unreachable!("no property is called {other}"),
        };
        properties.push(Property::sometimes(shown, condition));
    }
    properties
}

fn sort_keys(model: &ProtocolModel) -> std::ops::Range<u8> {
    0..model.scenario.sort_keys
}

fn reads_are_right(model: &ProtocolModel, state: &State) -> bool {
    let metadata = widths(state.metadata);
    !state.broken.read
        && sort_keys(model).all(|sort_key| {
            let monitor = &state.monitors[usize::from(sort_key)];
            let may_find = |shards: Few| monitor.allows(state.newest(sort_key, shards).map(|stored| stored.value));
            monitor.is_broken()
                || (may_find(model.shards(ReadOp::Query, metadata))
                    && may_find(model.shards(ReadOp::Get { sort_key }, metadata)))
        })
}

fn copies_are_told_apart(_: &ProtocolModel, state: &State) -> bool {
    state.table.iter().all(|row| {
        let mut copies = row.iter().flatten();
        copies.all(|copy| row.iter().flatten().all(|other| copy.version != other.version || copy.value == other.value))
    })
}

fn creations_are_unique(_: &ProtocolModel, state: &State) -> bool {
    !state.broken.create
}

fn scans_are_complete(_: &ProtocolModel, state: &State) -> bool {
    !state.broken.scan
}

fn widths_are_right(_: &ProtocolModel, state: &State) -> bool {
    let metadata = widths(state.metadata);
    metadata.write_width <= metadata.read_width && !state.broken.cooldown
}

fn nothing_is_lost_or_stuck(model: &ProtocolModel, state: &State) -> bool {
    let read = Few::up_to(widths(state.metadata).read_width).with(BARE);
    let stands = |sort_key: u8| state.newest(sort_key, read).is_some();
    let must_stand = |sort_key: u8| state.monitors[usize::from(sort_key)].certainly_stands();
    sort_keys(model).all(|sort_key| !must_stand(sort_key) || stands(sort_key))
        && state.metadata.is_none_or(|metadata| !is_stuck(model, state, metadata))
}

/// Whether an expansion stands that nobody can activate, or one that was put off although somebody waited for it.
fn is_stuck(model: &ProtocolModel, state: &State, metadata: Metadata) -> bool {
    if metadata.expansion().is_none() {
        return false;
    }
    let has_owner = state.actors.iter().any(|actor| {
        matches!(
            actor.step,
            Step::WaitingOutViews { .. } | Step::Sent(Awaiting::Expansion { .. } | Awaiting::Activation)
        )
    });
    // One update after an expansion, and still an expansion: it was expanded anew, and its wait began anew.
    let put_off = state.actors.iter().any(|actor| match &actor.step {
        Step::WaitingOutViews { expanded: seen, .. } | Step::Watching { seen, .. } => {
            seen.generation + 1 == metadata.generation
        }
        Step::Idle
        | Step::Served(_)
        | Step::Prepared { .. }
        | Step::Sent(_)
        | Step::Reading(_)
        | Step::BetweenPages(_)
        | Step::Draining { .. }
        | Step::Crashed { .. } => false,
    });
    put_off || !(model.rules.take_over || has_owner)
}

fn an_append_is_on_a_new_shard(model: &ProtocolModel, state: &State) -> bool {
    let first_width = widths(model.scenario.metadata).write_width;
    let appended = |value: char| {
        model
            .scenario
            .cast
            .iter()
            .flat_map(|cast| &cast.program)
            .filter_map(|op| op.as_write())
            .any(|op| op.kind == WriteKind::Append && op.value == value)
    };
    state.table.iter().any(|row| {
        let new = row.iter().skip(usize::from(first_width) + 1);
        new.flatten().any(|stored| appended(stored.value))
    })
}

fn an_expansion_was_taken_over(model: &ProtocolModel, state: &State) -> bool {
    let died = state.actors.iter().any(|actor| actor.step == Step::Crashed { between_expand_and_activate: true });
    let now = widths(state.metadata);
    died && now.write_width > widths(model.scenario.metadata).write_width
}

/// Whether such a request is about to be applied: then the search applies it, too.
fn a_late_request_can_be_applied(model: &ProtocolModel, state: &State) -> bool {
    state.requests.iter().enumerate().any(|(index, request)| {
        !request.awaited
            && matches!(request.body, Body::Items { .. })
            && model.apply(&mut state.clone(), index, &mut Story::default()).is_some()
    })
}

fn a_drain_is_finished(model: &ProtocolModel, state: &State) -> bool {
    let (first, now) = (widths(model.scenario.metadata), widths(state.metadata));
    now.read_width < first.read_width && now.draining.is_none()
}

fn a_key_is_settled(_: &ProtocolModel, state: &State) -> bool {
    widths(state.metadata).settled && widths(state.metadata).draining.is_none()
}

/// What stood under the bare key stands elsewhere.
fn a_key_is_migrated(model: &ProtocolModel, state: &State) -> bool {
    let moved = |&(sort_key, shard, value): &(u8, u8, char)| {
        let elsewhere = state.newest(sort_key, Few::up_to(widths(state.metadata).read_width));
        shard == BARE && state.copy(sort_key, BARE).is_none() && elsewhere.is_some_and(|stored| stored.value == value)
    };
    widths(state.metadata).draining.is_none() && model.scenario.items.iter().any(moved)
}
