//! Readable traces: each action, and what it changed.

use super::state::{Body, EPOCH, PLACES, State, Stored, shard};
use super::{Action, ProtocolModel, Turn};

impl ProtocolModel {
    /// Describes an action in a state, and what it changes, in one line.
    #[must_use]
    pub fn narrate(&self, before: &State, action: Action) -> String {
        let mut turn = Turn::new(self, before, action);
        turn.perform(action);
        let (after, actor) = (&turn.state, turn.actor);
        let cast = self.scenario.cast.get(actor).filter(|_| action != Action::Tick);
        let name = cast.map_or("-", |cast| cast.name);
        let mut lines = vec![format!("t={} {name} {action:?}", after.now)];
        if let Action::Apply(request) = action {
            lines.push(body_text(&before.requests[request].body));
        }
        if before.metadata != after.metadata {
            lines.push(format!("metadata: {}", after.metadata.layout().to_entry()));
        }
        if before.armed != after.armed {
            lines.push(format!("armed: {:?}", after.armed));
        }
        for (copy, page) in after.pages.iter().enumerate() {
            if before.pages.get(copy) != Some(page) {
                lines.push(format!("copy {copy} of the page: {page:?}"));
            }
        }
        for (key, place) in (0..self.scenario.sort_keys())
            .flat_map(|key| (1..PLACES as u32).map(move |place| (key, shard(place))))
        {
            let stored = after.copy(key, place);
            if before.copy(key, place) != stored || action == Action::Read(actor, place) {
                lines.push(format!("shard {place} has {}", stored_text(stored)));
            }
        }
        let sent = after.requests.iter().filter(|sent| sent.awaited);
        for sent in sent.filter(|sent| !before.requests.contains(sent)) {
            lines.push(format!("sends {}", body_text(&sent.body)));
        }
        if let (Some(was), Some(is)) = (before.actors.get(actor), after.actors.get(actor)) {
            if let Some(view) = is.view.as_ref().filter(|_| was.view != is.view) {
                lines.push(format!("sees {}", view.layout.to_entry()));
            }
            if was.step != is.step {
                let step = format!("{:?}", is.step);
                lines.extend(step.split(['(', ' ']).next().map(|step| format!("next: {step}")));
            }
        }
        lines.extend(turn.outcomes.iter().map(|outcome| format!("gets {outcome:?}")));
        lines.join("; ")
    }
}

fn body_text(body: &Body) -> String {
    match body {
        Body::Item { place, request, .. } => format!("{request:?} to shard {place}"),
        Body::Metadata { new, .. } => format!("metadata: {}", new.layout().to_entry()),
        Body::Page { copy, layout } => format!("to copy {copy} of the page: {}", layout.to_entry()),
    }
}

/// A stored copy with its version's era, and its second on the writer's clock.
fn stored_text(stored: Option<&Stored>) -> String {
    let Some(Stored { copy, value }) = stored else { return "nothing".to_owned() };
    let value = value.map_or("a tombstone".to_owned(), String::from);
    let second = i128::from(copy.version.epoch_seconds()) - i128::from(EPOCH);
    format!("{value} of era {} at {second} s", copy.version.era())
}
