//! The states of an instance's relief of the key.

use std::time::Duration;

use super::attempt::Attempt;
use super::key::Entry;

/// The state of an instance's relief of the key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Relief {
    Idle,
    /// The instance was throttled, and waits until it has enough evidence.
    Gathering {
        since: Duration,
        until: Duration,
    },
    /// The instance needs a view that was requested after `since`.
    Looking {
        since: Duration,
        then: Then,
    },
    /// The instance reads whether the table is still known to be short of partitions.
    ReadingShortage {
        attempt: Attempt,
    },
    /// The instance adds its evidence to the shared evidence.
    Adding {
        attempt: Attempt,
        until: Duration,
    },
    /// The instance waits for others to add their evidence.
    Added {
        until: Duration,
    },
    /// The instance reads the shared evidence.
    ReadingEvidence {
        attempt: Attempt,
    },
    /// The instance reads the key's item.
    Reading {
        why: Why,
        attempt: Attempt,
    },
    /// The instance has changed the item and publishes the change: it reads the number of copies,
    /// and writes the copies.
    Publishing {
        entry: Entry,
        attempt: Attempt,
    },
    /// The instance has closed the key.
    Closed {
        until: Duration,
        generation: u64,
    },
    /// The instance has found a closing in the item that its page did not show.
    WaitingOut {
        until: Duration,
        generation: u64,
    },
}

/// The next action of an instance if its view shows no closing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Then {
    /// Add its evidence, which is too little for its own decision.
    Add,
    /// Read whether the table is still short of partitions, and then add its evidence.
    ReadShortage,
    ReadEvidence,
    Decide,
}

/// The purpose of a read of the key's item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Why {
    /// A decision.
    Decide,
    /// The takeover of a closing that the page has shown for longer than a change takes.
    TakeOver { generation: u64 },
    /// The takeover of a closing that the item has shown for longer than a change takes.
    WaitOut { generation: u64 },
}
