//! The end of a read: whether what it has seen may be told.

use super::view::{Moment, View};
use std::time::Duration;

/// What becomes of a read whose last response is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadEnd {
    /// It stands.
    Stands,
    /// Its view has run out: get one that is requested from now on, and ask again.
    Look,
    /// A width has changed meanwhile: read again under the newer view.
    Again,
    /// It has taken longer than a drain waits for reads: it fails.
    TooLong,
}

/// Whether a read that began at `began` and asked by `view` stands now; `newer` is a view that was requested after its last response.
pub fn read_end(
    (began, longest): (Moment, Duration),
    (view, lease): (&View, Duration),
    newer: Option<&View>,
    now: Moment,
) -> ReadEnd {
    // Frozen for a while perhaps, it may have looked at a home before an item was copied there, and at the old place after it was deleted.
    if now.since(began).is_none_or(|took| took > longest) {
        return ReadEnd::TooLong;
    }
    match newer {
        _ if view.is_valid(now, lease) => ReadEnd::Stands,
        None => ReadEnd::Look,
        Some(newer) if view.still_holds(newer) => ReadEnd::Stands,
        Some(_) => ReadEnd::Again,
    }
}
