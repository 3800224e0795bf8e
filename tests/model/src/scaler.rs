//! Scalers and observers: they close, wait and open. If the closing actor is gone, another closes
//! again.

use std::sync::Arc;

use sharding::internal::protocol::metadata::{Change, ShardMetadata};
use sharding::internal::{protocol::copies::Answer, protocol::growth::GrowthRecord};

use super::state::{Body, Changing, Step, Then, Writing, count};
use super::{Turn, WAIT};

impl Turn<'_> {
    /// Sends a change of the metadata as a conditional update. `None` if the metadata does not
    /// allow it.
    pub(crate) fn change(
        &mut self,
        old: &ShardMetadata,
        change: &Change,
        changing: Changing,
    ) -> Option<()> {
        let new = Arc::new(old.apply(change, self.now().epoch_seconds())?);
        let is_a_writers = matches!(
            &changing,
            Changing::Close { writing: Some(_), .. } | Changing::Open { writing: Some(_) }
        );
        let body = Body::Metadata { generation: old.generation, new: Arc::clone(&new) };
        self.post([body], self.valid_until());
        self.me_mut().step = Step::Changing(changing, new);
        // Other updates may be late themselves. Here only the following requests may be late, to
        // save states.
        let mut requests = self.state.requests.iter();
        if (is_a_writers || !self.state.pages.is_empty())
            && let Some(sent) =
                requests.position(|request| request.awaited && request.from == self.actor)
        {
            self.apply(sent);
        }
        Some(())
    }

    pub(crate) fn close(&mut self, to: u32) -> Option<()> {
        self.ensure_armed()?;
        let metadata = Arc::clone(&self.state.metadata);
        let change = Change::Close { to: count(to), growth: GrowthRecord::default() };
        let changing = Changing::Close { sent: self.state.now, writing: None };
        if metadata.number_of_shards == count(to)
            || self.change(&metadata, &change, changing).is_none()
        {
            return self.finish();
        }
        Some(())
    }

    /// An observer reads that the key is closing.
    pub(crate) fn watch(&mut self) -> Option<()> {
        self.state.metadata.closing()?;
        let generation = self.state.metadata.generation;
        self.go_to(Step::Watching { writing: None, generation, since: self.state.now })
    }

    /// An actor that waits for another actor's open checks whether the era has begun. If that takes
    /// too long, it takes the closing over.
    pub(crate) fn watch_on(
        &mut self,
        writing: Option<Writing>,
        generation: u64,
        since: u8,
    ) -> Option<()> {
        if let Some(writing) = &writing {
            let shown = self.seen(self.now()).layout;
            if shown.closing.is_none() {
                self.look(None);
                return self.next_write(writing.clone());
            }
            if shown.generation != generation {
                let (writing, generation) = (Some(writing.clone()), shown.generation);
                return self.go_to(Step::Watching { writing, generation, since: self.state.now });
            }
        }
        if !self.has_waited(since) {
            return None;
        }
        let item = Arc::clone(&self.state.metadata);
        if self.weakened.closes_again {
            return self.change(&item, &Change::Open, Changing::Open { writing });
        }
        if item.closing().is_some() && item.generation == generation {
            let changing = Changing::Close { sent: self.state.now, writing };
            return self.change(&item, &Change::CloseAgain, changing);
        }
        self.give_way(writing)
    }

    /// The item is newer than the actor knew: the actor repairs the page, and a write goes on under
    /// the new layout.
    fn give_way(&mut self, writing: Option<Writing>) -> Option<()> {
        let layout = self.state.metadata.layout();
        let then = writing.map_or(Then::Finish, |writing| Then::Write(writing, None));
        self.publish(layout, then)
    }

    /// An actor opens the era that it has closed, after the wait.
    pub(crate) fn open(
        &mut self,
        writing: Option<Writing>,
        closed: &ShardMetadata,
        since: u8,
    ) -> Option<()> {
        if !self.weakened.wait_before_open && !self.has_waited(since) {
            return None;
        }
        self.change(closed, &Change::Open, Changing::Open { writing })
    }

    fn has_waited(&self, since: u8) -> bool {
        self.now().since(self.at(since)).is_some_and(|waited| waited >= WAIT)
    }

    /// Processes the response to an update of the metadata.
    pub(crate) fn change_answered(&mut self, answer: &Answer) -> Option<()> {
        let Step::Changing(changing, new) = self.me().step.clone() else { return None };
        self.abandon();
        if *answer == Answer::Applied {
            let layout = new.layout();
            return self.publish(layout, Then::Changed(changing, new));
        }
        match changing {
            Changing::Again | Changing::BeginPurge | Changing::BeginDrain { .. } => {
                self.go_to(Step::Idle)
            }
            Changing::Close { writing, .. } | Changing::Open { writing } => self.give_way(writing),
            Changing::Emptied => self.finish(),
        }
    }

    /// An actor goes on after its update of the metadata has reached every copy of the page.
    pub(crate) fn changed(&mut self, changing: Changing, new: Arc<ShardMetadata>) -> Option<()> {
        match changing {
            Changing::Close { sent, writing } => {
                let since = if self.weakened.wait_from_response { sent } else { self.state.now };
                self.go_to(Step::Waiting { writing, closed: new, since })
            }
            Changing::Open { writing } => {
                let Some(writing) = writing else { return self.finish() };
                self.look(None);
                self.next_write(writing)
            }
            Changing::BeginDrain { resumes } => self.begin_pass(new, resumes),
            Changing::Again | Changing::Emptied => self.go_to(Step::Idle),
            Changing::BeginPurge => self.find_tombstones(),
        }
    }
}
