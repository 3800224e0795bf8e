//! The pages of the directory, as items of the metadata table under keys that no caller can have.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::attributes::SdkItem;
use super::condition::Expression;
use super::error::{Cause, TableError};
use super::metadata_item::number;
use super::names::{COPIES, ENTRY_PREFIX, WARM_THROUGHPUT};
use super::{Table, Tables};
use crate::core::key::PartitionKey;
use crate::core::throughput::WarmThroughput;
use crate::protocol::layout::Layout;

/// One copy of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PageCopy {
    /// The page, from 0.
    pub(crate) page: u32,
    /// The copy, from 0.
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
    /// How many copies may be read. `None` if the page is not complete: then a key that it does not
    /// list may have grown.
    pub(crate) copies: Option<u32>,
    /// `None` for an entry that cannot be parsed.
    pub(crate) entries: HashMap<PartitionKey, Option<Layout>>,
    /// The table's warm throughput. `None` if it was not published or cannot be parsed.
    pub(crate) warm: Option<WarmThroughput>,
    /// Its size in bytes.
    pub(crate) bytes: usize,
}

impl StoredPage {
    fn of(item: SdkItem) -> Self {
        let mut page = Self {
            copies: None,
            entries: HashMap::with_capacity(item.len()),
            warm: None,
            bytes: 0,
        };
        for (name, value) in item {
            let text = value.as_s().map_or("", String::as_str);
            page.bytes += name.len() + text.len();
            if name == COPIES {
                page.copies = value
                    .as_n()
                    .ok()
                    .and_then(|number| number.parse().ok())
                    .filter(|copies| *copies > 0);
            } else if name == WARM_THROUGHPUT {
                page.warm = warm_from_text(text);
            } else if let Some(key) =
                name.strip_prefix(ENTRY_PREFIX).and_then(|key| PartitionKey::new(key).ok())
            {
                page.entries.insert(key, Layout::from_entry(text));
            }
        }
        page
    }
}

fn warm_to_text(warm: WarmThroughput) -> String {
    format!("{} {}", warm.write_units, warm.read_units)
}

fn warm_from_text(text: &str) -> Option<WarmThroughput> {
    let (write_units, read_units) = text.split_once(' ')?;
    Some(WarmThroughput {
        write_units: write_units.parse().ok()?,
        read_units: read_units.parse().ok()?,
    })
}

impl Tables {
    /// Reads a copy of a page, strongly consistent. `None` where it is missing.
    pub(crate) async fn get_page(&self, at: PageCopy) -> Result<Option<StoredPage>, TableError> {
        Ok(self.get_metadata_item(&at.key()).await?.map(StoredPage::of))
    }

    /// Writes an entry, unless the stored one has the same or a higher generation. A missing page
    /// is created, and stays incomplete.
    pub(crate) async fn put_entry(
        &self,
        at: PageCopy,
        key: &PartitionKey,
        layout: &Layout,
    ) -> Result<(), TableError> {
        // Any entry of this generation is greater than the bare generation.
        let generation = AttributeValue::S(layout.entry_generation());
        let lower = Expression::of("attribute_not_exists(#u0) OR #u0 < :g").value(":g", generation);
        let name = format!("{ENTRY_PREFIX}{}", key.as_str());
        let (update, lower) =
            lower.update([(name.as_str(), Some(AttributeValue::S(layout.to_entry())))]);
        self.update_page(at, update, lower).await
    }

    /// Marks a page as complete, with the number of copies that may be read, and the table's warm
    /// throughput if it is known.
    pub(crate) async fn mark_page(
        &self,
        at: PageCopy,
        copies: u32,
        warm: Option<WarmThroughput>,
    ) -> Result<(), TableError> {
        let fewer = Expression::of("attribute_not_exists(#u0) OR #u0 < :u0");
        let warm = warm.map(|warm| (WARM_THROUGHPUT, Some(AttributeValue::S(warm_to_text(warm)))));
        let (update, fewer) =
            fewer.update(std::iter::once((COPIES, Some(number(copies)))).chain(warm));
        self.update_page(at, update, fewer).await
    }

    /// Writes the table's warm throughput to a complete page, unless the page has it already.
    pub(crate) async fn put_warm_throughput(
        &self,
        at: PageCopy,
        warm: WarmThroughput,
    ) -> Result<(), TableError> {
        let differs = "attribute_exists(#c) AND (attribute_not_exists(#u0) OR #u0 <> :u0)";
        let warm = AttributeValue::S(warm_to_text(warm));
        let (update, differs) =
            Expression::of(differs).name("#c", COPIES).update([(WARM_THROUGHPUT, Some(warm))]);
        self.update_page(at, update, differs).await
    }

    async fn update_page(
        &self,
        at: PageCopy,
        update: String,
        condition: Expression,
    ) -> Result<(), TableError> {
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
        match Box::pin(request.send()).await.map_err(|error| self.failed(Table::Metadata, error)) {
            // The stored entry has the same or a higher generation.
            Ok(_) | Err(TableError::ConditionFailed) => Ok(()),
            // Neither the caller's request nor an item of the key is at fault: the page has reached
            // the largest size of an item.
            Err(TableError::Rejected(why)) => {
                let why = Cause::by(format!("{} takes no more: {why}", at.key()), why);
                Err(self.unusable(Table::Metadata, why))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::KeyError;
    use crate::core::key::tests::{count, key};

    #[test]
    fn no_caller_has_the_key_of_a_page() {
        let at = PageCopy { page: 3, copy: 12 };
        assert_eq!(at.key(), "_sharding:page:3:12");
        assert_eq!(PartitionKey::new(&at.key()), Err(KeyError::Reserved));
    }

    fn page(attributes: &[(&str, AttributeValue)]) -> StoredPage {
        StoredPage::of(
            attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        )
    }

    #[test]
    fn what_the_table_can_serve_is_read_as_it_was_written_and_is_no_entry() {
        let warm = WarmThroughput { write_units: 24_000, read_units: 12_000 };
        assert_eq!(warm_to_text(warm), "24000 12000");
        let layout = Layout { generation: 2, ..Layout::unlisted(count(4)) };
        let entry = AttributeValue::S(layout.to_entry());
        let listed = [("copies", number(2)), ("key:warm_throughput", entry)];
        let unknown = page(&listed);
        assert_eq!((unknown.copies, unknown.warm, unknown.entries.len()), (Some(2), None, 1));
        let [copies, entry] = listed;
        let known =
            page(&[copies, entry, ("warm_throughput", AttributeValue::S(warm_to_text(warm)))]);
        assert_eq!(
            (known.copies, known.warm, &known.entries),
            (Some(2), Some(warm), &unknown.entries)
        );
        assert!(
            known.entries.contains_key(&key("warm_throughput")),
            "a key of that name is another attribute"
        );
    }

    #[test]
    fn what_cannot_be_read_of_it_is_not_known() {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        for damaged in [
            text(""),
            text("4000"),
            text("4000 "),
            text("-1 5"),
            text("4000 x"),
            text("1 2 3"),
            number(4_000),
        ] {
            assert_eq!(page(&[("warm_throughput", damaged.clone())]).warm, None, "{damaged:?}");
        }
    }
}
