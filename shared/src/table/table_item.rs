//! The table item: the settings that all processes of a table must share, stored in the metadata
//! table under a key that no caller can have.

use aws_sdk_dynamodb::types::AttributeValue;

use super::condition::Expression;
use super::error::TableError;
use super::metadata_item::number;
use super::names::{COPIES, DIRECTORY_MADE, PAGES, PROTOCOL, REBUILDING, WRITES};
use super::{Table, Tables};

/// The prefix is reserved: no [`PartitionKey`](crate::core::key::PartitionKey) has it.
pub(crate) const TABLE_KEY: &str = "_sharding:table";

/// The values of the table item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Which writes the table accepts, by the name in the configuration.
    pub(crate) writes: String,
    /// The version of the protocol.
    pub(crate) protocol: u64,
}

/// The table item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableItem {
    pub(crate) mode: Mode,
    /// The number of pages of the directory; 0 if an earlier version created the item.
    pub(crate) pages: u32,
    /// The number of copies that are written of each page.
    pub(crate) copies: u32,
    /// Every page was created once, so a missing page is lost.
    pub(crate) directory_made: bool,
    /// The metadata is being rebuilt, so no other process may use the table.
    pub(crate) rebuilding: bool,
}

impl Tables {
    /// Fails while the metadata is being rebuilt.
    pub(crate) fn check_rebuilt(&self, table: &TableItem) -> Result<(), TableError> {
        if table.rebuilding {
            let why = "it is being rebuilt: start again when that has ended";
            return Err(self.unusable(Table::Metadata, why));
        }
        Ok(())
    }

    /// Reads the table item, strongly consistent. `None` where there is none.
    pub(crate) async fn get_table_item(&self) -> Result<Option<TableItem>, TableError> {
        let Some(item) = self.get_metadata_item(TABLE_KEY).await? else { return Ok(None) };
        let writes = item.get(WRITES).and_then(|value| value.as_s().ok()).cloned();
        let number = |name: &str| item.get(name)?.as_n().ok()?.parse::<u64>().ok();
        let small = |name: &str| {
            number(name).and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
        };
        let mode = writes.zip(number(PROTOCOL)).map(|(writes, protocol)| Mode { writes, protocol });
        let directory_made = item.contains_key(DIRECTORY_MADE);
        let rebuilding = item.contains_key(REBUILDING);
        let (pages, copies) = (small(PAGES), small(COPIES));
        let table = mode.map(|mode| TableItem { mode, pages, copies, directory_made, rebuilding });
        let damaged = || {
            TableError::Damaged(format!(
                "the item {TABLE_KEY} has no usable {WRITES} and {PROTOCOL}"
            ))
        };
        table.map(Some).ok_or_else(damaged)
    }

    /// Stores the item in a table that has none.
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] if the table has one.
    pub(crate) async fn store_table_item(&self, table: &TableItem) -> Result<(), TableError> {
        let Mode { writes, protocol } = &table.mode;
        let absent = Expression::absent(&self.config.partition_key_name);
        let (update, absent) = absent.update([
            (WRITES, Some(AttributeValue::S(writes.clone()))),
            (PROTOCOL, Some(number(protocol))),
            (PAGES, Some(number(table.pages))),
            (COPIES, Some(number(table.copies))),
            (REBUILDING, table.rebuilding.then_some(AttributeValue::Bool(true))),
        ]);
        self.update_metadata(TABLE_KEY, update, absent)
            .await?
            .map_err(|_| TableError::ConditionFailed)
    }

    /// Records that every page was created, and that the metadata is complete.
    pub(crate) async fn note_directory_made(&self) -> Result<(), TableError> {
        let exists =
            Expression::of("attribute_exists(#p)").name("#p", &self.config.partition_key_name);
        let made = (DIRECTORY_MADE, Some(AttributeValue::Bool(true)));
        let (update, exists) = exists.update([made, (REBUILDING, None)]);
        self.update_metadata(TABLE_KEY, update, exists)
            .await?
            .map_err(|_| TableError::ConditionFailed)
    }

    /// Raises the number of copies that are written. A lower number changes nothing.
    pub(crate) async fn raise_copies(&self, copies: u32) -> Result<(), TableError> {
        let fewer = Expression::of("#u0 < :u0");
        let (update, fewer) = fewer.update([(COPIES, Some(number(copies)))]);
        match self.update_metadata(TABLE_KEY, update, fewer).await {
            Ok(_) | Err(TableError::ConditionFailed) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
