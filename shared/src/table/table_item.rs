//! The table item: what all processes of a table must agree on, stored in the metadata table under a key that no caller can have.

use aws_sdk_dynamodb::types::AttributeValue;

use super::Tables;
use super::condition::Expression;
use super::error::TableError;
use super::metadata_item::{PROTOCOL, WRITES, number};

/// Its prefix is reserved: no [`PartitionKey`](crate::core::key::PartitionKey) has it.
pub(crate) const TABLE_KEY: &str = "_sharding:table";

/// What the table item says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mode {
    /// What the table takes, by its name in the configuration.
    pub(crate) writes: String,
    /// The number of the protocol.
    pub(crate) protocol: u64,
}

impl Tables {
    /// Reads the mode of the table, strongly consistent. `None` where none is stored yet.
    pub(crate) async fn get_mode(&self) -> Result<Option<Mode>, TableError> {
        let Some(item) = self.get_metadata_item(TABLE_KEY).await? else { return Ok(None) };
        let writes = item.get(WRITES).and_then(|value| value.as_s().ok()).cloned();
        let protocol = item.get(PROTOCOL).and_then(|value| value.as_n().ok()?.parse().ok());
        let mode = writes.zip(protocol).map(|(writes, protocol)| Mode { writes, protocol });
        let damaged = || TableError::Damaged(format!("the item {TABLE_KEY} has no usable {WRITES} and {PROTOCOL}"));
        mode.map(Some).ok_or_else(damaged)
    }

    /// Stores the mode of a table that has none.
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] where it has one.
    pub(crate) async fn store_mode(&self, mode: &Mode) -> Result<(), TableError> {
        let (writes, protocol) = (AttributeValue::S(mode.writes.clone()), number(mode.protocol));
        let absent = Expression::absent(&self.config.partition_key_name);
        let (update, absent) = absent.update([(WRITES, Some(writes)), (PROTOCOL, Some(protocol))]);
        self.update_metadata(TABLE_KEY, update, absent).await?.map_err(|_| TableError::ConditionFailed)
    }
}
