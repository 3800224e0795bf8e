//! Scalers and observers: close, wait, open.

use std::sync::Arc;

use sharding::GrowthRecord;
use sharding::protocol::copies::Answer;
use sharding::protocol::metadata::{Change, ShardMetadata};

use super::state::{Body, Changing, State, Step, count};
use super::{ProtocolModel, Story, WAIT};

impl ProtocolModel {
    /// A change of the metadata, as a conditional update on its way. `None` where the change does not fit.
    pub(crate) fn change(
        &self,
        state: &mut State,
        actor: usize,
        (old, change): (&ShardMetadata, &Change),
        changing: Changing,
        story: &mut Story,
    ) -> Option<()> {
        let new = Arc::new(old.apply(change, self.now(state, actor).epoch_seconds())?);
        story.tell(format_args!("{} sends: {change:?}", self.name(actor)));
        self.post(state, actor, Body::Metadata { generation: old.generation, new: Arc::clone(&new) });
        state.actor(actor).step = Step::Changing(changing, new);
        Some(())
    }

    pub(crate) fn close(&self, state: &mut State, actor: usize, to: u32, story: &mut Story) -> Option<()> {
        let metadata = Arc::clone(&state.metadata);
        let change = Change::Close { to: count(to), growth: GrowthRecord::default() };
        let changing = Changing::Close { sent: state.now };
        if metadata.number_of_shards == count(to)
            || self.change(state, actor, (&metadata, &change), changing, story).is_none()
        {
            story.tell(format_args!("{} has nothing to change", self.name(actor)));
            state.finish(actor);
        }
        Some(())
    }

    /// An observer finds a closing.
    pub(crate) fn watch(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        state.metadata.closing()?;
        story.tell(format_args!("{} finds the key closing", self.name(actor)));
        let closed = Arc::clone(&state.metadata);
        state.actor(actor).step = Step::Waiting { writing: None, closed, since: state.now };
        Some(())
    }

    /// An actor that waits for the next era looks whether it has begun, and begins it where it has waited long enough.
    pub(crate) fn wait(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let Step::Waiting { writing, closed, since } = state.actors[actor].step.clone() else { return None };
        let now = self.now(state, actor);
        let waited =
            now.since(self.at(actor, since)).is_some_and(|waited| waited >= WAIT) || !self.rules.wait_before_open;
        let stands = Arc::clone(&state.metadata);
        let found = if self.rules.watch_one_closing || stands.closing().is_none() { &closed } else { &stands };
        match writing {
            // A scaler or an observer: its update is refused where something has changed.
            None if waited => self.change(state, actor, (found, &Change::Open), Changing::Open, story),
            None => None,
            Some(writing) if stands.closing().is_none() => {
                self.look(state, actor, None, story);
                self.next_write(state, actor, writing, story);
                Some(())
            }
            Some(writing) if waited && found.generation == stands.generation => {
                state.metadata = Arc::new(stands.apply(&Change::Open, now.epoch_seconds())?);
                story.tell(format_args!("{} opens: {}", self.name(actor), super::told(&state.metadata)));
                self.look(state, actor, None, story);
                self.next_write(state, actor, writing, story);
                Some(())
            }
            Some(writing) if closed.generation != stands.generation => {
                story.tell(format_args!("{} finds another closing, and waits anew", self.name(actor)));
                state.actor(actor).step = Step::Waiting { writing: Some(writing), closed: stands, since: state.now };
                Some(())
            }
            Some(_) => None,
        }
    }

    /// The response to an update of the metadata.
    pub(crate) fn change_answered(&self, state: &mut State, actor: usize, answer: &Answer, story: &mut Story) {
        let Step::Changing(changing, new) = state.actors[actor].step.clone() else { return };
        state.abandon(actor);
        if *answer != Answer::Applied {
            story.tell(format_args!("{} was refused: somebody else has changed the metadata", self.name(actor)));
            if matches!(
                changing,
                Changing::Mark | Changing::Purged | Changing::BeginDrain { .. } | Changing::Finish { .. }
            ) {
                state.actor(actor).step = Step::Idle;
            } else {
                state.finish(actor);
            }
            return;
        }
        match changing {
            Changing::Close { sent } => {
                story.tell(format_args!("{} has closed", self.name(actor)));
                let since = if self.rules.wait_from_response { state.now } else { sent };
                state.actor(actor).step = Step::Waiting { writing: None, closed: new, since };
            }
            Changing::Open => {
                story.tell(format_args!("{} has opened", self.name(actor)));
                state.finish(actor);
            }
            Changing::BeginDrain { resumes } => self.begin_pass(state, actor, &new, resumes, story),
            Changing::Purged => state.finish(actor),
            Changing::Mark | Changing::Emptied => {
                state.actor(actor).step = Step::Idle;
            }
            Changing::Finish { tombstones } => {
                story.tell(format_args!("{} has settled the key", self.name(actor)));
                state.actor(actor).step = Step::Purging { tombstones, since: state.now };
            }
        }
    }
}
