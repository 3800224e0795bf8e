//! Armed keys: an operator arms the key while another program writes it without versions, under a
//! lease of the patterns. The decisions are those of the product's [`ArmedView`].

use std::sync::Arc;
use std::time::Duration;

use sharding::internal::protocol::armed::{Armed, ArmedView, MayGrow, counts_from, removable_from};
use sharding::internal::protocol::copies::{Condition, Effect, Request};
use sharding::internal::protocol::version::Version;
use sharding::maintenance::KeyPattern;
use sharding::{PartitionKey, ShardNumber};

use super::Turn;
use super::monitor::{Kind, Outcome};
use super::state::{Content, Step, Value};

/// The lease of the patterns: longer than a growth takes, as the product's.
const PATTERN_LEASE: Duration = Duration::from_secs(2);

impl Turn<'_> {
    fn partition_key() -> PartitionKey {
        PartitionKey::new("k").expect("it is short")
    }

    /// `None` if the actor may not yet write the key and let it grow. It reads the patterns if that
    /// is needed.
    pub(crate) fn ensure_armed(&mut self) -> Option<()> {
        if self.scenario.armed == Armed::all() {
            return Some(());
        }
        let key = Self::partition_key();
        if self.weakened.growth_waits && self.state.armed.matches(&key) {
            return Some(());
        }
        let now = self.now();
        loop {
            let view = self.me().armed.clone();
            match view.map_or(MayGrow::Look, |view| view.may_grow(&key, now, PATTERN_LEASE)) {
                MayGrow::Yes => return Some(()),
                MayGrow::NotBefore(_) => return None,
                MayGrow::Look => self.read_patterns(),
            }
        }
    }

    fn read_patterns(&mut self) {
        let (armed, asked_at) = (Armed::clone(&self.state.armed), self.asks_at(None));
        self.me_mut().armed = Some(Arc::new(ArmedView { armed, asked_at }));
    }

    fn is_leased(&self, view: &ArmedView) -> bool {
        self.weakened.patterns_are_leased || view.is_valid(self.now(), PATTERN_LEASE)
    }

    /// The operator stores a pattern without a time.
    pub(crate) fn arm(&mut self) -> Option<()> {
        self.state.armed = Arc::new(Armed::default().with(KeyPattern::All, None));
        self.go_to(Step::Arming)
    }

    /// The operator sets the time from which the pattern counts.
    pub(crate) fn set_time(&mut self) -> Option<()> {
        let wait = PATTERN_LEASE + Duration::from_secs(u64::from(self.scenario.validity));
        let mut from = counts_from(self.now(), wait);
        if self.weakened.counts_once_visible {
            // The time was taken first, and storing the pattern took as long as the wait.
            from -= wait.as_secs() + 1;
        }
        self.state.armed = Arc::new(Armed::default().with(KeyPattern::All, Some(from)));
        self.finish()
    }

    /// The operator removes the pattern, if it does not count soon.
    pub(crate) fn disarm(&mut self) -> Option<()> {
        let by = removable_from(self.now(), PATTERN_LEASE);
        let counts =
            self.state.armed.patterns().any(|(_, from)| from.is_some_and(|from| from <= by));
        if !counts || self.weakened.disarmed_before_it_counts {
            self.state.armed = Arc::default();
        }
        self.finish()
    }

    /// Another program gets the patterns, unless it has them within their lease.
    pub(crate) fn begin_plain(&mut self, value: Value) -> Option<()> {
        if !self.me().armed.as_ref().is_some_and(|view| self.is_leased(view)) {
            self.read_patterns();
        }
        self.go_to(Step::Plain(value))
    }

    /// Another program writes, if the patterns that it has read do not match, and their lease lasts.
    /// Between the two it may have been frozen.
    pub(crate) fn send_plain(&mut self, value: Value) -> Option<()> {
        let view = self.me().armed.clone()?;
        if view.armed.matches(&Self::partition_key()) {
            return self.finish();
        }
        if !self.is_leased(&view) {
            return self.go_to(Step::Idle);
        }
        self.invoke(self.key(), Kind::Write(value));
        let any = Condition::AbsentOrBelow(Version::new(u64::from(u32::MAX), 0, 0));
        let effect = Effect::Put { version: Version::NONE, write_id: None };
        let request = Request::unmarked(effect, any);
        self.send(ShardNumber::FIRST, self.key(), Content::of(Some(value)), request);
        self.go_to(Step::PlainSent)
    }

    /// Another program gets the response to its write.
    pub(crate) fn plain_written(&mut self) -> Option<()> {
        self.respond(self.key(), Outcome::Done);
        self.finish()
    }
}
