//! Reads: every shard is asked on its own, so a read of several shards is not of one instant.

use std::ops::Range;

use super::monitor::{Kind, Outcome};
use super::program::ReadOp;
use super::state::{BARE, Few, Metadata, Reading, Scan, State, Step, View, widths};
use super::{Blame, ProtocolModel, Story};

impl ProtocolModel {
    /// A read begins, or the next page of a scan.
    pub(crate) fn read(&self, state: &mut State, actor: usize, op: ReadOp, story: &mut Story) -> Option<()> {
        let scan = match &state.actors[actor].step {
            Step::BetweenPages(scan) => scan.clone(),
            Step::Idle => {
                let stands = |sort_key: &u8| state.monitors[usize::from(*sort_key)].certainly_stands();
                let stood =
                    if op == ReadOp::Scan { self.scope(op, None).filter(stands).collect() } else { Few::default() };
                Scan { stood, ..Scan::default() }
            }
            Step::Served(_)
            | Step::Prepared { .. }
            | Step::Sent(_)
            | Step::Reading(_)
            | Step::WaitingOutViews { .. }
            | Step::Watching { .. }
            | Step::Draining { .. }
            | Step::Crashed { .. } => return None,
        };
        for sort_key in self.scope(op, scan.after) {
            self.invoke(state, actor, sort_key, Kind::Read);
        }
        let view = state.actors[actor].view;
        let leased = |view: &View| !self.rules.read_lease || view.is_valid(state.now, self.scenario.lease);
        let (todo, asking) = match view.filter(leased) {
            Some(view) => (self.shards(op, widths(view.metadata)), None),
            // Without a valid view: the shards that are known already and the metadata in parallel.
            None => {
                let known = view.map_or_else(|| self.sources(1), |view| self.shards(op, widths(view.metadata)));
                (known, Some(state.now))
            }
        };
        let parallel = if asking.is_some() { " and the metadata" } else { "" };
        story.tell(format_args!("{} begins its {op}: asks shards {todo:?}{parallel}", self.name(actor)));
        let best = vec![None; usize::from(self.scenario.sort_keys)];
        let reading = Reading { scan, todo, done: Few::default(), best, asking, began: state.now };
        state.actors[actor].step = Step::Reading(reading);
        Some(())
    }

    /// The sort keys that an operation looks at.
    fn scope(&self, op: ReadOp, after: Option<u8>) -> Range<u8> {
        match op {
            ReadOp::Get { sort_key } => sort_key..sort_key + 1,
            ReadOp::Query | ReadOp::Scan => after.map_or(0, |after| after + 1)..self.scenario.sort_keys,
        }
    }

    pub(crate) fn shards(&self, op: ReadOp, metadata: Metadata) -> Few {
        match op {
            ReadOp::Get { sort_key } => self.candidates(metadata, sort_key).without(BARE).union(self.sources(0)),
            ReadOp::Query | ReadOp::Scan => self.sources(metadata.read_width),
        }
    }

    /// What a query asks under a read width: in a table that is adopted, the bare key too.
    fn sources(&self, read_width: u8) -> Few {
        let shards = Few::up_to(read_width);
        if self.scenario.adopting && self.rules.reads_look_at_bare { shards.with(BARE) } else { shards }
    }

    /// The read under way, unless it has taken longer than the longest read: then it gets no further.
    fn reading(&self, state: &State, actor: usize) -> Option<Reading> {
        let Step::Reading(reading) = &state.actors[actor].step else { return None };
        (state.now <= reading.began.saturating_add(self.scenario.longest_read)).then(|| reading.clone())
    }

    /// One shard answers.
    pub(crate) fn read_shard(&self, state: &mut State, actor: usize, shard: u8, story: &mut Story) -> Option<()> {
        let mut reading = self.reading(state, actor)?;
        let op = self.op(state, actor)?.as_read()?;
        let mut found = Vec::new();
        for sort_key in self.scope(op, reading.scan.after) {
            let copy = state.copy(sort_key, shard);
            let best = &mut reading.best[usize::from(sort_key)];
            *best = copy.max(*best);
            found.extend(copy.map(|stored| stored.value));
            // A page has room for one item, so a shard is asked for one.
            if op == ReadOp::Scan && copy.is_some() {
                break;
            }
        }
        story.tell(format_args!("{} hears from shard {shard}: {found:?}", self.name(actor)));
        reading.todo = reading.todo.without(shard);
        reading.done = reading.done.with(shard);
        self.go_on(state, actor, op, reading, story);
        Some(())
    }

    /// The metadata that was asked for in parallel arrives: what the fresh view adds is asked, too.
    pub(crate) fn look_again(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let mut reading = self.reading(state, actor)?;
        let op = self.op(state, actor)?.as_read()?;
        let asked_at = reading.asking.take()?;
        let metadata = widths(state.metadata);
        state.actors[actor].view = Some(View { metadata: state.metadata, asked_at });
        reading.todo = reading.todo.union(self.shards(op, metadata).minus(reading.done));
        story.tell(format_args!("{} hears the metadata: {metadata}", self.name(actor)));
        self.go_on(state, actor, op, reading, story);
        Some(())
    }

    /// Ends the read, or the page, when nothing is missing any more.
    fn go_on(&self, state: &mut State, actor: usize, op: ReadOp, reading: Reading, story: &mut Story) {
        if !reading.todo.is_empty() || reading.asking.is_some() {
            state.actors[actor].step = Step::Reading(reading);
            return;
        }
        let found = |sort_key: u8| reading.best[usize::from(sort_key)].map(|stored| stored.value);
        let scope = self.scope(op, reading.scan.after);
        if op != ReadOp::Scan {
            for sort_key in scope {
                story.tell(format_args!("{}'s {op} returns {:?}", self.name(actor), found(sort_key)));
                self.respond(state, actor, sort_key, Outcome::Found(found(sort_key)), Blame::Read);
            }
            state.finish(actor);
            return;
        }
        // The page's one item is the lowest; up to it, the page says what is there and what is not.
        let item = scope.clone().find(|sort_key| found(*sort_key).is_some());
        story.tell(format_args!("{}'s page holds {:?}", self.name(actor), item.and_then(found)));
        for sort_key in scope {
            if item.is_none_or(|item| sort_key <= item) {
                self.respond(state, actor, sort_key, Outcome::Found(found(sort_key)), Blame::Scan);
            } else {
                self.cancel(state, actor, sort_key);
            }
        }
        let mut scan = reading.scan;
        scan.listed.extend(item);
        if let Some(item) = item.filter(|item| item + 1 < self.scenario.sort_keys) {
            scan.after = Some(item);
            state.actors[actor].step = Step::BetweenPages(scan);
            return;
        }
        let listed: Few = scan.listed.iter().copied().collect();
        let in_order = scan.listed.windows(2).all(|pair| pair[0] < pair[1]);
        if !in_order || !scan.stood.minus(listed).is_empty() {
            state.broken.scan = true;
        }
        state.finish(actor);
    }
}
