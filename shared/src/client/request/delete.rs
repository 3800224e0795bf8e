//! Deleting an item.

use crate::client::ShardedTable;
use crate::client::request::{Target, Within, conditional, sent_as};
use crate::engine::Deadline;
use crate::engine::error::{InvalidRequest, WriteError};
use crate::engine::results::Written;
use crate::protocol::tag::Conditions;

/// See [`ShardedTable::delete`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct Delete {
    table: ShardedTable,
    target: Result<Target, InvalidRequest>,
    conditions: Conditions,
    within: Within,
}

sent_as!(Delete, "delete", Result<Written, WriteError>);
conditional!(Delete);

impl Delete {
    pub(crate) fn new(table: ShardedTable, target: Result<Target, InvalidRequest>) -> Self {
        Self { table, target, conditions: Conditions::default(), within: Within::default() }
    }

    async fn send(self, deadline: Deadline) -> Result<Written, WriteError> {
        let Target { partition_key, sort_key } = self.target?;
        let engine = self.table.engine();
        engine.delete_if(&partition_key, &sort_key, &self.conditions, deadline).await
    }
}
