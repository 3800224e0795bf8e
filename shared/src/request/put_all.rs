//! Storing many items.

use super::{Sent, Within, within};
use crate::client::ShardedTable;
use crate::client::entry::Written;
use crate::client::error::{InvalidRequest, WriteError};
use crate::core::value::Item;

/// See [`ShardedTable::put_all`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct PutAll {
    table: ShardedTable,
    items: Vec<Result<Item, InvalidRequest>>,
    within: Within,
}

within!(PutAll);

impl PutAll {
    pub(crate) fn new(table: ShardedTable, items: Vec<Result<Item, InvalidRequest>>) -> Self {
        Self { table, items, within: Within::default() }
    }
}

impl IntoFuture for PutAll {
    type Output = Vec<Result<Written, WriteError>>;
    type IntoFuture = Sent<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let deadline = self.within.deadline(self.table.config());
            let good: Vec<Item> =
                self.items.iter().filter_map(|item| item.as_ref().ok()).cloned().collect();
            let mut stored = self.table.engine().put_all(good, false, deadline).await.into_iter();
            let results = self.items.into_iter().map(|item| {
                let sort_key = item?.sort_key;
                let written = stored.next().expect("there is a result for each item");
                written.map(|written| Written::of(written, sort_key)).map_err(WriteError::of)
            });
            results.collect()
        })
    }
}
