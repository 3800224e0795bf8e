//! Making the pages of the directory from the items: when a table is new, when copies or pages are
//! added, and when an actor has stopped between an item and its page. [docs/protocol.md, The
//! directory]

use std::collections::{BTreeMap, HashMap};

use futures_util::future::BoxFuture;

use crate::engine::job::KeyJob;
use crate::engine::width::ScalingReason;
use crate::engine::{Deadline, Inner, Maintenance};
use crate::protocol::directory::{KeyDigest, MAX_COPIES, SPLIT_PAGE_BYTES, supersedes};
use crate::protocol::history::ShardHistory;
use crate::protocol::layout::Layout;
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::protocol::survey::Survey;
use crate::table::error::{TableError, unless_refused};
use crate::table::{PageCopy, RawMetadata, StoredPage, TableItem};
use crate::values::key::{PartitionKey, ShardCount};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// The items are known to be complete.
    All,
    /// A page that existed and has no complete copy is not created.
    NotLost,
}

#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// Entries that were behind their items, in all copies.
    behind: u64,
    older: HashMap<PartitionKey, Layout>,
    /// Entries whose items are missing. Their keys are not known.
    without_item: HashMap<KeyDigest, Layout>,
    is_lost: bool,
    largest: usize,
}

type Missing = BTreeMap<PageCopy, Vec<(KeyDigest, Layout)>>;

impl Inner {
    async fn stored_pages(
        &self,
        table: &TableItem,
        deadline: Deadline,
    ) -> Result<HashMap<PageCopy, StoredPage>, TableError> {
        let mut stored = HashMap::new();
        for at in table.all_copies() {
            let page = self.retrying(deadline, || self.tables.get_page(at)).await?;
            stored.extend(page.map(|page| (at, page)));
        }
        Ok(stored)
    }

    /// Every key that a copy of a page lists, and whether an entry of it is damaged or lacks this
    /// width.
    pub(crate) async fn listed_keys(
        &self,
        width: ShardCount,
        deadline: Deadline,
    ) -> Result<HashMap<KeyDigest, bool>, TableError> {
        let table = self.retrying(deadline, || self.tables.get_table_item()).await?;
        let Some(table) = table else { return Ok(HashMap::new()) };
        let mut listed = HashMap::new();
        for page in self.stored_pages(&table, deadline).await?.into_values() {
            for (key, layout) in page.entries {
                let lacks = layout.is_none_or(|layout| !layout.widths.contains(&width));
                *listed.entry(key).or_default() |= lacks;
            }
        }
        Ok(listed)
    }

    /// Writes missing entries to every copy of these pages, and marks the pages as complete. Other
    /// actors publish their own changes meanwhile. Then doubles the pages, if one is large.
    pub(crate) fn fill_directory(
        &self,
        pages: Pages,
        deadline: Deadline,
    ) -> BoxFuture<'_, Result<Filled, TableError>> {
        Box::pin(async move {
            let mut behind = 0;
            loop {
                let table = self.table_item(deadline).await?;
                if pages == Pages::NotLost {
                    self.tables.check_rebuilt(&table)?;
                }
                let filled = self.fill(&table, pages, deadline).await?;
                behind += filled.behind;
                if !self.adds_pages(&table, &filled, deadline).await? {
                    return Ok(Filled { behind, ..filled });
                }
            }
        })
    }

    /// The next step to more pages, once all that are written are complete. Returns whether there
    /// was one. [docs/protocol.md, More pages]
    async fn adds_pages(
        &self,
        table: &TableItem,
        filled: &Filled,
        deadline: Deadline,
    ) -> Result<bool, TableError> {
        let pages = table.division.pages;
        if filled.is_lost {
            return Ok(false);
        }
        let step = if let Some(next) = table.next_pages {
            for at in (0..pages).flat_map(|page| table.copies(pages, page)) {
                self.retrying(deadline, || self.tables.move_page(at, next)).await?;
            }
            self.retrying(deadline, || self.tables.end_pages(table, next)).await
        } else if filled.largest >= SPLIT_PAGE_BYTES
            && let Some(next) = table.division.doubled()
        {
            self.retrying(deadline, || self.tables.begin_pages(pages, next.pages)).await
        } else {
            return Ok(false);
        };
        // Another process may be first, or add copies. What it did decides what is next.
        unless_refused(step).map(|_| true)
    }

    async fn fill(
        &self,
        table: &TableItem,
        pages: Pages,
        deadline: Deadline,
    ) -> Result<Filled, TableError> {
        let stored = self.stored_pages(table, deadline).await?;
        let is_current = |at: &PageCopy| at.pages == table.division.pages;
        let sizes = stored.iter().filter(|(at, _)| is_current(at)).map(|(_, page)| page.bytes);
        let mut filled = Filled { largest: sizes.max().unwrap_or_default(), ..Filled::default() };
        let entries = stored.values().flat_map(|page: &StoredPage| &page.entries);
        for (key, layout) in entries.filter_map(|(key, layout)| Some((key, layout.as_ref()?))) {
            if supersedes(layout, filled.without_item.get(key)) {
                filled.without_item.insert(*key, layout.clone());
            }
        }
        // A page that was moved needs no entries.
        let lacking = |key: KeyDigest, layout: &Layout| {
            let lacks = |at: &PageCopy| {
                stored.get(at).is_none_or(|page| {
                    let entry = page.entries.get(&key).and_then(Option::as_ref);
                    page.moved_to.is_none() && supersedes(layout, entry)
                })
            };
            table.copies_of(key).into_iter().filter(lacks).collect::<Vec<_>>()
        };
        let mut after = None;
        loop {
            let list = || self.tables.list_metadata(after.as_ref());
            let (keys, next) = self.retrying(deadline, list).await?;
            let mut missing = Missing::new();
            for (key, raw) in keys {
                let Some(metadata) = self.registered_metadata(&key, &raw, deadline).await? else {
                    continue;
                };
                let (digest, layout) = (KeyDigest::of(&key), metadata.layout());
                if let Some(entry) = filled.without_item.remove(&digest)
                    && entry.generation > layout.generation
                {
                    filled.older.insert(key, entry);
                }
                if !layout.is_listed(self.config.adopt_shards) {
                    continue;
                }
                for at in lacking(digest, &layout) {
                    filled.behind += u64::from(is_current(&at));
                    missing.entry(at).or_default().push((digest, layout.clone()));
                }
            }
            self.put_missing(&missing, deadline).await?;
            after = next;
            if after.is_none() {
                break;
            }
        }
        // A copy is complete only if it also lists the keys whose items are lost.
        let mut missing = Missing::new();
        let older = filled.older.iter().map(|(key, layout)| (KeyDigest::of(key), layout));
        let without_item = filled.without_item.iter().map(|(key, layout)| (*key, layout));
        for (key, layout) in older.chain(without_item) {
            for at in lacking(key, layout) {
                missing.entry(at).or_default().push((key, layout.clone()));
            }
        }
        self.put_missing(&missing, deadline).await?;
        filled.is_lost = self.mark_pages(table, &stored, pages, deadline).await?;
        Ok(filled)
    }

    /// `None` if the item is damaged and must be rebuilt first, or if another actor is changing the
    /// key, and publishes the change.
    async fn registered_metadata(
        &self,
        key: &PartitionKey,
        raw: &RawMetadata,
        deadline: Deadline,
    ) -> Result<Option<ShardMetadata>, TableError> {
        let Ok(metadata) = raw.parse() else { return Ok(None) };
        // Another program stored the item, without a generation.
        let now = self.environment.now().epoch_seconds();
        let Some(numbered) = metadata.apply(&Change::Register, now) else {
            return Ok(Some(metadata));
        };
        let write = || self.tables.write_metadata(key, Some(&metadata), None, &numbered);
        let written = unless_refused(self.retrying(deadline, write).await)?;
        Ok(written.map(|()| numbered))
    }

    async fn put_missing(&self, missing: &Missing, deadline: Deadline) -> Result<(), TableError> {
        for (at, entries) in missing {
            let entries: Vec<_> = entries.iter().map(|(key, layout)| (*key, layout)).collect();
            self.retrying(deadline, || self.tables.put_entries(*at, &entries)).await?;
        }
        Ok(())
    }

    /// Marks the pages as complete. Returns whether one is lost.
    async fn mark_pages(
        &self,
        table: &TableItem,
        stored: &HashMap<PageCopy, StoredPage>,
        pages: Pages,
        deadline: Deadline,
    ) -> Result<bool, TableError> {
        let division = table.division;
        let is_complete = |at: &PageCopy, copies: Option<u32>| {
            stored.get(at).is_some_and(|page| {
                let is_marked = page.seed == Some(division.seed) && page.copies.is_some();
                let is_of = copies.is_none() || page.copies == copies;
                page.moved_to.is_some() || is_marked && is_of
            })
        };
        // If every copy is lost, items may be, too. Only a scan of the whole table can tell.
        let is_lost =
            |page: &u32| !table.copies(division.pages, *page).any(|at| is_complete(&at, None));
        let mut lost = Vec::new();
        if pages == Pages::NotLost && table.directory_made {
            lost.extend((0..division.pages).filter(is_lost));
        }
        for page in &lost {
            tracing::error!(page, "a page of the directory is lost: rebuild the metadata");
        }
        // New copies have the throughput from their first read on. The next publication makes
        // differing ones equal.
        let warm = table.all_copies().iter().find_map(|at| stored.get(at)?.warm);
        // The pages of the next division also have the keys of the lost page.
        let may_be_marked = |at: &PageCopy| {
            lost.is_empty() || at.pages == division.pages && !lost.contains(&at.page)
        };
        for at in table.all_copies().into_iter().filter(may_be_marked) {
            if !is_complete(&at, Some(table.copies)) {
                let mark = || self.tables.mark_page(at, (division, table.copies), warm);
                self.retrying(deadline, mark).await?;
            }
        }
        if !table.directory_made {
            self.retrying(deadline, || self.tables.note_directory_made()).await?;
        }
        Ok(!lost.is_empty())
    }
}

impl KeyJob<'_> {
    /// Recreates a key's item from its entry, because the item is older.
    async fn restore(&self, entry: &Layout) -> Result<(), TableError> {
        let KeyJob { inner, key, deadline, .. } = self;
        let read = inner.retrying(*deadline, || inner.tables.get_raw_metadata(key)).await?;
        let seen = read.as_ref().and_then(|raw| raw.parse().ok());
        let damaged = read.filter(|_| seen.is_none());
        let history = entry.widths.iter().fold(ShardHistory::default(), |history, width| {
            history.with(entry.last_updated, *width)
        });
        let known = ShardMetadata {
            number_of_shards: entry.number_of_shards,
            read_shards: entry.read_shards,
            era: entry.era,
            generation: entry.generation,
            shard_history: history.clone(),
            last_updated: entry.last_updated,
            ..ShardMetadata::unregistered_with(inner.config.adopt_shards)
        };
        let to = entry.closing.unwrap_or(entry.number_of_shards);
        let rebuild = Change::Rebuild { to, history, era: entry.era };
        let stored = (seen.as_ref(), damaged.as_ref());
        if let Some(closed) = self.change_from(&known, stored, &rebuild).await? {
            self.open(&closed, ScalingReason::Asked).await?;
        }
        Ok(())
    }
}

impl Maintenance {
    /// Raises the number of copies of each page of the directory, up to [`MAX_COPIES`], while
    /// traffic runs. It takes as long as reading all metadata. An instance reads one copy, so more
    /// copies spread many instances. A lower number changes nothing.
    ///
    /// # Errors
    /// [`TableError::Rejected`] for a number that is not allowed.
    pub async fn raise_directory_copies(&self, copies: u32) -> Result<(), TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        if !(1..=MAX_COPIES).contains(&copies) {
            let why = format!("copies is {copies}; allowed: 1 to {MAX_COPIES}");
            return Err(TableError::Rejected(why.into()));
        }
        inner.claim_once(deadline).await?;
        // From here on, every actor that changes a key writes to the new copies, too. Then they are
        // filled, then read.
        inner.retrying(deadline, || inner.tables.raise_copies(copies)).await?;
        inner.fill_directory(Pages::NotLost, deadline).await.map(drop)
    }

    /// Compares the directory with the metadata, and writes what is missing, because a process may
    /// have died between the two. Doubles the pages if one is large. Lost pages are for
    /// [`rebuild_directory`](Self::rebuild_directory). Returns the number of entries that were
    /// behind.
    pub async fn repair_directory(&self) -> Result<u64, TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        inner.claim_once(deadline).await?;
        let filled = inner.fill_directory(Pages::NotLost, deadline).await?;
        let lost = filled.older.len() + filled.without_item.len();
        if lost > 0 {
            tracing::error!(
                lost,
                "the directory lists keys whose items are lost: rebuild the metadata"
            );
        }
        Ok(filled.behind)
    }

    /// The last step of a rebuild: as [`repair_directory`](Self::repair_directory), and recreates
    /// lost pages, and items that are older than their entries. If the patterns of armed keys were
    /// lost, every key is armed again, unless the survey found an item of another program. Returns
    /// the number of entries that were behind, and of recreated items.
    ///
    /// If a key has neither metadata nor items, its entry does not name it. The entry stays, so its
    /// writers and readers continue. The key cannot change its shards before a rebuild finds an
    /// item of it.
    pub async fn rebuild_directory(&self, survey: &Survey) -> Result<(u64, u64), TableError> {
        self.claim_for_rebuild().await?;
        let (inner, deadline) = (&self.engine.inner, self.until());
        let filled = inner.fill_directory(Pages::All, deadline).await?;
        for (key, entry) in &filled.older {
            inner.job(key, deadline).restore(entry).await?;
        }
        if !filled.without_item.is_empty() {
            tracing::warn!(
                keys = filled.without_item.len(),
                "the directory lists keys that have neither metadata nor items; they keep their entries"
            );
        }
        inner.restore_patterns(survey, deadline).await?;
        Ok((filled.behind, filled.older.len() as u64))
    }
}
