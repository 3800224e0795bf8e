//! The directory in the metadata table, under keys that no caller can have: the table item and the
//! pages.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::protocol::armed::{Armed, KeyPattern};
use crate::protocol::directory::{Division, KeyDigest};
use crate::protocol::layout::Layout;
use crate::protocol::names::{
    ARMED, COPIES, DIRECTORY_MADE, ENTRY_PREFIX, KEYS, LAYOUT, MOVED_TO, NEXT_PAGES, PAGES,
    PLACEMENT, PROTOCOL, REBUILDING, SEED, WARM_THROUGHPUT, WRITES,
};
use crate::table::attributes::{SdkItem, number};
use crate::table::error::{Cause, TableError, unless_refused};
use crate::table::{Expression, Table, Tables};
use crate::values::throughput::WarmThroughput;

/// No [`PartitionKey`](crate::values::key::PartitionKey) has its prefix.
pub(crate) const TABLE_KEY: &str = "_sharding:table";

/// Those that all processes must share, and the variables of each.
pub(crate) const SHARED_SETTINGS: [(&str, &str); 4] = [
    (WRITES, "WRITES"),
    (PLACEMENT, "SHARD_PLACEMENT"),
    (LAYOUT, "ADOPT_SHARDS, SHARD_SEPARATOR"),
    (KEYS, "PARTITION_KEY_NAME, SORT_KEY_NAME, SORT_KEY_TYPE"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableItem {
    pub(crate) protocol: u64,
    pub(crate) settings: [String; 4],
    pub(crate) armed: Armed,
    /// The pages that new processes read; 0 if the item has no usable number or secret.
    pub(crate) division: Division,
    /// Being made: they are written, too, and not read yet.
    pub(crate) next_pages: Option<u32>,
    pub(crate) copies: u32,
    /// Every page was created once, so a missing page is lost.
    pub(crate) directory_made: bool,
    /// No other process may use the table meanwhile.
    pub(crate) rebuilding: bool,
}

impl TableItem {
    /// Those whose pages are written.
    pub(crate) fn divisions(&self) -> impl Iterator<Item = Division> + use<> {
        let next = self.next_pages.map(|pages| Division { pages, ..self.division });
        std::iter::once(self.division).chain(next)
    }

    /// Those that must have a key's entry.
    pub(crate) fn copies_of(&self, key: KeyDigest) -> Vec<PageCopy> {
        self.divisions()
            .flat_map(|division| self.copies(division.pages, division.page_of(key)))
            .collect()
    }

    pub(crate) fn copies(&self, pages: u32, page: u32) -> impl Iterator<Item = PageCopy> + use<> {
        (0..self.copies).map(move |copy| PageCopy { pages, page, copy })
    }

    pub(crate) fn all_copies(&self) -> Vec<PageCopy> {
        let pages = self
            .divisions()
            .flat_map(|Division { pages, .. }| (0..pages).map(move |page| (pages, page)));
        pages.flat_map(|(pages, page)| self.copies(pages, page)).collect()
    }
}

impl Tables {
    pub(crate) fn check_rebuilt(&self, table: &TableItem) -> Result<(), TableError> {
        let why = "it is being rebuilt: start again when that has ended";
        if table.rebuilding { Err(self.unusable(Table::Metadata, why)) } else { Ok(()) }
    }

    /// Strongly consistent.
    pub(crate) async fn get_table_item(&self) -> Result<Option<TableItem>, TableError> {
        let Some(item) = self.get_metadata_item(TABLE_KEY).await? else { return Ok(None) };
        let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned();
        let number = |name: &str| item.get(name)?.as_n().ok()?.parse::<u64>().ok();
        let small = |name: &str| {
            number(name).and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
        };
        let armed = armed_from(&item)?;
        let (Some(_), Some(protocol)) = (text(WRITES), number(PROTOCOL)) else {
            let why = format!("the item {TABLE_KEY} has no usable {WRITES} and {PROTOCOL}");
            return Err(TableError::Damaged(why));
        };
        let settings = SHARED_SETTINGS.map(|(name, _)| text(name).unwrap_or_default());
        let seed = number(SEED);
        let pages = if seed.is_some() { small(PAGES) } else { 0 };
        Ok(Some(TableItem {
            protocol,
            settings,
            armed,
            division: Division { pages, seed: seed.unwrap_or_default() },
            next_pages: Some(small(NEXT_PAGES)).filter(|pages| *pages > 0),
            copies: small(COPIES),
            directory_made: item.contains_key(DIRECTORY_MADE),
            rebuilding: item.contains_key(REBUILDING),
        }))
    }

    /// [`TableError::ConditionFailed`] if the table has one.
    pub(crate) async fn store_table_item(&self, table: &TableItem) -> Result<(), TableError> {
        let settings = SHARED_SETTINGS.iter().zip(&table.settings);
        let settings =
            settings.map(|((name, _), value)| (*name, Some(AttributeValue::S(value.clone()))));
        let armed = table.armed.patterns().map(|(pattern, from)| {
            let unmarked = || AttributeValue::S(String::new());
            (pattern.to_string(), from.map_or_else(unmarked, number))
        });
        let absent = Expression::absent(&self.config.partition_key_name);
        let stored = absent.setting(settings.chain([
            (PROTOCOL, Some(number(table.protocol))),
            (ARMED, Some(AttributeValue::M(armed.collect()))),
            (PAGES, Some(number(table.division.pages))),
            (NEXT_PAGES, table.next_pages.map(number)),
            (SEED, Some(number(table.division.seed))),
            (COPIES, Some(number(table.copies))),
            (REBUILDING, table.rebuilding.then_some(AttributeValue::Bool(true))),
        ]));
        self.change_metadata(TABLE_KEY, stored).await
    }

    /// Stores a pattern without a time, under this mark. [`TableError::ConditionFailed`] if it has
    /// another time than this one.
    pub(crate) async fn mark_pattern(
        &self,
        pattern: &KeyPattern,
        mark: &str,
        before: Option<u64>,
    ) -> Result<(), TableError> {
        let of_mark = |text| of_mark(text, pattern, mark);
        let same = match before {
            None => of_mark("attribute_not_exists(#a.#p) OR attribute_type(#a.#p, :s)")
                .value(":s", AttributeValue::S("S".to_owned())),
            // A repetition finds its own mark.
            Some(from) => of_mark("#a.#p = :from OR #a.#p = :mark").numbers([(":from", from)]),
        };
        self.change_metadata(TABLE_KEY, same.updating("SET #a.#p = :mark")).await
    }

    /// Gives the time to a pattern that has this mark, or removes it.
    /// [`TableError::ConditionFailed`] if it has another mark, or a time.
    pub(crate) async fn settle_pattern(
        &self,
        pattern: &KeyPattern,
        mark: &str,
        from: Option<u64>,
    ) -> Result<(), TableError> {
        let marked = of_mark("#a.#p = :mark", pattern, mark);
        let settled = match from {
            Some(from) => marked.numbers([(":t", from)]).updating("SET #a.#p = :t"),
            None => marked.updating("REMOVE #a.#p"),
        };
        self.change_metadata(TABLE_KEY, settled).await
    }

    /// Every page was created, and the metadata is complete.
    pub(crate) async fn note_directory_made(&self) -> Result<(), TableError> {
        let exists =
            Expression::of("attribute_exists(#p)").name("#p", &self.config.partition_key_name);
        let made = (DIRECTORY_MADE, Some(AttributeValue::Bool(true)));
        self.change_metadata(TABLE_KEY, exists.setting([made, (REBUILDING, None)])).await
    }

    /// Begins to write the pages of a larger directory, too. [`TableError::ConditionFailed`] if
    /// another process was first.
    pub(crate) async fn begin_pages(&self, pages: u32, next: u32) -> Result<(), TableError> {
        let begun = Expression::of("attribute_not_exists(#u0) AND #n = :n")
            .name("#n", PAGES)
            .numbers([(":n", pages.into())])
            .setting([(NEXT_PAGES, Some(number(next)))]);
        self.change_metadata(TABLE_KEY, begun).await
    }

    /// Ends the writing of pages that every copy says are moved. [`TableError::ConditionFailed`] if
    /// another process was first, or has added copies.
    pub(crate) async fn end_pages(&self, table: &TableItem, next: u32) -> Result<(), TableError> {
        let ended = Expression::of("#u0 = :n AND #u1 = :u0 AND #c = :c")
            .name("#c", COPIES)
            .numbers([(":n", table.division.pages.into()), (":c", table.copies.into())])
            .setting([(PAGES, Some(number(next))), (NEXT_PAGES, None)]);
        self.change_metadata(TABLE_KEY, ended).await
    }

    /// For an item that was restored to an earlier state.
    pub(crate) async fn raise_pages(
        &self,
        pages: u32,
        next: Option<u32>,
    ) -> Result<(), TableError> {
        let raised = Expression::of("#u0 < :u0")
            .setting([(PAGES, Some(number(pages))), (NEXT_PAGES, next.map(number))]);
        unless_refused(self.change_metadata(TABLE_KEY, raised).await).map(drop)
    }

    /// A lower number changes nothing.
    pub(crate) async fn raise_copies(&self, copies: u32) -> Result<(), TableError> {
        let raised = Expression::of("#u0 < :u0").setting([(COPIES, Some(number(copies)))]);
        unless_refused(self.change_metadata(TABLE_KEY, raised).await).map(drop)
    }
}

fn of_mark(text: &str, pattern: &KeyPattern, mark: &str) -> Expression {
    Expression::of(text)
        .names([("#a", ARMED), ("#p", pattern.to_string().as_str())])
        .value(":mark", AttributeValue::S(mark.to_owned()))
}

/// A pattern that cannot be parsed must not be overlooked.
fn armed_from(item: &SdkItem) -> Result<Armed, TableError> {
    let damaged = || TableError::Damaged(format!("the item {TABLE_KEY} has no usable {ARMED}"));
    let Some(stored) = item.get(ARMED) else { return Ok(Armed::default()) };
    stored.as_m().map_err(|_| damaged())?.iter().try_fold(
        Armed::default(),
        |armed, (text, from)| {
            let pattern = text.parse().map_err(|_| damaged())?;
            let from = match (from.as_s(), from.as_n()) {
                (Ok(_mark), _) => None,
                (_, Ok(from)) => Some(from.parse().map_err(|_| damaged())?),
                (Err(_), Err(_)) => return Err(damaged()),
            };
            Ok(armed.with(pattern, from))
        },
    )
}

const PAGE_PREFIX: &str = "_sharding:page:";
/// An expression has at most 4 KB, and 300 operators.
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
    /// Of the directory that the page was completed for.
    pub(crate) seed: Option<u64>,
    /// The pages of the larger directory that has the entries of this page.
    pub(crate) moved_to: Option<u32>,
    /// `None` for an entry that cannot be parsed.
    pub(crate) entries: HashMap<KeyDigest, Option<Layout>>,
    /// `None` if it was not published or cannot be parsed.
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
    /// Strongly consistent.
    pub(crate) async fn get_page(&self, at: PageCopy) -> Result<Option<StoredPage>, TableError> {
        Ok(self.get_metadata_item(&at.key()).await?.map(StoredPage::of))
    }

    /// Of every directory that the table has had.
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
            // If it is refused, another actor has written one of them.
            if !self.update_entries(at, entries).await? && entries.len() > 1 {
                for entry in entries.chunks(1) {
                    self.update_entries(at, entry).await?;
                }
            }
        }
        Ok(())
    }

    async fn update_entries(
        &self,
        at: PageCopy,
        entries: &[(KeyDigest, &Layout)],
    ) -> Result<bool, TableError> {
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
        self.update_page(at, lower.setting(named)).await
    }

    /// Marks a page as complete, with the copies that may be read, and the warm throughput if it is
    /// known.
    pub(crate) async fn mark_page(
        &self,
        at: PageCopy,
        (division, copies): (Division, u32),
        warm: Option<WarmThroughput>,
    ) -> Result<(), TableError> {
        let fewer = Expression::of("attribute_not_exists(#u0) OR #u0 < :u0 OR #u1 <> :u1");
        let warm = warm.map(|warm| (WARM_THROUGHPUT, Some(AttributeValue::S(warm_to_text(warm)))));
        let marks = [(COPIES, Some(number(copies))), (SEED, Some(number(division.seed)))];
        self.update_page(at, fewer.setting(marks.into_iter().chain(warm))).await.map(drop)
    }

    /// Marks a page as moved: its entries are on the complete pages of a larger directory. Then
    /// removes its entries, because every scan of the metadata would pay for them.
    pub(crate) async fn move_page(&self, at: PageCopy, pages: u32) -> Result<(), TableError> {
        let first = Expression::of("attribute_not_exists(#u0)");
        let moved = first.setting([(MOVED_TO, Some(number(pages)))]);
        self.update_page(at, moved).await?;
        let moved = self.get_metadata_item(&at.key()).await?.unwrap_or_default();
        let entries: Vec<&String> =
            moved.keys().filter(|name| name.starts_with(ENTRY_PREFIX)).collect();
        for entries in entries.chunks(ENTRIES_PER_REMOVAL) {
            let is_moved = Expression::of("attribute_exists(#m)").name("#m", MOVED_TO);
            let removed = is_moved.setting(entries.iter().map(|name| (name.as_str(), None)));
            self.update_page(at, removed).await?;
        }
        Ok(())
    }

    /// Writes it to a complete page, unless the page has it already.
    pub(crate) async fn put_warm_throughput(
        &self,
        at: PageCopy,
        warm: WarmThroughput,
    ) -> Result<(), TableError> {
        let differs = "attribute_exists(#c) AND (attribute_not_exists(#u0) OR #u0 <> :u0)";
        let differs = Expression::of(differs).name("#c", COPIES);
        let warm = (WARM_THROUGHPUT, Some(AttributeValue::S(warm_to_text(warm))));
        self.update_page(at, differs.setting([warm])).await.map(drop)
    }

    /// Returns whether the condition held.
    async fn update_page(&self, at: PageCopy, change: Expression) -> Result<bool, TableError> {
        match unless_refused(self.change_metadata(&at.key(), change).await) {
            // Neither the caller's request nor an item of the key is at fault: the page has reached
            // the largest size of an item.
            Err(TableError::Rejected(why)) => {
                let why = Cause::by(format!("{} takes no more: {why}", at.key()), why);
                Err(self.unusable(Table::Metadata, why))
            }
            done => Ok(done?.is_some()),
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
