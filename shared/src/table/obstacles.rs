//! What stands against arming keys of a table that other programs use.

use aws_sdk_dynamodb::types::KeyType;

use crate::table::error::TableError;
use crate::table::{Table, Tables, sending};

/// Something of a table that does not fit keys with several shards. Look at it before arming keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArmingObstacle {
    /// It is a global table: replicas in other regions resolve concurrent writes by the last one,
    /// and the product's conditions do not hold between regions.
    Replicas,
    /// It has a stream, whose consumers will see the product's attributes, tombstones and moves.
    Stream,
    /// An index sorts by the table's partition key, and will show the keys of shards.
    Index,
}

impl ArmingObstacle {
    /// Every obstacle with its name.
    pub const NAMES: [(&'static str, Self); 3] =
        [("replicas", Self::Replicas), ("stream", Self::Stream), ("index", Self::Index)];

    /// `replicas`, `stream` or `index`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(_, named)| *named == self).map_or("", |(name, _)| *name)
    }
}

impl Tables {
    pub(crate) async fn arming_obstacles(&self) -> Result<Vec<ArmingObstacle>, TableError> {
        let described = self.client.describe_table().table_name(&self.config.table_name);
        let described = sending(described.send()).await;
        let described = described.map_err(|error| self.failed(Table::Main, error))?;
        let Some(table) = described.table else { return Ok(Vec::new()) };
        let sorts_by_key = table.global_secondary_indexes().iter().any(|index| {
            index.key_schema().iter().any(|element| {
                *element.key_type() == KeyType::Range
                    && element.attribute_name() == self.config.partition_key_name
            })
        });
        let has_stream = table.stream_specification().is_some_and(|it| it.stream_enabled());
        let found = [
            (!table.replicas().is_empty(), ArmingObstacle::Replicas),
            (has_stream, ArmingObstacle::Stream),
            (sorts_by_key, ArmingObstacle::Index),
        ];
        Ok(found.into_iter().filter_map(|(is_there, it)| is_there.then_some(it)).collect())
    }
}
