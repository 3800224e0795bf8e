//! Scalers and observers: they close, wait and open. If the closing actor is gone, another closes
//! again.

use std::sync::Arc;

use sharding::internal::protocol::metadata::{Change, ShardMetadata};
use sharding::internal::{protocol::copies::Answer, protocol::growth::GrowthRecord};

use super::state::{Body, Changing, State, Step, Then, Writing, count};
use super::{ProtocolModel, Story, WAIT};

impl ProtocolModel {
    /// Sends a change of the metadata as a conditional update. `None` if the metadata does not
    /// allow it.
    pub(crate) fn change(
        &self,
        state: &mut State,
        actor: usize,
        (old, change): (&ShardMetadata, &Change),
        changing: Changing,
        story: &mut Story,
    ) -> Option<()> {
        let new = Arc::new(old.apply(change, self.now(state, actor).epoch_seconds())?);
        story.log(format_args!("{} sends: {change:?}", self.name(actor)));
        let is_a_writers = matches!(
            &changing,
            Changing::Close { writing: Some(_), .. } | Changing::Open { writing: Some(_) }
        );
        self.post(
            state,
            actor,
            Body::Metadata { generation: old.generation, new: Arc::clone(&new) },
        );
        state.actor(actor).step = Step::Changing(changing, new);
        // Other updates may be late themselves. Here only the following requests may be late, to
        // save states.
        if (is_a_writers || !state.pages.is_empty())
            && let Some(sent) =
                state.requests.iter().position(|request| request.from == actor && request.awaited)
        {
            self.apply(state, sent, story);
        }
        Some(())
    }

    pub(crate) fn close(
        &self,
        state: &mut State,
        actor: usize,
        to: u32,
        story: &mut Story,
    ) -> Option<()> {
        let metadata = Arc::clone(&state.metadata);
        let change = Change::Close { to: count(to), growth: GrowthRecord::default() };
        let changing = Changing::Close { sent: state.now, writing: None };
        if metadata.number_of_shards == count(to)
            || self.change(state, actor, (&metadata, &change), changing, story).is_none()
        {
            story.log(format_args!("{} has nothing to change", self.name(actor)));
            state.finish(actor);
        }
        Some(())
    }

    /// An observer reads that the key is closing.
    pub(crate) fn watch(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        state.metadata.closing()?;
        story.log(format_args!("{} finds the key closing", self.name(actor)));
        let generation = state.metadata.generation;
        state.actor(actor).step = Step::Watching { writing: None, generation, since: state.now };
        Some(())
    }

    /// An actor that waits for another actor's open checks whether the era has begun. If that takes
    /// too long, it takes the closing over.
    pub(crate) fn watch_on(
        &self,
        state: &mut State,
        actor: usize,
        story: &mut Story,
    ) -> Option<()> {
        let Step::Watching { writing, generation, since } = state.actors[actor].step.clone() else {
            return None;
        };
        if let Some(writing) = &writing {
            let shown = self.seen(state, actor, self.now(state, actor)).layout;
            if shown.closing.is_none() {
                self.look(state, actor, None, story);
                self.next_write(state, actor, writing.clone(), story);
                return Some(());
            }
            if shown.generation != generation {
                story.log(format_args!(
                    "{} finds another closing, and waits again",
                    self.name(actor)
                ));
                let (writing, generation) = (Some(writing.clone()), shown.generation);
                state.actor(actor).step = Step::Watching { writing, generation, since: state.now };
                return Some(());
            }
        }
        if !self.has_waited(state, actor, since) {
            return None;
        }
        let item = Arc::clone(&state.metadata);
        if !self.rules.closes_again {
            return self.change(
                state,
                actor,
                (&item, &Change::Open),
                Changing::Open { writing },
                story,
            );
        }
        if item.closing().is_some() && item.generation == generation {
            let changing = Changing::Close { sent: state.now, writing };
            return self.change(state, actor, (&item, &Change::CloseAgain), changing, story);
        }
        story.log(format_args!("{} finds that another actor was first", self.name(actor)));
        self.give_way(state, actor, writing, story);
        Some(())
    }

    /// The item is newer than the actor knew: the actor repairs the page, and a write goes on under
    /// the new layout.
    fn give_way(
        &self,
        state: &mut State,
        actor: usize,
        writing: Option<Writing>,
        story: &mut Story,
    ) {
        let layout = state.metadata.layout();
        let then = writing.map_or(Then::Finish, |writing| Then::Write(writing, None));
        self.publish(state, actor, layout, then, story);
    }

    /// An actor opens the era that it has closed, after the wait.
    pub(crate) fn open(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let Step::Waiting { writing, closed, since } = state.actors[actor].step.clone() else {
            return None;
        };
        if self.rules.wait_before_open && !self.has_waited(state, actor, since) {
            return None;
        }
        self.change(state, actor, (&closed, &Change::Open), Changing::Open { writing }, story)
    }

    pub(crate) fn has_waited(&self, state: &State, actor: usize, since: u8) -> bool {
        self.now(state, actor).since(self.at(actor, since)).is_some_and(|waited| waited >= WAIT)
    }

    /// Processes the response to an update of the metadata.
    pub(crate) fn change_answered(
        &self,
        state: &mut State,
        actor: usize,
        answer: &Answer,
        story: &mut Story,
    ) {
        let Step::Changing(changing, new) = state.actors[actor].step.clone() else { return };
        state.abandon(actor);
        if *answer == Answer::Applied {
            let layout = new.layout();
            self.publish(state, actor, layout, Then::Changed(changing, new), story);
            return;
        }
        story.log(format_args!(
            "{} was rejected: another actor has changed the metadata",
            self.name(actor)
        ));
        match changing {
            Changing::Mark
            | Changing::BeginPurge
            | Changing::Purged
            | Changing::BeginDrain { .. }
            | Changing::Finish => {
                state.actor(actor).step = Step::Idle;
            }
            Changing::Close { writing, .. } | Changing::Open { writing } => {
                self.give_way(state, actor, writing, story);
            }
            Changing::Emptied => state.finish(actor),
        }
    }

    /// An actor goes on after its update of the metadata has reached every copy of the page.
    pub(crate) fn changed(
        &self,
        state: &mut State,
        actor: usize,
        changing: Changing,
        new: &Arc<ShardMetadata>,
        story: &mut Story,
    ) {
        match changing {
            Changing::Close { sent, writing } => {
                story.log(format_args!("{} has closed", self.name(actor)));
                let since = if self.rules.wait_from_response { state.now } else { sent };
                state.actor(actor).step = Step::Waiting { writing, closed: Arc::clone(new), since };
            }
            Changing::Open { writing } => {
                story.log(format_args!("{} has opened", self.name(actor)));
                match writing {
                    None => state.finish(actor),
                    Some(writing) => {
                        self.look(state, actor, None, story);
                        self.next_write(state, actor, writing, story);
                    }
                }
            }
            Changing::BeginDrain { resumes } => self.begin_pass(state, actor, new, resumes, story),
            Changing::Purged => state.finish(actor),
            Changing::Mark | Changing::Emptied => {
                state.actor(actor).step = Step::Idle;
            }
            Changing::Finish => {
                story.log(format_args!("{} has settled the key", self.name(actor)));
                state.actor(actor).step = Step::Idle;
            }
            Changing::BeginPurge => self.find_tombstones(state, actor),
        }
    }
}
