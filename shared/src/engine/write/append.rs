//! An append in an append-only table: a loop of its own, which needs no view.

use std::sync::Arc;

use crate::engine::error::WriteError;
use crate::engine::job::KeyJob;
use crate::engine::write::Written;
use crate::engine::write::run::{Attempts, End};
use crate::protocol::append::{Append, AppendNext, Placed};
use crate::protocol::copies::Answer;
use crate::protocol::view::View;
use crate::protocol::write::Outcome;
use crate::table::LeaseLasts;
use crate::table::error::TableError;
use crate::values::key::{ShardCount, ShardNumber};

pub(super) struct AppendRun<'a> {
    attempts: Attempts<'a>,
    append: Append,
}

impl<'a> AppendRun<'a> {
    pub(super) fn new(attempts: Attempts<'a>, once: bool) -> Self {
        let (inner, tie_breaker) = (attempts.job.inner, attempts.job.tie_breaker());
        let append =
            Append::new(inner.config.write_lease(), tie_breaker, once, inner.environment.now());
        Self { attempts, append }
    }

    pub(super) async fn run(mut self) -> Result<Written, WriteError> {
        let end = self.steps().await;
        self.attempts.end(end).await
    }

    async fn steps(&mut self) -> Result<End, Option<TableError>> {
        let inner = self.attempts.job.inner;
        loop {
            let view = self.usable_view();
            let width = view.as_ref().map_or(ShardCount::ONE, |view| view.layout.number_of_shards);
            self.attempts.avoid_throttled_shards(width);
            let home = if view.is_none() { ShardNumber::FIRST } else { self.home(width) };
            let now = inner.environment.now();
            let (placed, request) = match self.append.next(view.as_deref(), home, now) {
                AppendNext::Done(outcome) => return Ok((outcome, home, view)),
                AppendNext::Send(placed, request) => (placed, request),
            };
            let (shard, _) = placed;
            if !self.attempts.may_go_on() {
                return Err(None);
            }
            let lasts = self.lease(placed);
            let answer = self.attempts.send((shard, width), &request, lasts).await?;
            self.append.answered(placed, &answer);
            if matches!(answer, Answer::Applied | Answer::Refused(_)) {
                self.attempts.version = (answer == Answer::Applied).then_some(self.append.version);
                return Ok((Outcome::Done, shard, view));
            }
            if !self.attempts.pause(width).await {
                return Err(None);
            }
        }
    }

    /// The view to place by. `None` to append on shard 1 without one.
    fn usable_view(&self) -> Option<Arc<View>> {
        let job = &self.attempts.job;
        let lease = job.inner.config.write_lease();
        let now = job.inner.environment.now();
        let known = job.known_view().filter(|view| view.is_valid(now, lease));
        // A throttled append requests a new view in the background, and does not wait for it.
        let renewed = if job.throttled > 0 { job.inner.config.lease() } else { lease };
        job.renew(known.as_deref(), renewed, now);
        known
    }

    /// `None` on shard 1, which remains a place of every item.
    fn lease(&self, (shard, asked_at): Placed) -> Option<LeaseLasts> {
        let asked_at = asked_at.filter(|_| shard != ShardNumber::FIRST)?;
        let inner = Arc::clone(self.attempts.job.inner);
        Some(Arc::new(move || {
            let age = inner.environment.now().since(asked_at);
            age.is_some_and(|age| age < inner.config.write_lease())
        }))
    }

    fn home(&self, width: ShardCount) -> ShardNumber {
        let Attempts { job: KeyJob { inner, key, state, .. }, sort_key, .. } = &self.attempts;
        inner.config.placement.home(key, sort_key, width).unwrap_or_else(|| {
            // Pick two shards, and take the calmer one.
            let draw = || ShardNumber::from_index(inner.environment.below(width.get()));
            let (one, other, now) = (draw(), draw(), inner.environment.now());
            if state.heat(other, now) < state.heat(one, now) { other } else { one }
        })
    }
}
