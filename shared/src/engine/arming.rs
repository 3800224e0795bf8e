//! What this instance knows of the table's patterns, and arming.
//!
//! They are in the table item, with the settings that all processes must share, so each read
//! compares those, too. [docs/protocol.md, Armed keys]

use std::sync::{Arc, Mutex, OnceLock};

use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::engine::job::KeyJob;
use crate::engine::views::keys::Running;
use crate::engine::views::mode::New;
use crate::engine::views::table_item_gone;
use crate::engine::{Deadline, Inner, Maintenance, TableEngine, locked};
use crate::protocol::armed::{
    Armed, ArmedView, KeyPattern, MAX_PATTERNS, MayGrow, PATTERN_LEASE, counts_from, removable_from,
};
use crate::protocol::layout::Layout;
use crate::protocol::survey::Survey;
use crate::protocol::view::{Moment, View};
use crate::table::error::TableError;
use crate::table::tables::ArmingObstacle;
use crate::table::{ATTEMPT_TIMEOUT, TableItem};
use crate::values::key::PartitionKey;

/// The table's patterns of armed keys, under their lease.
#[derive(Debug, Clone)]
pub struct Patterns {
    view: Arc<ArmedView>,
    engine: TableEngine,
}

impl Patterns {
    /// Whether a pattern matches the key.
    pub fn matches(&self, key: &PartitionKey) -> bool {
        self.view.armed.matches(key)
    }

    /// Whether no key is armed.
    pub fn are_none(&self) -> bool {
        self.view.armed.patterns().len() == 0
    }

    /// Whether they may still be relied on. A request about a key that none matches is sent only
    /// then.
    pub fn last(&self) -> bool {
        let inner = &self.engine.inner;
        self.view.is_valid(inner.environment.now(), inner.config.pattern_lease)
    }
}

impl TableEngine {
    /// The table's patterns of armed keys, within their lease.
    ///
    /// # Errors
    /// [`TableError`] if they cannot be read, or if this process is configured for another table.
    pub async fn patterns(&self, deadline: Deadline) -> Result<Patterns, TableError> {
        self.inner.check_agreement()?;
        let view = self.inner.leased_patterns(deadline).await?;
        Ok(Patterns { view, engine: self.clone() })
    }
}

/// What this instance knows of the table item besides the size of the directory.
#[derive(Debug, Default)]
pub(crate) struct Arming {
    /// This process may write: the table item exists, and agrees.
    pub(crate) claim: OnceCell<()>,
    known: Mutex<Option<Arc<ArmedView>>>,
    unclaimed: Mutex<Option<Arc<ArmedView>>>,
    /// Concurrent requests share one read.
    flight: tokio::sync::Mutex<()>,
    is_renewing: Running,
    /// Why this process must not use the table any more.
    disagrees: OnceLock<String>,
}

impl Arming {
    pub(crate) fn known(&self) -> Option<Arc<ArmedView>> {
        locked(&self.known).clone()
    }

    fn learn(&self, view: ArmedView) {
        let mut known = locked(&self.known);
        if known.as_ref().is_none_or(|known| known.asked_at <= view.asked_at) {
            *known = Some(Arc::new(view));
        }
    }
}

impl Inner {
    /// Before the first write. A table without a table item must be new.
    pub(crate) async fn claim_once(&self, deadline: Deadline) -> Result<(), TableError> {
        self.claim_once_as(New::ArmedIfEmpty, deadline).await
    }

    pub(super) async fn claim_once_as(
        &self,
        how: New<'_>,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        self.arming.claim.get_or_try_init(|| self.claim(how, deadline)).await.copied()
    }

    /// `None` if the table has no item yet. [`TableError::Unusable`] if this process is configured
    /// for another table.
    pub(crate) fn read_table_item(
        &self,
        deadline: Deadline,
    ) -> BoxFuture<'_, Result<Option<TableItem>, TableError>> {
        Box::pin(async move {
            let mut asked_at = self.environment.now();
            let read = || {
                asked_at = self.environment.now();
                self.tables.get_table_item()
            };
            let table = self.retrying(deadline, read).await?;
            if let Some(table) = &table {
                self.agree(table).inspect_err(|error| {
                    if matches!(error, TableError::Unusable(_)) {
                        // For ever: what the table was made for does not change.
                        let _ = self.arming.disagrees.set(error.to_string());
                    }
                })?;
                self.arming.learn(ArmedView { armed: table.armed.clone(), asked_at });
                self.know_division(table.division, table.copies);
            }
            Ok(table)
        })
    }

    /// A mark that no other arming has.
    pub(crate) fn mark(&self) -> String {
        uuid::Builder::from_random_bytes(self.environment.bytes()).into_uuid().to_string()
    }

    pub(crate) async fn leased_patterns(
        &self,
        deadline: Deadline,
    ) -> Result<Arc<ArmedView>, TableError> {
        let lease = self.config.pattern_lease;
        let known = || {
            let view = self.arming.known().or_else(|| locked(&self.arming.unclaimed).clone());
            view.filter(|view| view.is_valid(self.environment.now(), lease))
        };
        if let Some(view) = known() {
            return Ok(view);
        }
        let Ok(_flight) = timeout_at(deadline, self.arming.flight.lock()).await else {
            let why = "the patterns of armed keys did not come before the deadline";
            return Err(TableError::Transient(why.into()));
        };
        let was_known = self.arming.known().is_some();
        let asked_at = self.environment.now();
        match (self.read_table_item(deadline).await?, was_known) {
            (Some(_), _) => known().ok_or_else(|| {
                TableError::Transient("the patterns of armed keys came too late".into())
            }),
            // No process has claimed the table yet.
            (None, false) => {
                let view = Arc::new(ArmedView { armed: Armed::default(), asked_at });
                *locked(&self.arming.unclaimed) = Some(Arc::clone(&view));
                Ok(view)
            }
            (None, true) => Err(table_item_gone()),
        }
    }

    /// Whether a result counts that was read under the lease of the patterns. Growth begins much
    /// later than a lease and the longest read.
    pub(crate) fn is_still_native(&self, view: &View, began: Moment) -> bool {
        let now = self.environment.now();
        view.is_valid(began, self.config.pattern_lease)
            && now.since(began).is_some_and(|took| took <= self.config.longest_read())
    }

    pub(crate) fn check_agreement(&self) -> Result<(), TableError> {
        match self.arming.disagrees.get() {
            Some(why) => Err(TableError::Unusable(why.as_str().into())),
            None => Ok(()),
        }
    }
}

impl KeyJob<'_> {
    /// Reads the table item again, beside the request, once a minute.
    fn renew_agreement(&self) {
        let (arming, now) = (&self.inner.arming, self.inner.environment.now());
        if arming.known().is_some_and(|view| !view.is_valid(now, PATTERN_LEASE)) {
            self.beside(&arming.is_renewing, |inner, _| async move {
                let soon = Instant::now() + ATTEMPT_TIMEOUT;
                if let Err(error) = inner.read_table_item(soon).await {
                    tracing::warn!(%error, "the settings of the table could not be compared");
                }
            });
        }
    }

    /// The view for reads of a key that no pattern matches: all its items are under the key itself.
    /// `None` if the key's page says where they are.
    pub(crate) async fn native_view(&self) -> Result<Option<Arc<View>>, TableError> {
        self.inner.check_agreement()?;
        let (inner, key) = (self.inner, self.key);
        // Before the first look at the table, its page is always right.
        if inner.arming.known().is_none_or(|view| view.armed.matches(key)) {
            self.renew_agreement();
            return Ok(None);
        }
        let view = inner.leased_patterns(self.deadline).await?;
        Ok((!view.armed.matches(key)).then(|| {
            let layout = Layout::unlisted(inner.config.adopt_shards);
            Arc::new(View { layout, asked_at: view.asked_at })
        }))
    }

    /// `None` if the key is armed: a pattern counts, or the directory lists it. Otherwise the epoch
    /// second from which a pattern counts, if there is one.
    pub async fn not_armed_before(&self) -> Result<Option<Option<u64>>, TableError> {
        let (inner, key) = (self.inner, self.key);
        inner.check_agreement()?;
        let lease = inner.config.pattern_lease;
        let known = inner.arming.known();
        let may = |view: &ArmedView| view.may_grow(key, inner.environment.now(), lease);
        let mut found = known.as_deref().map_or(MayGrow::Look, may);
        while found == MayGrow::Look {
            found = may(&*inner.leased_patterns(self.deadline).await?);
        }
        self.renew_agreement();
        match found {
            MayGrow::NotBefore(from) if self.view().await?.layout.generation == 0 => Ok(Some(from)),
            MayGrow::Yes | MayGrow::NotBefore(_) | MayGrow::Look => Ok(None),
        }
    }
}

impl Maintenance {
    /// Arms the keys of a pattern: once it counts, the product writes them, and they may grow, so
    /// no other program may write them any more. Returns the epoch second from which it counts: 18
    /// minutes from now, or after [`TableConfig::drain_wait`](crate::TableConfig) if that is set. A
    /// pattern that has a time keeps it. Also tags the main table with the name of its metadata
    /// table, so that no other deployment arms its keys.
    ///
    /// # Errors
    /// [`TableError::Rejected`] if the table has 100 patterns.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// // In a table that was empty at first, every key is armed.
    /// assert_eq!(table.maintenance().arm(&"*".parse()?).await?, 0);
    /// assert!(table.maintenance().arm(&"prefix:a".parse()?).await? > 0);
    /// table.maintenance().disarm(&"prefix:a".parse()?).await?;
    /// assert_eq!(table.maintenance().armed().await?.len(), 1);
    /// # Ok(()) });
    /// ```
    pub async fn arm(&self, pattern: &KeyPattern) -> Result<u64, TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        inner.retrying(deadline, || inner.tables.tag()).await?;
        inner.claim_once(deadline).await?;
        let armed = inner.armed(deadline).await?;
        match armed.patterns().find(|(stored, _)| *stored == pattern) {
            Some((_, Some(from))) => return Ok(from),
            None if armed.patterns().len() >= MAX_PATTERNS => {
                let why = format!("the table has {MAX_PATTERNS} patterns, which is the most");
                return Err(TableError::Rejected(why.into()));
            }
            Some((_, None)) | None => {}
        }
        let mark = &inner.mark();
        inner.retrying(deadline, || inner.tables.mark_pattern(pattern, mark, None)).await?;
        // Now every process that reads the patterns sees this one. The mark keeps a late request of
        // an earlier arming from giving it a time.
        let from = counts_from(inner.environment.now(), inner.config.arming_wait());
        let count = || inner.tables.settle_pattern(pattern, mark, Some(from));
        let counted = inner.retrying(deadline, count).await;
        // A repetition is refused by the attempt before it.
        let armed = inner.armed(deadline).await?;
        let is_stored = armed.patterns().any(|stored| stored == (pattern, Some(from)));
        if is_stored { Ok(from) } else { counted.map(|()| from) }
    }

    /// Removes a pattern that does not count yet. First it loses its time, so that a late request
    /// cannot remove one that counts. For one that counts, see
    /// [`begin_disarming`](Self::begin_disarming).
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] if there is no such pattern, or it counts, or will within two
    /// minutes.
    pub async fn disarm(&self, pattern: &KeyPattern) -> Result<(), TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        let (from, left) = inner.stored_pattern(pattern, deadline).await?;
        let counts_soon = || {
            let by = removable_from(inner.environment.now(), inner.config.pattern_lease);
            from.is_some_and(|from| from <= by)
        };
        if counts_soon() {
            return Err(TableError::ConditionFailed);
        }
        inner.check_covered(&left, deadline).await?;
        let mark = &inner.mark();
        inner.retrying(deadline, || inner.tables.mark_pattern(pattern, mark, from)).await?;
        if counts_soon() {
            // Some process may count it by now. Without a time it stays, and can be armed again.
            return Err(TableError::ConditionFailed);
        }
        inner.remove_pattern(pattern, mark, deadline).await
    }

    /// The table's patterns, each with the epoch second from which it counts. `None` if its process
    /// stopped before it gave it a time: arm it again.
    pub async fn armed(&self) -> Result<Vec<(KeyPattern, Option<u64>)>, TableError> {
        let armed = self.engine.inner.armed(self.until()).await?;
        Ok(armed.patterns().map(|(pattern, from)| (pattern.clone(), from)).collect())
    }

    /// What stands against arming keys of the main table. Look at it first: docs/adopting.md.
    pub async fn arming_obstacles(&self) -> Result<Vec<ArmingObstacle>, TableError> {
        let inner = &self.engine.inner;
        inner.retrying(self.until(), || inner.tables.arming_obstacles()).await
    }

    /// `None` if the key is armed; otherwise the epoch second from which a pattern counts that
    /// matches it, if there is one.
    pub async fn not_armed_before(
        &self,
        key: &PartitionKey,
    ) -> Result<Option<Option<u64>>, TableError> {
        self.engine.inner.job(key, self.until()).not_armed_before().await
    }
}

impl Inner {
    /// The time of a stored pattern, if it has one, and the other patterns.
    /// [`TableError::ConditionFailed`] if it is not stored.
    pub(crate) async fn stored_pattern(
        &self,
        pattern: &KeyPattern,
        deadline: Deadline,
    ) -> Result<(Option<u64>, Armed), TableError> {
        self.claim_once(deadline).await?;
        let armed = self.armed(deadline).await?;
        let stored = armed.patterns().find(|(stored, _)| *stored == pattern);
        let (_, from) = stored.ok_or(TableError::ConditionFailed)?;
        Ok((from, armed.without(pattern)))
    }

    /// Removes a pattern that has this mark and no time.
    pub(crate) async fn remove_pattern(
        &self,
        pattern: &KeyPattern,
        mark: &str,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        let remove = || self.tables.settle_pattern(pattern, mark, None);
        let removed = self.retrying(deadline, remove).await;
        // A repetition is refused by the attempt before it.
        let armed = self.armed(deadline).await?;
        if armed.patterns().all(|(stored, _)| stored != pattern) { Ok(()) } else { removed }
    }

    /// A key that the directory lists, and no pattern matches: reads of it would look at the key
    /// itself only.
    pub(crate) async fn uncovered_key(
        &self,
        armed: &Armed,
        deadline: Deadline,
    ) -> Result<Option<PartitionKey>, TableError> {
        let mut after = None;
        loop {
            let list = || self.tables.list_metadata(after.as_ref());
            let (keys, next) = self.retrying(deadline, list).await?;
            let unlisted = self.config.adopt_shards;
            let uncovered = keys.into_iter().find(|(key, raw)| {
                !armed.matches(key) && raw.parse().is_ok_and(|of| of.layout().is_listed(unlisted))
            });
            if uncovered.is_some() || next.is_none() {
                return Ok(uncovered.map(|(key, _)| key));
            }
            after = next;
        }
    }

    /// None in a table that no process has claimed.
    async fn armed(&self, deadline: Deadline) -> Result<Armed, TableError> {
        let table = self.read_table_item(deadline).await?;
        Ok(table.map(|table| table.armed).unwrap_or_default())
    }

    /// After a rebuild: if the patterns are lost, and the survey found no item of another program,
    /// every key is armed, two minutes from now. If they match less than the keys that have grown,
    /// a pattern without a time matches every key, so that reads look at all pages.
    pub(crate) async fn restore_patterns(
        &self,
        survey: &Survey,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        let (all, mark) = (KeyPattern::All, &self.mark());
        let armed = self.armed(deadline).await?;
        let is_ours = armed == Armed::lost() && survey.foreign + survey.unknown == 0;
        if !is_ours && self.uncovered_key(&armed, deadline).await?.is_none() {
            return Ok(());
        }
        self.retrying(deadline, || self.tables.mark_pattern(&all, mark, None)).await?;
        if is_ours {
            // By then no process relies on patterns from before the loss.
            let from = removable_from(self.environment.now(), self.config.pattern_lease);
            let count = || self.tables.settle_pattern(&all, mark, Some(from));
            self.retrying(deadline, count).await?;
        }
        self.read_table_item(deadline).await.map(drop)
    }
}
