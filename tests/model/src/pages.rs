//! The directory: an actor's view of the key's page, and how a change reaches every copy of it.

use std::sync::Arc;

use sharding::ShardCount;
use sharding::internal::protocol::copies::Answer;
use sharding::internal::protocol::directory::{Publication, supersedes};
use sharding::internal::protocol::layout::Layout;
use sharding::internal::protocol::view::{Moment, View};

use super::state::{Body, InFlight, Page, State, Step, Then};
use super::{ProtocolModel, Story};

impl ProtocolModel {
    /// The view of an actor that asks at this instant: its copy of the page, or else the first one,
    /// joined with the view that it has. If neither copy is complete, or the table has no
    /// directory, the metadata item.
    pub(crate) fn seen(&self, state: &State, actor: usize, asked_at: Moment) -> View {
        let is_trusted = |page: &&Page| page.is_complete || !self.rules.missing_is_not_empty;
        let copies = [self.scenario.cast[actor].copy, 0];
        let read = |copy: &usize| {
            let page = state.pages.get(*copy)?;
            if page.is_moved { state.pages.last() } else { Some(page) }
        };
        let Some(page) = copies.iter().filter_map(read).find(is_trusted) else {
            return View { layout: state.metadata.layout(), asked_at };
        };
        let listed = page.entry.as_deref().cloned();
        let view =
            View { layout: listed.unwrap_or_else(|| Layout::unlisted(ShardCount::ONE)), asked_at };
        match &state.actors[actor].view {
            Some(known) => view.joined(known),
            None => view,
        }
    }

    /// An actor gets a view from the metadata item.
    pub(crate) fn read_item(
        &self,
        state: &mut State,
        actor: usize,
        since: Option<Moment>,
        story: &mut Story,
    ) {
        let view =
            View { layout: state.metadata.layout(), asked_at: self.asks_at(state, actor, since) };
        story.log(format_args!(
            "{} reads the metadata item: {}",
            self.name(actor),
            super::layout_text(&view.layout)
        ));
        state.actor(actor).view = Some(Arc::new(view));
    }

    /// An actor writes a layout to every copy of the page, and goes on once all copies have it. A
    /// key that has never grown is not listed.
    pub(crate) fn publish(
        &self,
        state: &mut State,
        actor: usize,
        layout: Layout,
        then: Then,
        story: &mut Story,
    ) {
        let counts_again = self.rules.copies_counted_again || matches!(then, Then::Mark);
        let copies = if counts_again { state.pages.len() } else { self.scenario.pages.len() };
        if copies == 0 || !layout.is_listed(ShardCount::ONE) {
            self.go_on(state, actor, then, story);
            return;
        }
        state.abandon(actor);
        let (entry, valid_until) = (Arc::new(layout.clone()), self.valid_until(state));
        let mut publication = Publication::new(layout, u32::try_from(copies).unwrap_or(u32::MAX));
        (0..state.first_written).for_each(|copy| publication.note_written(copy));
        for copy in publication.missing() {
            let body = Body::Page { copy: *copy, layout: Arc::clone(&entry) };
            state.requests.push(InFlight { from: actor, awaited: true, valid_until, body });
        }
        state.requests.sort_by_key(|request| request.from);
        story.log(format_args!("{} writes it to every copy of the page", self.name(actor)));
        if self.rules.all_copies_first {
            state.actor(actor).step = Step::Publishing(Box::new(publication), then);
        } else {
            state.abandon(actor);
            self.go_on(state, actor, then, story);
        }
    }

    pub(crate) fn apply_to_page(
        &self,
        state: &mut State,
        copy: u32,
        layout: Arc<Layout>,
        story: &mut Story,
    ) -> Answer {
        let Some(page) = state.pages.get_mut(copy as usize) else { return Answer::Rejected };
        if self.rules.entries_go_up && !supersedes(&layout, page.entry.as_deref()) {
            story.log(format_args!(
                "rejected: copy {copy} of the page has an equal or higher generation"
            ));
            return Answer::Refused(None);
        }
        let stays =
            self.rules.entries_stay || !layout.settled || layout.number_of_shards > ShardCount::ONE;
        story.log(format_args!("copy {copy} of the page: {}", super::layout_text(&layout)));
        page.entry = stays.then_some(layout);
        Answer::Applied
    }

    /// A copy of the page now has the entry that its actor publishes, or a later one.
    pub(crate) fn page_written(
        &self,
        state: &mut State,
        actor: usize,
        copy: u32,
        story: &mut Story,
    ) {
        let Step::Publishing(publication, then) = &mut state.actor(actor).step else { return };
        publication.note_written(copy);
        if publication.missing().is_empty() {
            let then = then.clone();
            self.go_on(state, actor, then, story);
        }
    }

    fn go_on(&self, state: &mut State, actor: usize, then: Then, story: &mut Story) {
        match then {
            Then::Changed(changing, new) => self.changed(state, actor, changing, &new, story),
            Then::Write(writing, since) => {
                self.look(state, actor, since, story);
                self.next_write(state, actor, writing, story);
            }
            Then::Purge => self.find_tombstones(state, actor),
            Then::Mark => {
                state.pages.iter_mut().for_each(|page| page.is_complete = true);
                story.log(format_args!(
                    "{} marks every copy of the page as complete",
                    self.name(actor)
                ));
                state.finish(actor);
            }
            Then::Finish => state.finish(actor),
        }
    }

    pub(crate) fn add_copy(
        &self,
        state: &mut State,
        actor: usize,
        story: &mut Story,
    ) -> Option<()> {
        story.log(format_args!("{} adds a copy of the page", self.name(actor)));
        state.pages.push(Page { entry: None, is_complete: false, is_moved: false });
        state.finish(actor);
        Some(())
    }

    /// An actor moves the entries of one more of the first copies, which the last one has.
    pub(crate) fn move_page(
        &self,
        state: &mut State,
        actor: usize,
        story: &mut Story,
    ) -> Option<()> {
        let first = self.scenario.pages.len();
        let copy = state.pages.iter().take(first).position(|page| !page.is_moved)?;
        if self.rules.moved_before_unwritten {
            state.pages[copy] = Page { entry: None, is_complete: true, is_moved: true };
            story.log(format_args!("{} moves copy {copy} of the page", self.name(actor)));
        }
        if copy + 1 == first || !self.rules.moved_before_unwritten {
            state.first_written = u32::try_from(first).unwrap_or(u32::MAX);
        }
        state.finish(actor);
        Some(())
    }

    /// An actor fills every copy of the page from the metadata item.
    pub(crate) fn fill(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let layout = state.metadata.layout();
        story.log(format_args!(
            "{} reads the metadata item: {}",
            self.name(actor),
            super::layout_text(&layout)
        ));
        self.publish(state, actor, layout, Then::Mark, story);
        Some(())
    }
}
