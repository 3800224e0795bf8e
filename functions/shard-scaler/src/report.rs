//! The parts of responses, as types that become JSON at the edge.

use std::fmt::Display;

use serde::Serialize;
use serde_json::Value;
use sharding::PartitionKey;
use sharding::internal::{ScaleError, ScaleOutcome, ShardCount, ShardMetadata};

use crate::event::EventError;
use crate::failure::{self, Failure};

/// The outcome of an event about more than one key.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Handled,
    DryRun,
    Unchanged { reason: String },
}

/// The result for one key. It is also the key's line in the audit log.
#[derive(Debug, Serialize)]
pub(crate) struct KeyReport {
    /// Present if a list has keys of several actions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<KeyAction>,
    pub(crate) partition_key: String,
    #[serde(flatten, serialize_with = "failure::outcome")]
    pub(crate) outcome: Result<KeyOutcome, Failure>,
    /// Throttled requests under the key's present width.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) throttled: Option<u64>,
}

/// The action on a key of an alarm or of a drain.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyAction {
    Open,
    Report,
    Scale,
}

#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum KeyOutcome {
    Scaled {
        from: u32,
        to: u32,
    },
    Unchanged {
        reason: String,
    },
    DryRun(Planned),
    /// The dry run of a drain. It names a width if it would begin a shrink.
    #[serde(rename = "dry-run")]
    WouldDrain {
        to: Option<u32>,
    },
    Begun {
        number_of_shards: u32,
        read_shards: u32,
    },
    Shown {
        metadata: Box<KeyDescription>,
    },
    Waiting {
        until: u64,
    },
    Working {
        items: u64,
    },
    Done {
        from: u32,
        to: u32,
        items: u64,
    },
    #[serde(untagged)]
    Refused(EventError),
}

/// The widths that a dry run would change, if the action names them.
#[derive(Debug, Serialize)]
pub(crate) struct Planned {
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u32>,
}

/// A page of the keys that have metadata.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename = "listed")]
pub(crate) struct Listed {
    pub(crate) keys: Vec<ListedKey>,
    /// The list continues after this key.
    pub(crate) next: Option<String>,
    /// The state of every key that is on no page.
    pub(crate) unlisted: KeyDescription,
}

#[derive(Debug, Serialize)]
pub(crate) struct ListedKey {
    pub(crate) partition_key: String,
    #[serde(flatten)]
    pub(crate) metadata: KeyDescription,
}

/// The state of a key.
#[derive(Debug, Serialize)]
pub(crate) struct KeyDescription {
    number_of_shards: u32,
    read_shards: u32,
    grown: bool,
    /// The fields of keys with metadata only.
    #[serde(flatten)]
    history: Option<KeyHistory>,
}

#[derive(Debug, Serialize)]
struct KeyHistory {
    last_updated: u64,
    shard_history: Vec<String>,
    era: u64,
    generation: u64,
    draining: bool,
    drain: Option<DrainProgress>,
    settled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    closing: Option<u32>,
}

#[derive(Debug, Serialize)]
struct DrainProgress {
    began: u64,
    busy_until: Option<u64>,
    in_doubt: bool,
    emptied_at: Option<u64>,
}

impl KeyDescription {
    /// `first` is the number of shards of a key without metadata, which has never grown.
    pub(crate) fn of(metadata: Option<&ShardMetadata>, first: ShardCount) -> Self {
        let Some(metadata) = metadata else {
            let (number_of_shards, read_shards) = (first.get(), first.get());
            return Self { number_of_shards, read_shards, grown: false, history: None };
        };
        let drain = metadata.draining().map(|drain| DrainProgress {
            began: drain.began,
            busy_until: drain.busy_until,
            in_doubt: drain.in_doubt,
            emptied_at: drain.emptied_at,
        });
        let history = KeyHistory {
            last_updated: metadata.last_updated,
            shard_history: metadata.shard_history.to_strings(),
            era: metadata.era,
            generation: metadata.generation,
            draining: drain.is_some(),
            drain,
            settled: metadata.settled,
            closing: metadata.closing().map(ShardCount::get),
        };
        Self {
            number_of_shards: metadata.number_of_shards.get(),
            read_shards: metadata.read_shards.get(),
            grown: metadata.layout().is_listed(first),
            history: Some(history),
        }
    }
}

impl KeyReport {
    pub(crate) fn new(key: &PartitionKey, outcome: Result<KeyOutcome, Failure>) -> Self {
        Self { action: None, partition_key: key.as_str().to_owned(), outcome, throttled: None }
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.outcome.as_ref().err()
    }
}

impl KeyOutcome {
    pub(crate) const fn dry_run(from: Option<u32>, to: Option<u32>) -> Self {
        Self::DryRun(Planned { from, to })
    }

    pub(crate) fn unchanged(reason: impl Display) -> Self {
        Self::Unchanged { reason: reason.to_string() }
    }

    /// The result of changing the key's width.
    pub(crate) fn of(result: Result<ScaleOutcome, ScaleError>) -> Result<Self, Failure> {
        match result {
            Ok(ScaleOutcome::Scaled { from, to }) => {
                Ok(Self::Scaled { from: from.get(), to: to.get() })
            }
            Ok(ScaleOutcome::Unchanged(decision)) => Ok(Self::unchanged(decision)),
            Ok(ScaleOutcome::Superseded) => Ok(Self::unchanged("another actor changed it first")),
            Err(error @ (ScaleError::TooMany { .. } | ScaleError::Lower { .. })) => {
                Ok(Self::Refused(EventError::new("number_of_shards", error)))
            }
            Err(ScaleError::Table(error)) => {
                tracing::error!(%error, "a key could not be scaled");
                Err(Failure::new(&error, error.is_retryable()))
            }
        }
    }
}

/// A response, or a part of one, as JSON.
pub(crate) fn to_json(response: &impl Serialize) -> Value {
    serde_json::to_value(response).expect("every key of its maps is text")
}
