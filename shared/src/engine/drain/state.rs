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
    pub(in crate::engine) began: u64,
    pub(in crate::engine) pass: Pass<SortKey, StoredCopy>,
    /// The next source to read, and the sort key to continue after.
    pub(in crate::engine) next: (ShardNumber, Option<SortKey>),
    /// The remembered copies must be deleted before more is read.
    pub(in crate::engine) deletes: bool,
    /// This round over the sources copied or found something, so another round must follow.
    pub(in crate::engine) found: bool,
    /// When an item that is left to expire will have expired.
    pub(in crate::engine) expiring_until: Option<u64>,
}

impl OwnDrain {
    /// Begins a pass under this instance's own mark.
    pub(in crate::engine) fn begin(marked: &ShardMetadata, inner: &Inner, now: u64) -> Self {
        let (pass, next) =
            (Pass::begin(marked, inner.always_first().is_some()), (ShardNumber::FIRST, None));
        Self { began: now, pass, next, deletes: false, found: false, expiring_until: None }
    }
}
