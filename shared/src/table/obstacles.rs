//! What stands against arming keys of a table that other programs use.

use aws_sdk_dynamodb::types::builders::TagBuilder;
use aws_sdk_dynamodb::types::{KeyType, TableDescription, Tag};

use crate::table::error::TableError;
use crate::table::{Table, Tables};

/// The tag of the main table that names its metadata table.
const METADATA_TAG: &str = "dynamodb-write-sharding:metadata-table";

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
    /// The table's tag names another metadata table: another deployment of the product writes keys
    /// of the table, and neither would know where the other one puts their items.
    Metadata,
}

impl ArmingObstacle {
    /// Every obstacle with its name.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("replicas", Self::Replicas),
        ("stream", Self::Stream),
        ("index", Self::Index),
        ("metadata", Self::Metadata),
    ];

    /// `replicas`, `stream`, `index` or `metadata`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(_, named)| *named == self).map_or("", |(name, _)| *name)
    }
}

/// The tag of a main table with this metadata table.
pub(super) fn metadata_tag(metadata_table: &str) -> TagBuilder {
    Tag::builder().key(METADATA_TAG).value(metadata_table)
}

impl Tables {
    pub(crate) async fn arming_obstacles(&self) -> Result<Vec<ArmingObstacle>, TableError> {
        let Some(table) = self.described().await? else { return Ok(Vec::new()) };
        let sorts_by_key = table.global_secondary_indexes().iter().any(|index| {
            index.key_schema().iter().any(|element| {
                *element.key_type() == KeyType::Range
                    && element.attribute_name() == self.config.partition_key_name
            })
        });
        let has_stream = table.stream_specification().is_some_and(|it| it.stream_enabled());
        let tagged = self.tagged_metadata_table(table.table_arn.as_deref()).await?;
        let found = [
            (!table.replicas().is_empty(), ArmingObstacle::Replicas),
            (has_stream, ArmingObstacle::Stream),
            (sorts_by_key, ArmingObstacle::Index),
            (
                tagged.is_some_and(|it| it != self.config.metadata_table_name),
                ArmingObstacle::Metadata,
            ),
        ];
        Ok(found.into_iter().filter_map(|(is_there, it)| is_there.then_some(it)).collect())
    }

    /// Tags the main table with the name of its metadata table. A server that states no ARN of the
    /// table has no tags either.
    pub(crate) async fn tag(&self) -> Result<(), TableError> {
        let described = self.described().await?;
        let Some(arn) = described.and_then(|table| table.table_arn) else { return Ok(()) };
        let tag = metadata_tag(&self.config.metadata_table_name);
        let tag = tag.build().map_err(|error| TableError::Rejected(error.to_string().into()))?;
        let tag = self.client.tag_resource().resource_arn(arn).tags(tag);
        self.ask(Table::Main, tag.send()).await.map(drop)
    }

    async fn described(&self) -> Result<Option<TableDescription>, TableError> {
        let describe = self.client.describe_table().table_name(&self.config.table_name);
        Ok(self.ask(Table::Main, describe.send()).await?.table)
    }

    /// The metadata table that the main table's tag names.
    async fn tagged_metadata_table(&self, arn: Option<&str>) -> Result<Option<String>, TableError> {
        let Some(arn) = arn else { return Ok(None) };
        let mut next = None;
        loop {
            let list = self.client.list_tags_of_resource().resource_arn(arn).set_next_token(next);
            let listed = self.ask(Table::Main, list.send()).await?;
            if let Some(tag) = listed.tags().iter().find(|tag| tag.key() == METADATA_TAG) {
                return Ok(Some(tag.value().to_owned()));
            }
            next = listed.next_token;
            if next.is_none() {
                return Ok(None);
            }
        }
    }
}
