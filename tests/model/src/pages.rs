//! The directory: an actor's view of the key's page, and how a change reaches every copy of it.

use std::sync::Arc;

use sharding::ShardCount;
use sharding::internal::protocol::copies::Answer;
use sharding::internal::protocol::directory::supersedes;
use sharding::internal::protocol::layout::Layout;
use sharding::internal::protocol::view::{Moment, View};

use super::Turn;
use super::state::{Body, Page, Publication, Step, Then};

impl Turn<'_> {
    /// The view of an actor that asks at this instant: its copy of the page, or else the first one,
    /// joined with the view that it has. If neither copy is complete, or the table has no
    /// directory, the metadata item.
    pub(crate) fn seen(&self, asked_at: Moment) -> View {
        let is_trusted = |page: &&Page| page.is_complete || self.weakened.missing_is_not_empty;
        let copies = [self.scenario.cast[self.actor].copy, 0];
        let read = |copy: &usize| {
            let page = self.state.pages.get(*copy)?;
            if page.is_moved { self.state.pages.last() } else { Some(page) }
        };
        let Some(page) = copies.iter().filter_map(read).find(is_trusted) else {
            return View { layout: self.state.metadata.layout(), asked_at };
        };
        let listed = page.entry.as_deref().cloned();
        let view =
            View { layout: listed.unwrap_or_else(|| Layout::unlisted(ShardCount::ONE)), asked_at };
        match self.view() {
            Some(known) => view.joined(&known),
            None => view,
        }
    }

    /// The actor gets a view from the metadata item.
    pub(crate) fn read_item(&mut self, since: Option<Moment>) {
        let view = View { layout: self.state.metadata.layout(), asked_at: self.asks_at(since) };
        self.me_mut().view = Some(Arc::new(view));
    }

    /// The actor writes a layout to every copy of the page, and goes on once all copies have it. A
    /// key that has never grown is not listed.
    pub(crate) fn publish(&mut self, layout: Layout, then: Then) -> Option<()> {
        let counts_again = !self.weakened.copies_counted_again || matches!(then, Then::Mark);
        let pages = if counts_again { &self.state.pages } else { &self.scenario.pages };
        let copies = u32::try_from(pages.len()).unwrap_or(u32::MAX);
        if copies == 0 || !layout.is_listed(ShardCount::ONE) {
            return self.go_on(then);
        }
        let entry = Arc::new(layout.clone());
        let missing = (self.state.first_written..copies).collect();
        let publication = Publication { layout, missing };
        let write = |copy: &u32| Body::Page { copy: *copy, layout: Arc::clone(&entry) };
        self.post(publication.missing.iter().map(write), self.valid_until());
        if !self.weakened.all_copies_first {
            return self.go_to(Step::Publishing(Box::new(publication), then));
        }
        self.abandon();
        self.go_on(then)
    }

    pub(crate) fn apply_to_page(&mut self, copy: u32, layout: Arc<Layout>) -> Answer {
        let Some(page) = self.state.pages.get_mut(copy as usize) else { return Answer::Rejected };
        if !self.weakened.entries_go_up && !supersedes(&layout, page.entry.as_deref()) {
            return Answer::Refused(None);
        }
        let stays = !self.weakened.entries_stay
            || !layout.settled
            || layout.number_of_shards > ShardCount::ONE;
        page.entry = stays.then_some(layout);
        Answer::Applied
    }

    /// A copy of the page now has the entry that its actor publishes, or a later one.
    pub(crate) fn page_written(&mut self, copy: u32) -> Option<()> {
        let Step::Publishing(publication, then) = &mut self.me_mut().step else { return None };
        publication.missing.remove(&copy);
        if !publication.missing.is_empty() {
            return None;
        }
        let then = then.clone();
        self.go_on(then)
    }

    fn go_on(&mut self, then: Then) -> Option<()> {
        match then {
            Then::Changed(changing, new) => self.changed(changing, new),
            Then::Write(writing, since) => {
                self.look(since);
                self.next_write(writing)
            }
            Then::Purge => self.find_tombstones(),
            Then::Mark => {
                self.state.pages.iter_mut().for_each(|page| page.is_complete = true);
                self.finish()
            }
            Then::Finish => self.finish(),
        }
    }

    pub(crate) fn add_copy(&mut self) -> Option<()> {
        self.state.pages.push(Page { entry: None, is_complete: false, is_moved: false });
        self.finish()
    }

    /// The actor moves the entries of one more of the first copies, which the last one has.
    pub(crate) fn move_page(&mut self) -> Option<()> {
        let first = self.scenario.pages.len();
        let copy = self.state.pages.iter().take(first).position(|page| !page.is_moved)?;
        if !self.weakened.moved_before_unwritten {
            self.state.pages[copy] = Page { entry: None, is_complete: true, is_moved: true };
        }
        if copy + 1 == first || self.weakened.moved_before_unwritten {
            self.state.first_written = u32::try_from(first).unwrap_or(u32::MAX);
        }
        self.finish()
    }

    /// The actor fills every copy of the page from the metadata item.
    pub(crate) fn fill(&mut self) -> Option<()> {
        self.publish(self.state.metadata.layout(), Then::Mark)
    }
}
