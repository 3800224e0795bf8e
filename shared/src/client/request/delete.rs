//! Deleting an item.

use tracing::Instrument;

use crate::client::ShardedTable;
use crate::client::request::{Sent, Target, Within, span, within};
use crate::engine::error::{InvalidRequest, WriteError};
use crate::engine::results::Written;
use crate::protocol::tag::{Conditions, ETag};

/// See [`ShardedTable::delete`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct Delete {
    table: ShardedTable,
    target: Result<Target, InvalidRequest>,
    conditions: Conditions,
    within: Within,
}

within!(Delete);

impl Delete {
    pub(crate) fn new(table: ShardedTable, target: Result<Target, InvalidRequest>) -> Self {
        Self { table, target, conditions: Conditions::default(), within: Within::default() }
    }

    /// Only if the item is still in this state. Otherwise the error is of kind `Precondition` and
    /// has the present tag.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use dynamodb_write_sharding::ETag;
    ///
    /// let refused = table.delete("seats", "14C").if_match(&ETag::new("12")).await;
    /// assert!(refused.is_err(), "there is no item");
    /// # Ok(()) });
    /// ```
    pub fn if_match(mut self, tag: &ETag) -> Self {
        self.conditions = Conditions::unchanged_since(tag);
        self
    }

    /// Only under these conditions. They replace those of [`if_match`](Self::if_match).
    pub fn conditions(mut self, conditions: Conditions) -> Self {
        self.conditions = conditions;
        self
    }
}

impl IntoFuture for Delete {
    type Output = Result<Written, WriteError>;
    type IntoFuture = Sent<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let span = span("delete", &self.table);
        let sent = async move {
            let Target { partition_key, sort_key } = self.target?;
            let deadline = self.within.deadline(self.table.config());
            self.table
                .engine()
                .delete_if(&partition_key, &sort_key, &self.conditions, deadline)
                .await
        };
        Box::pin(sent.instrument(span))
    }
}
