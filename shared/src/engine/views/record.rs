//! A key's item, as this instance knows it.

use crate::protocol::metadata::ShardMetadata;
use crate::protocol::view::{Moment, View};

/// A key's item, as it was read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The metadata. A key without an item has the default.
    pub(crate) metadata: ShardMetadata,
    pub(crate) exists: bool,
    /// Taken before the request was sent.
    pub(crate) asked_at: Moment,
}

impl Record {
    pub(crate) fn view(&self) -> View {
        let layout = self.metadata.layout();
        View { layout, asked_at: self.asked_at }
    }

    pub(crate) fn stored_metadata(&self) -> Option<&ShardMetadata> {
        self.exists.then_some(&self.metadata)
    }
}
