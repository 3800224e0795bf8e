//! The pages of the directory, as items of the metadata table under keys that no caller can have.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::protocol::directory::{Division, KeyDigest};
use crate::protocol::layout::Layout;
use crate::protocol::names::{COPIES, ENTRY_PREFIX, MOVED_TO, SEED, WARM_THROUGHPUT};
use crate::table::attributes::{SdkItem, number};
use crate::table::condition::Expression;
use crate::table::error::{Cause, TableError, unless_refused};
use crate::table::{Table, Tables};
use crate::values::throughput::WarmThroughput;

const PAGE_PREFIX: &str = "_sharding:page:";
/// The largest number of entries that one update writes. An expression has at most 4 KB, and 300
/// operators.
const ENTRIES_PER_UPDATE: usize = 40;
const ENTRIES_PER_REMOVAL: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageCopy {
    pub(crate) pages: u32,
    /// The page, from 0.
    pub(crate) page: u32,
    /// The copy, from 0.
    pub(crate) copy: u32,
}

impl PageCopy {
    fn key(self) -> String {
        format!("{PAGE_PREFIX}{}:{}:{}", self.pages, self.page, self.copy)
    }

    fn parse(key: &str) -> Option<Self> {
        let mut numbers = key.strip_prefix(PAGE_PREFIX)?.split(':').map(|word| word.parse().ok());
        let at = Self { pages: numbers.next()??, page: numbers.next()??, copy: numbers.next()?? };
        numbers.next().is_none().then_some(at)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StoredPage {
    /// How many copies may be read. `None` if the page is not complete: then a key that it does not
    /// list may have grown.
    pub(crate) copies: Option<u32>,
    /// The secret of the directory that the page was completed for.
    pub(crate) seed: Option<u64>,
    /// The number of pages of the larger directory that has the entries of this page.
    pub(crate) moved_to: Option<u32>,
    /// `None` for an entry that cannot be parsed.
    pub(crate) entries: HashMap<KeyDigest, Option<Layout>>,
    /// The table's warm throughput. `None` if it was not published or cannot be parsed.
    pub(crate) warm: Option<WarmThroughput>,
    pub(crate) bytes: usize,
}

impl StoredPage {
    fn of(item: SdkItem) -> Self {
        let entries = HashMap::with_capacity(item.len());
        let mut page = Self { entries, ..Self::default() };
        for (name, value) in item {
            let text = value.as_s().map_or("", String::as_str);
            page.bytes += name.len() + text.len();
            let number = || value.as_n().ok()?.parse::<u64>().ok();
            let small = || number().and_then(|number| u32::try_from(number).ok());
            if name == COPIES {
                page.copies = small().filter(|copies| *copies > 0);
            } else if name == SEED {
                page.seed = number();
            } else if name == MOVED_TO {
                page.moved_to = small().filter(|pages| *pages > 0);
            } else if name == WARM_THROUGHPUT {
                page.warm = warm_from_text(text);
            } else if let Some(key) = name.strip_prefix(ENTRY_PREFIX).and_then(KeyDigest::parse) {
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

    /// Reads every page of every directory that the table has had.
    pub(crate) async fn scan_pages(&self) -> Result<Vec<(PageCopy, StoredPage)>, TableError> {
        let scan = self
            .client
            .scan()
            .table_name(&self.config.metadata_table_name)
            .filter_expression("begins_with(#p, :p)")
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .expression_attribute_values(":p", AttributeValue::S(PAGE_PREFIX.to_owned()))
            .consistent_read(true);
        let (mut pages, mut items) = (Vec::new(), scan.into_paginator().items().send());
        while let Some(item) = items.next().await {
            let item = item.map_err(|error| self.failed(Table::Metadata, error))?;
            let at = PageCopy::parse(&self.stored_key(&item)?);
            pages.extend(at.map(|at| (at, StoredPage::of(item))));
        }
        Ok(pages)
    }

    /// Writes each entry, unless the stored one has the same or a higher generation: in few
    /// requests, because each costs the units of the whole page. A missing page is created, and
    /// stays incomplete.
    pub(crate) async fn put_entries(
        &self,
        at: PageCopy,
        entries: &[(KeyDigest, &Layout)],
    ) -> Result<(), TableError> {
        for entries in entries.chunks(ENTRIES_PER_UPDATE) {
            let written = unless_refused(self.update_entries(at, entries).await)?;
            // If it is refused, another actor has written one of them.
            if written.is_none() && entries.len() > 1 {
                for entry in entries.chunks(1) {
                    unless_refused(self.update_entries(at, entry).await)?;
                }
            }
        }
        Ok(())
    }

    async fn update_entries(
        &self,
        at: PageCopy,
        entries: &[(KeyDigest, &Layout)],
    ) -> Result<(), TableError> {
        let lower = |index| format!("(attribute_not_exists(#u{index}) OR #u{index} < :g{index})");
        let lower = (0..entries.len()).map(lower).collect::<Vec<_>>().join(" AND ");
        // Any entry of this generation is greater than the bare generation.
        let (mut lower, mut named) = (Expression::of(&lower), Vec::with_capacity(entries.len()));
        for (index, (key, layout)) in entries.iter().enumerate() {
            let generation = AttributeValue::S(layout.entry_generation());
            lower = lower.value(&format!(":g{index}"), generation);
            named.push((format!("{ENTRY_PREFIX}{key}"), AttributeValue::S(layout.to_entry())));
        }
        let named = named.iter().map(|(name, entry)| (name.as_str(), Some(entry.clone())));
        self.update_page(at, lower.update(named)).await
    }

    /// Marks a page as complete, with the number of copies that may be read, and the table's warm
    /// throughput if it is known.
    pub(crate) async fn mark_page(
        &self,
        at: PageCopy,
        (division, copies): (Division, u32),
        warm: Option<WarmThroughput>,
    ) -> Result<(), TableError> {
        let fewer = Expression::of("attribute_not_exists(#u0) OR #u0 < :u0 OR #u1 <> :u1");
        let warm = warm.map(|warm| (WARM_THROUGHPUT, Some(AttributeValue::S(warm_to_text(warm)))));
        let marks = [(COPIES, Some(number(copies))), (SEED, Some(number(division.seed)))];
        let marked = self.update_page(at, fewer.update(marks.into_iter().chain(warm))).await;
        unless_refused(marked).map(drop)
    }

    /// Marks a page as moved: its entries are on the pages of a larger directory, which are complete.
    /// Then removes its entries, because every scan of the metadata would pay for them.
    pub(crate) async fn move_page(&self, at: PageCopy, pages: u32) -> Result<(), TableError> {
        let first = Expression::of("attribute_not_exists(#u0)");
        let moved = first.update([(MOVED_TO, Some(number(pages)))]);
        unless_refused(self.update_page(at, moved).await)?;
        let moved = self.get_metadata_item(&at.key()).await?.unwrap_or_default();
        let entries: Vec<&String> =
            moved.keys().filter(|name| name.starts_with(ENTRY_PREFIX)).collect();
        for entries in entries.chunks(ENTRIES_PER_REMOVAL) {
            let is_moved = Expression::of("attribute_exists(#m)").name("#m", MOVED_TO);
            let removed = is_moved.update(entries.iter().map(|name| (name.as_str(), None)));
            unless_refused(self.update_page(at, removed).await)?;
        }
        Ok(())
    }

    /// Writes the table's warm throughput to a complete page, unless the page has it already.
    pub(crate) async fn put_warm_throughput(
        &self,
        at: PageCopy,
        warm: WarmThroughput,
    ) -> Result<(), TableError> {
        let differs = "attribute_exists(#c) AND (attribute_not_exists(#u0) OR #u0 <> :u0)";
        let differs = Expression::of(differs).name("#c", COPIES);
        let warm = (WARM_THROUGHPUT, Some(AttributeValue::S(warm_to_text(warm))));
        unless_refused(self.update_page(at, differs.update([warm])).await).map(drop)
    }

    async fn update_page(
        &self,
        at: PageCopy,
        (update, condition): (String, Expression),
    ) -> Result<(), TableError> {
        let key = self.metadata_key(&at.key());
        let request = self.update(Table::Metadata, key, update, condition);
        match self.ask(Table::Metadata, request.send()).await {
            Ok(_) => Ok(()),
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
    use crate::values::key::tests::{count, key};
    use crate::values::key::{KeyError, PartitionKey};

    #[test]
    fn no_caller_has_the_key_of_a_page() {
        let at = PageCopy { pages: 8, page: 3, copy: 12 };
        assert_eq!(at.key(), "_sharding:page:8:3:12");
        assert_eq!(PartitionKey::new(&at.key()), Err(KeyError::Reserved));
        assert_eq!(PageCopy::parse(&at.key()), Some(at));
        for other in ["_sharding:page:3:12", "_sharding:page:8:3:12:1", "_sharding:table", "8:3:12"]
        {
            assert_eq!(PageCopy::parse(other), None, "{other}");
        }
    }

    #[test]
    fn warm_throughput_is_read_as_written_and_is_no_entry() {
        let warm = WarmThroughput { write_units: 24_000, read_units: 12_000 };
        assert_eq!(warm_to_text(warm), "24000 12000");
        let layout = Layout { generation: 2, ..Layout::unlisted(count(4)) };
        let digest = KeyDigest::of(&key("warm_throughput"));
        let entry = (format!("key:{digest}"), AttributeValue::S(layout.to_entry()));
        let listed = SdkItem::from([("copies".to_owned(), number(2)), entry]);
        let entries = StoredPage::of(listed.clone()).entries;
        assert!(entries.contains_key(&digest), "a key of that name is another attribute");
        let text = |text: &str| Some(AttributeValue::S(text.to_owned()));
        let damaged = ["", "4000", "4000 ", "-1 5", "4000 x", "1 2 3"].map(text);
        let damaged = damaged.into_iter().chain([Some(number(4_000)), None]);
        let rows = damaged.map(|stored| (stored, None)).chain([(text("24000 12000"), Some(warm))]);
        for (stored, expected) in rows {
            let mut item = listed.clone();
            item.extend(stored.clone().map(|stored| ("warm_throughput".to_owned(), stored)));
            let page = StoredPage::of(item);
            assert_eq!((page.copies, page.warm), (Some(2), expected), "{stored:?}");
            assert_eq!(page.entries, entries);
        }
    }
}
