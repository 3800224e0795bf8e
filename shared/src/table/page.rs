//! The pages of the directory, as items of the metadata table under keys that no caller can have.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::Tables;
use super::condition::Expression;
use super::error::TableError;
use super::metadata_item::{COPIES, number};
use crate::core::key::PartitionKey;
use crate::protocol::layout::Layout;

/// What the attribute of an entry is called before its key.
pub(crate) const ENTRY_PREFIX: &str = "key:";

/// One copy of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PageCopy {
    /// From 0.
    pub(crate) page: u32,
    /// From 0.
    pub(crate) copy: u32,
}

impl PageCopy {
    fn key(self) -> String {
        format!("_sharding:page:{}:{}", self.page, self.copy)
    }
}

/// A page as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredPage {
    /// How many copies may be read. `None` where the page is not complete: a key that it does not list may have grown.
    pub(crate) copies: Option<u32>,
    /// `None` for an entry that cannot be read.
    pub(crate) entries: HashMap<PartitionKey, Option<Layout>>,
    /// Its size in bytes.
    pub(crate) bytes: usize,
}

impl Tables {
    /// Reads a copy of a page, strongly consistent. `None` where it is missing.
    pub(crate) async fn get_page(&self, at: PageCopy) -> Result<Option<StoredPage>, TableError> {
        let Some(item) = self.get_metadata_item(&at.key()).await? else { return Ok(None) };
        let mut page = StoredPage { copies: None, entries: HashMap::with_capacity(item.len()), bytes: 0 };
        for (name, value) in item {
            let text = value.as_s().map_or("", String::as_str);
            page.bytes += name.len() + text.len();
            if name == COPIES {
                page.copies = value.as_n().ok().and_then(|number| number.parse().ok()).filter(|copies| *copies > 0);
            } else if let Some(key) = name.strip_prefix(ENTRY_PREFIX).and_then(|key| PartitionKey::new(key).ok()) {
                page.entries.insert(key, Layout::from_entry(text));
            }
        }
        Ok(Some(page))
    }

    /// Writes an entry, unless one of as high a generation stands. A page that is missing is made, and stays incomplete.
    pub(crate) async fn put_entry(&self, at: PageCopy, key: &PartitionKey, layout: &Layout) -> Result<(), TableError> {
        // Any entry of this generation is greater than the generation by itself.
        let generation = AttributeValue::S(layout.entry_generation());
        let lower = Expression::of("attribute_not_exists(#u0) OR #u0 < :g").value(":g", generation);
        let name = format!("{ENTRY_PREFIX}{}", key.as_str());
        let (update, lower) = lower.update([(name.as_str(), Some(AttributeValue::S(layout.to_entry())))]);
        self.update_page(at, update, lower).await
    }

    /// Marks a page as complete, with the number of copies that may be read.
    pub(crate) async fn mark_page(&self, at: PageCopy, copies: u32) -> Result<(), TableError> {
        let fewer = Expression::of("attribute_not_exists(#u0) OR #u0 < :u0");
        let (update, fewer) = fewer.update([(COPIES, Some(number(copies)))]);
        self.update_page(at, update, fewer).await
    }

    async fn update_page(&self, at: PageCopy, update: String, condition: Expression) -> Result<(), TableError> {
        let (condition, names, values) = condition.into_parts();
        let request = self
            .client
            .update_item()
            .table_name(&self.config.metadata_table_name)
            .set_key(Some(self.metadata_key(&at.key())))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(values);
        // Boxed: the SDK's futures nest deeply.
        match Box::pin(request.send()).await.map_err(TableError::from_sdk) {
            // What stands is as high.
            Ok(_) | Err(TableError::ConditionFailed) => Ok(()),
            // Not the caller's request, nor an item of the key: the page is as large as an item can be.
            Err(TableError::Rejected(why)) => Err(TableError::Unusable(format!("{} takes no more: {why}", at.key()))),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::KeyError;

    #[test]
    fn no_caller_has_the_key_of_a_page() {
        let at = PageCopy { page: 3, copy: 12 };
        assert_eq!(at.key(), "_sharding:page:3:12");
        assert_eq!(PartitionKey::new(&at.key()), Err(KeyError::Reserved));
    }
}
