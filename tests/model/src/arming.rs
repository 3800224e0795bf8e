//! Armed keys: an operator arms the key while another program writes it without versions, under a
//! lease of the patterns. The decisions are those of the product's [`ArmedView`].

use std::sync::Arc;
use std::time::Duration;

use sharding::ShardNumber;
use sharding::internal::protocol::armed::{
    Armed, ArmedView, MayGrow, Standing, counts_from, removable_from,
};
use sharding::internal::protocol::copies::{Condition, Effect, Request};
use sharding::internal::protocol::version::Version;
use sharding::maintenance::KeyPattern;
use sharding::{PartitionKey, internal::protocol::view::Moment};

use super::monitor::{Kind, Outcome};
use super::state::{Body, Content, Key, State, Step, Value};
use super::{Blame, ProtocolModel, Story};

/// The lease of the patterns: longer than a growth takes, as the product's.
const PATTERN_LEASE: Duration = Duration::from_secs(2);

impl ProtocolModel {
    fn partition_key() -> PartitionKey {
        PartitionKey::new("k").expect("it is short")
    }

    /// Whether an actor may write the key and let it grow. It reads the patterns if that is needed.
    pub(crate) fn may_grow(&self, state: &mut State, actor: usize, story: &mut Story) -> bool {
        if self.scenario.armed == Armed::all() {
            return true;
        }
        let key = Self::partition_key();
        if !self.rules.growth_waits && state.armed.standing(&key) != Standing::NotArmed {
            return true;
        }
        let now = self.now(state, actor);
        loop {
            let view = state.actors[actor].armed.clone();
            match view.map_or(MayGrow::Look, |view| view.may_grow(&key, now, PATTERN_LEASE)) {
                MayGrow::Yes => return true,
                MayGrow::NotBefore(_) => return false,
                MayGrow::Look => self.read_patterns(state, actor, story),
            }
        }
    }

    fn read_patterns(&self, state: &mut State, actor: usize, story: &mut Story) {
        let (armed, asked_at) = (state.armed.clone(), self.asks_at(state, actor, None));
        story.log(format_args!("{} reads the patterns: {armed:?}", self.name(actor)));
        state.actor(actor).armed = Some(Arc::new(ArmedView { armed, asked_at }));
    }

    fn is_leased(&self, view: &ArmedView, now: Moment) -> bool {
        !self.rules.patterns_are_leased || view.is_valid(now, PATTERN_LEASE)
    }

    /// The operator stores a pattern without a time.
    pub(crate) fn arm(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        state.armed = Armed::default().with(KeyPattern::All, None);
        story.log(format_args!("{} stores a pattern without a time", self.name(actor)));
        state.actor(actor).step = Step::Arming;
        Some(())
    }

    /// The operator sets the time from which the pattern counts.
    pub(crate) fn set_time(
        &self,
        state: &mut State,
        actor: usize,
        story: &mut Story,
    ) -> Option<()> {
        let wait = PATTERN_LEASE + Duration::from_secs(u64::from(self.scenario.validity));
        let mut from = counts_from(self.now(state, actor), wait);
        if !self.rules.counts_once_visible {
            // The time was taken first, and storing the pattern took as long as the wait.
            from -= wait.as_secs() + 1;
        }
        state.armed = Armed::default().with(KeyPattern::All, Some(from));
        story.log(format_args!("{} lets the pattern count from {from}", self.name(actor)));
        state.finish(actor);
        Some(())
    }

    /// The operator removes the pattern, if it does not count soon.
    pub(crate) fn disarm(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let by = removable_from(self.now(state, actor), PATTERN_LEASE);
        let counts = state.armed.patterns().any(|(_, from)| from.is_some_and(|from| from <= by));
        if !(counts && self.rules.disarmed_before_it_counts) {
            state.armed = Armed::default();
            story.log(format_args!("{} removes the pattern", self.name(actor)));
        }
        state.finish(actor);
        Some(())
    }

    /// Another program gets the patterns, unless it has them within their lease.
    pub(crate) fn begin_plain(
        &self,
        state: &mut State,
        actor: usize,
        (key, value): (Key, Value),
        story: &mut Story,
    ) -> Option<()> {
        let now = self.now(state, actor);
        if !state.actors[actor].armed.as_ref().is_some_and(|view| self.is_leased(view, now)) {
            self.read_patterns(state, actor, story);
        }
        state.actor(actor).step = Step::Plain(key, value);
        Some(())
    }

    /// Another program writes, if the patterns that it has read do not match, and their lease lasts.
    /// Between the two it may have been frozen.
    pub(crate) fn send_plain(
        &self,
        state: &mut State,
        actor: usize,
        story: &mut Story,
    ) -> Option<()> {
        let Step::Plain(key, value) = state.actors[actor].step else { return None };
        let view = state.actors[actor].armed.clone()?;
        if view.matches(&Self::partition_key()) {
            story.log(format_args!("{} does not write an armed key", self.name(actor)));
            state.finish(actor);
            return Some(());
        }
        if !self.is_leased(&view, self.now(state, actor)) {
            state.actor(actor).step = Step::Idle;
            return Some(());
        }
        self.invoke(state, actor, key, Kind::Write(value));
        let any = Condition::AbsentOrBelow(Version::new(u64::from(u32::MAX), 0, 0));
        let effect = Effect::Put { version: Version::NONE, write_id: None };
        let request = Request::unmarked(effect, any);
        story.log(format_args!("{} writes {value} without a version", self.name(actor)));
        let content = Content::of(Some(value));
        self.post(
            state,
            actor,
            Body::Item { place: ShardNumber::FIRST, key, content, request: request.into() },
        );
        state.actor(actor).step = Step::PlainSent(key);
        Some(())
    }

    /// Another program gets the response to its write.
    pub(crate) fn plain_written(&self, state: &mut State, actor: usize, story: &mut Story) {
        let Step::PlainSent(key) = state.actors[actor].step else { return };
        story.log(format_args!("{} has written", self.name(actor)));
        self.respond(state, actor, key, Outcome::Done, Blame::Read);
        state.finish(actor);
    }
}
