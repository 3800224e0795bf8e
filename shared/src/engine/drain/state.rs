//! The state of a drain that one instance keeps between two calls.

use crate::engine::Inner;
use crate::protocol::drain::Pass;
use crate::protocol::metadata::ShardMetadata;
use crate::table::StoredCopy;
use crate::values::key::{ShardNumber, SortKey};

/// The state of a drain that this instance keeps between two calls.
#[derive(Debug)]
pub(crate) struct OwnDrain {
    /// Epoch seconds.
    pub(super) began: u64,
    pub(super) pass: Pass<SortKey, StoredCopy>,
    /// The next source to read, and the sort key to continue after.
    pub(super) next: (ShardNumber, Option<SortKey>),
    /// The remembered copies must be deleted before more is read.
    pub(super) deletes: bool,
    /// This round over the sources copied or found something, so another round must follow.
    pub(super) found: bool,
    /// When an item that is left to expire will have expired.
    pub(super) expiring_until: Option<u64>,
}

impl OwnDrain {
    /// Begins a pass under this instance's own mark.
    pub(super) fn begin(marked: &ShardMetadata, inner: &Inner, now: u64) -> Self {
        let pass = Pass::begin(marked, inner.always_first().is_some());
        let next = (ShardNumber::FIRST, None);
        Self { began: now, pass, next, deletes: false, found: false, expiring_until: None }
    }
}
