//! Registering and growing: expand, wait, activate.

use super::state::{Answer, Awaiting, Body, Change, Expected, Metadata, State, Step, widths};
use super::{ProtocolModel, Story};

impl ProtocolModel {
    /// The first write of a new key registers it, off the critical path.
    pub(crate) fn register(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        if state.actors[actor].step != Step::Idle {
            return None;
        }
        let expected = if self.rules.conditional_registration { Expected::Absent } else { Expected::Anything };
        story.tell(format_args!("{} registers the key", self.name(actor)));
        self.send(state, actor, Body::Metadata { change: Change::Register, expected }, Awaiting::Registration);
        Some(())
    }

    /// A scale-out: decides and expands, or takes over what waits to be activated, or goes on with its own.
    pub(crate) fn scale_out(&self, state: &mut State, actor: usize, to: u8, story: &mut Story) -> Option<()> {
        if state.actors[actor].step != Step::Idle {
            return self.wait_out_views(state, actor, story);
        }
        let metadata = widths(state.metadata);
        let again = !self.rules.one_expansion && to > metadata.read_width;
        if metadata.draining.is_some() {
            story.tell(format_args!("{} finds a drain under way", self.name(actor)));
            state.finish(actor);
        } else if metadata.expansion().is_some() && !again {
            if self.rules.take_over {
                story.tell(format_args!("{} finds an expansion under way, and watches it", self.name(actor)));
                state.actors[actor].step = Step::Watching { seen: metadata, since: state.now };
            } else {
                story.tell(format_args!("{} finds an expansion under way", self.name(actor)));
                state.finish(actor);
            }
        } else if to <= metadata.write_width {
            story.tell(format_args!("{} finds the key wide enough", self.name(actor)));
            state.finish(actor);
        } else {
            if self.is_cooling_down(state) {
                return None;
            }
            self.expand(state, actor, to, story);
        }
        Some(())
    }

    /// Whether the last change is too recent for another.
    pub(crate) fn is_cooling_down(&self, state: &State) -> bool {
        let now = state.now / self.scenario.second;
        let until = |at: u8| at.saturating_add(self.scenario.cooldown / self.scenario.second);
        let last = widths(state.metadata).last_change();
        self.rules.cooldown && self.scenario.cooldown > 0 && last.is_some_and(|at| now < until(at))
    }

    /// Raises the read width.
    fn expand(&self, state: &mut State, actor: usize, to: u8, story: &mut Story) {
        let expected = self.lock(state.metadata);
        let sent_at = if self.rules.wait_from_answer { None } else { Some(state.now) };
        story.tell(format_args!("{} sends expand to {to}", self.name(actor)));
        self.send(
            state,
            actor,
            Body::Metadata { change: Change::Expand { to }, expected },
            Awaiting::Expansion { sent_at },
        );
    }

    /// The expansion's answer: from now on, everybody's older views run out.
    pub(crate) fn expand_answered(
        &self,
        state: &mut State,
        actor: usize,
        sent_at: Option<u8>,
        answer: Answer,
        story: &mut Story,
    ) {
        let Answer::Updated(expanded) = answer else {
            story.tell(format_args!("{} was outrun", self.name(actor)));
            state.finish(actor);
            return;
        };
        let since = sent_at.unwrap_or(state.now);
        story.tell(format_args!("{} learns that it has expanded, and waits from {since} on", self.name(actor)));
        state.actors[actor].step = Step::WaitingOutViews { expanded, since };
    }

    /// Watches an expansion that another actor made. Only where there is one.
    pub(crate) fn take_over(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        if state.actors[actor].step != Step::Idle {
            return self.wait_out_views(state, actor, story);
        }
        let seen = state.metadata.filter(|seen| self.rules.take_over && seen.expansion().is_some())?;
        story.tell(format_args!("{} observes an expansion ({seen})", self.name(actor)));
        state.actors[actor].step = Step::Watching { seen, since: state.now };
        Some(())
    }

    /// The wait is over, and the expansion is activated. `None` while it is not over.
    fn wait_out_views(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let (expanded, since, is_own) = match state.actors[actor].step {
            Step::WaitingOutViews { expanded, since } => (expanded, since, true),
            Step::Watching { seen, since } => (seen, since, false),
            Step::Idle
            | Step::Served(_)
            | Step::Prepared { .. }
            | Step::Sent(_)
            | Step::Reading(_)
            | Step::BetweenPages(_)
            | Step::Draining { .. }
            | Step::Crashed { .. } => return None,
        };
        if self.rules.wait_out_views && state.now < since.saturating_add(self.scenario.lease) {
            return None;
        }
        let expanded = if is_own { Some(expanded) } else { self.still_expanded(state, expanded) };
        match expanded {
            Some(expanded) => self.activate(state, actor, expanded, story),
            None => {
                story.tell(format_args!("{} sees that another actor was first", self.name(actor)));
                state.finish(actor);
            }
        }
        Some(())
    }

    /// What an observer may activate after its wait.
    fn still_expanded(&self, state: &State, seen: Metadata) -> Option<Metadata> {
        if self.rules.activate_what_was_watched {
            return (self.lock(state.metadata) == self.lock(Some(seen))).then_some(seen);
        }
        state.metadata.filter(|now| now.expansion().is_some())
    }

    /// Raises the write width to what was expanded to.
    fn activate(&self, state: &mut State, actor: usize, expanded: Metadata, story: &mut Story) {
        let (expected, to) = (self.lock(Some(expanded)), expanded.read_width);
        story.tell(format_args!("{} sends activate {to}", self.name(actor)));
        self.send(state, actor, Body::Metadata { change: Change::Activate { to }, expected }, Awaiting::Activation);
    }
}
