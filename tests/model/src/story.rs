//! Readable traces.

use std::fmt;

use sharding::ShardNumber;
use sharding::internal::protocol::copies::{Effect, Request};
use sharding::internal::{protocol::layout::Layout, protocol::version::Version};

use super::state::{EPOCH, Stored, Value};

/// The log of a step; silent during the search.
#[derive(Debug)]
pub(crate) struct Story(Option<Vec<String>>);

impl Story {
    pub(crate) const fn silent() -> Self {
        Self(None)
    }

    pub(crate) const fn open() -> Self {
        Self(Some(Vec::new()))
    }

    pub(crate) fn log(&mut self, line: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.0 {
            lines.push(line.to_string());
        }
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.as_deref().unwrap_or_default().join("; "))
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
