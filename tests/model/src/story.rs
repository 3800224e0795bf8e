//! Readable traces.

use std::cell::RefCell;
use std::fmt;

use sharding::ShardNumber;
use sharding::internal::protocol::copies::{Answer, Effect, Request};
use sharding::internal::protocol::expressed::{Action, Base, NewVersion};
use sharding::internal::{protocol::layout::Layout, protocol::version::Version};

use super::expressing::Asked;
use super::state::{EPOCH, Stored, Value};

/// The log of a step; silent during the search.
#[derive(Debug)]
pub(crate) struct Story(Option<RefCell<Vec<String>>>);

impl Story {
    pub(crate) const fn silent() -> Self {
        Self(None)
    }

    pub(crate) const fn open() -> Self {
        Self(Some(RefCell::new(Vec::new())))
    }

    pub(crate) fn log(&self, line: fmt::Arguments<'_>) {
        if let Some(lines) = &self.0 {
            lines.borrow_mut().push(line.to_string());
        }
    }

    /// A request about an item was applied on a shard, which now stores this.
    pub(crate) fn applied(&self, place: ShardNumber, stored: Option<&Stored>) {
        self.log(format_args!("shard {place} now holds {}", stored_text(stored)));
    }

    /// A request about an item was rejected on a shard, which stores this.
    pub(crate) fn rejected(&self, place: ShardNumber, stored: Option<&Stored>) -> Answer {
        self.log(format_args!("rejected on shard {place}, which stores {}", stored_text(stored)));
        Answer::Refused(stored.map(|stored| stored.copy.clone()))
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.as_ref().map(RefCell::borrow);
        f.write_str(&lines.map(|lines| lines.join("; ")).unwrap_or_default())
    }
}

/// The version's era, and its second on the writer's clock.
fn version_text(version: Version) -> String {
    let second = i128::from(version.epoch_seconds()) - i128::from(EPOCH);
    format!("era {} at {second} s", version.era())
}

/// A stored copy, or "nothing".
pub(crate) fn stored_text(stored: Option<&Stored>) -> String {
    let version = stored.map(|stored| version_text(stored.copy.version)).unwrap_or_default();
    match stored.map(|stored| stored.value) {
        None => "nothing".to_owned(),
        Some(None) => format!("a tombstone of {version}"),
        Some(Some(value)) => format!("{value} of {version}"),
    }
}

pub(crate) fn value_text(value: Option<Value>) -> String {
    value.map_or("nothing".to_owned(), String::from)
}

pub(crate) fn shards_text(shards: &[ShardNumber]) -> String {
    let numbers: Vec<String> = shards.iter().map(|shard| shard.to_string()).collect();
    format!("shards {}", numbers.join(", "))
}

pub(crate) fn asked_text(asked: &Asked) -> String {
    match asked {
        Asked::Plain(request) => request_text(request),
        Asked::Expressed { request, .. } => {
            let action = match &request.action {
                Action::Put(version) => format!("a put of {}", version_text(*version)),
                Action::Update(NewVersion::Is(version)) => {
                    format!("an update of {}", version_text(*version))
                }
                Action::Update(NewVersion::StepAbove(_)) => "an update by one step".to_owned(),
                Action::Bury { version, .. } => {
                    format!("a tombstone of {}", version_text(*version))
                }
                Action::Remove => "a plain delete".to_owned(),
                Action::Nothing => "a delete of nothing".to_owned(),
                Action::Pull(from, version) => {
                    format!("a pull from shard {from} as {}", version_text(*version))
                }
            };
            let base = match request.base {
                Base::AbsentOrBelow(below) => format!("nothing or below {}", version_text(below)),
                Base::AbsentOrItem => "nothing or an item".to_owned(),
                Base::Item => "an item".to_owned(),
                Base::OfEra(era, _) => format!("an item of era {era}"),
                Base::Exactly(version) => format!("the item of {}", version_text(version)),
                Base::Tombstone(version) => format!("the tombstone of {}", version_text(version)),
                Base::Absent => "nothing".to_owned(),
            };
            format!("{action} on {base}")
        }
    }
}

pub(crate) fn request_text(request: &Request) -> String {
    match &request.effect {
        Effect::Put { version, .. } => format!("an item of {}", version_text(*version)),
        Effect::Bury { version, .. } => format!("a tombstone of {}", version_text(*version)),
        Effect::Remove => "a plain delete".to_owned(),
        Effect::Add { .. } => "an update in place".to_owned(),
    }
}

/// Generation, era, widths and phase.
pub(crate) fn layout_text(layout: &Layout) -> String {
    let phase = match (layout.closing, layout.draining) {
        (Some(to), _) => format!(", closing to {to}"),
        (None, true) => ", draining".to_owned(),
        (None, false) => String::new(),
    };
    let widths: Vec<String> = layout.widths.iter().map(ToString::to_string).collect();
    let (generation, era) = (layout.generation, layout.era);
    let (width, read) = (layout.number_of_shards, layout.read_shards);
    let settled = if layout.settled { ", settled" } else { "" };
    let widths = widths.join(" ");
    format!(
        "generation {generation}, era {era}, width {width}, read width {read}, widths {widths}{phase}{settled}"
    )
}
