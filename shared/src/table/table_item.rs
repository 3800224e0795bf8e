//! The table item: the settings that all processes of a table must share, stored in the metadata
//! table under a key that no caller can have.

use aws_sdk_dynamodb::types::AttributeValue;

use crate::protocol::armed::{Armed, KeyPattern};
use crate::protocol::directory::{Division, KeyDigest};
use crate::protocol::names::{
    ARMED, COPIES, DIRECTORY_MADE, KEYS, LAYOUT, NEXT_PAGES, PAGES, PLACEMENT, PROTOCOL,
    REBUILDING, SEED, WRITES,
};
use crate::table::attributes::{SdkItem, number};
use crate::table::condition::Expression;
use crate::table::error::{TableError, unless_refused};
use crate::table::{PageCopy, Table, Tables};

/// The prefix is reserved: no [`PartitionKey`](crate::values::key::PartitionKey) has it.
pub(crate) const TABLE_KEY: &str = "_sharding:table";

/// The attributes of the settings that all processes must share, and the variables of each.
pub(crate) const SHARED_SETTINGS: [(&str, &str); 4] = [
    (WRITES, "WRITES"),
    (PLACEMENT, "SHARD_PLACEMENT"),
    (LAYOUT, "ADOPT_SHARDS, SHARD_SEPARATOR"),
    (KEYS, "PARTITION_KEY_NAME, SORT_KEY_NAME, SORT_KEY_TYPE"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) protocol: u64,
    /// The values of [`SHARED_SETTINGS`].
    pub(crate) settings: [String; 4],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableItem {
    pub(crate) mode: Mode,
    pub(crate) armed: Armed,
    /// The pages that new processes read; 0 if the item has no usable number or secret.
    pub(crate) division: Division,
    /// The number of pages that are being made. They are written, too, and not read yet.
    pub(crate) next_pages: Option<u32>,
    pub(crate) copies: u32,
    /// Every page was created once, so a missing page is lost.
    pub(crate) directory_made: bool,
    /// The metadata is being rebuilt, so no other process may use the table.
    pub(crate) rebuilding: bool,
}

impl TableItem {
    /// The divisions whose pages are written.
    pub(crate) fn divisions(&self) -> impl Iterator<Item = Division> + use<> {
        let next = self.next_pages.map(|pages| Division { pages, ..self.division });
        std::iter::once(self.division).chain(next)
    }

    /// The copies that must have a key's entry.
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
    /// Fails while the metadata is being rebuilt.
    pub(crate) fn check_rebuilt(&self, table: &TableItem) -> Result<(), TableError> {
        let why = "it is being rebuilt: start again when that has ended";
        if table.rebuilding { Err(self.unusable(Table::Metadata, why)) } else { Ok(()) }
    }

    /// Reads the table item, strongly consistent. `None` where there is none.
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
            mode: Mode { protocol, settings },
            armed,
            division: Division { pages, seed: seed.unwrap_or_default() },
            next_pages: Some(small(NEXT_PAGES)).filter(|pages| *pages > 0),
            copies: small(COPIES),
            directory_made: item.contains_key(DIRECTORY_MADE),
            rebuilding: item.contains_key(REBUILDING),
        }))
    }

    /// Stores the item. [`TableError::ConditionFailed`] if the table has one.
    pub(crate) async fn store_table_item(&self, table: &TableItem) -> Result<(), TableError> {
        let Mode { protocol, settings } = &table.mode;
        let settings = SHARED_SETTINGS.iter().zip(settings);
        let settings =
            settings.map(|((name, _), value)| (*name, Some(AttributeValue::S(value.clone()))));
        let armed = table.armed.patterns().map(|(pattern, from)| {
            let unmarked = || AttributeValue::S(String::new());
            (pattern.to_string(), from.map_or_else(unmarked, number))
        });
        let absent = Expression::absent(&self.config.partition_key_name);
        let stored = absent.update(settings.chain([
            (PROTOCOL, Some(number(protocol))),
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
            Some(from) => of_mark("#a.#p = :from OR #a.#p = :mark").value(":from", number(from)),
        };
        self.change_metadata(TABLE_KEY, ("SET #a.#p = :mark".to_owned(), same)).await
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
        let (update, marked) = match from {
            Some(from) => ("SET #a.#p = :t", marked.value(":t", number(from))),
            None => ("REMOVE #a.#p", marked),
        };
        self.change_metadata(TABLE_KEY, (update.to_owned(), marked)).await
    }

    /// Records that every page was created, and that the metadata is complete.
    pub(crate) async fn note_directory_made(&self) -> Result<(), TableError> {
        let exists =
            Expression::of("attribute_exists(#p)").name("#p", &self.config.partition_key_name);
        let made = (DIRECTORY_MADE, Some(AttributeValue::Bool(true)));
        self.change_metadata(TABLE_KEY, exists.update([made, (REBUILDING, None)])).await
    }

    /// Begins to write the pages of a larger directory, too. [`TableError::ConditionFailed`] if
    /// another process was first.
    pub(crate) async fn begin_pages(&self, pages: u32, next: u32) -> Result<(), TableError> {
        let begun = Expression::of("attribute_not_exists(#u0) AND #n = :n")
            .name("#n", PAGES)
            .value(":n", number(pages))
            .update([(NEXT_PAGES, Some(number(next)))]);
        self.change_metadata(TABLE_KEY, begun).await
    }

    /// Ends the writing of the pages that every copy says are moved.
    /// [`TableError::ConditionFailed`] if another process was first, or has added copies.
    pub(crate) async fn end_pages(&self, table: &TableItem, next: u32) -> Result<(), TableError> {
        let ended = Expression::of("#u0 = :n AND #u1 = :u0 AND #c = :c")
            .value(":n", number(table.division.pages))
            .name("#c", COPIES)
            .value(":c", number(table.copies))
            .update([(PAGES, Some(number(next))), (NEXT_PAGES, None)]);
        self.change_metadata(TABLE_KEY, ended).await
    }

    /// Raises the number of pages in an item that was restored to an earlier state.
    pub(crate) async fn raise_pages(
        &self,
        pages: u32,
        next: Option<u32>,
    ) -> Result<(), TableError> {
        let raised = Expression::of("#u0 < :u0")
            .update([(PAGES, Some(number(pages))), (NEXT_PAGES, next.map(number))]);
        unless_refused(self.change_metadata(TABLE_KEY, raised).await).map(drop)
    }

    /// Raises the number of copies that are written. A lower number changes nothing.
    pub(crate) async fn raise_copies(&self, copies: u32) -> Result<(), TableError> {
        let raised = Expression::of("#u0 < :u0").update([(COPIES, Some(number(copies)))]);
        unless_refused(self.change_metadata(TABLE_KEY, raised).await).map(drop)
    }
}

/// A condition on the time or the mark of a pattern.
fn of_mark(text: &str, pattern: &KeyPattern, mark: &str) -> Expression {
    Expression::of(text)
        .name("#a", ARMED)
        .name("#p", &pattern.to_string())
        .value(":mark", AttributeValue::S(mark.to_owned()))
}

/// The patterns of the table item. A pattern that cannot be parsed must not be overlooked.
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
