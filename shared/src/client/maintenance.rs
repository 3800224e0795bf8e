//! What an operator of a table does, and a schedule: shrink and settle keys, follow and repair the
//! metadata, and publish the table's warm throughput.
//!
//! The table's writers need none of it. A program that runs it on a schedule calls
//! [`list`](Maintenance::list), asks [`due`](Maintenance::due) for each key, and
//! [`begin`](Maintenance::begin)s and [`drain`](Maintenance::drain)s what it names, about once a
//! minute. Any number of programs may do so at once. `examples/own_maintenance.rs` shows it for the
//! whole life of one key.

use futures_util::{StreamExt, stream};
use tokio::sync::broadcast;

use crate::client::ShardedTable;
use crate::client::request::{Within, within};
use crate::engine::Deadline;
use crate::table::error::TableError;
use crate::values::key::{PartitionKey, ShardCount};
use crate::values::throughput::WarmThroughput;

pub use crate::engine::disarming::{Disarming, PlainPage};
pub use crate::engine::drain::Drained;
pub use crate::engine::drain::begin::{DrainRefused, Due, ShrinkAndSettle};
pub use crate::engine::drain::moves::DrainBudget;
pub use crate::engine::survey::{Rebuilt, SurveyPage};
pub use crate::engine::width::by_policy::ReportedKey;
pub use crate::engine::width::{
    ScaleError, ScaleOutcome, ScalingEvent, ScalingReason, ScalingStep,
};
pub use crate::policy::decision::ScalingDecision;
pub use crate::policy::pressure::Pressure;
pub use crate::protocol::armed::{KeyPattern, PatternError};
pub use crate::protocol::directory::MAX_COPIES;
pub use crate::protocol::history::{HistoryEntry, HistoryError, ShardHistory};
pub use crate::protocol::metadata::{Drain, Phase, ShardMetadata};
pub use crate::protocol::survey::{KeyFindings, Survey};
pub use crate::table::ScanPosition;
pub use crate::table::obstacles::ArmingObstacle;

/// See the [module](self) and [`ShardedTable::maintenance`]. Each call has the timeout of a
/// request, or the deadline that was set. A call that reaches its deadline keeps the work that it
/// has done, and the next call continues. Three calls go through the whole directory from its
/// beginning, and need a longer timeout where many keys have grown, such as ten minutes:
/// [`repair_directory`](Self::repair_directory), [`rebuild_directory`](Self::rebuild_directory) and
/// [`raise_directory_copies`](Self::raise_directory_copies).
///
/// # Errors
/// Every call fails with a [`TableError`] if it could not use a table: run it again. Each call
/// names its other errors.
#[derive(Debug, Clone)]
pub struct Maintenance {
    table: ShardedTable,
    within: Within,
}

impl Maintenance {
    pub(crate) fn new(table: ShardedTable) -> Self {
        Self { table, within: Within::default() }
    }

    fn until(&self) -> Deadline {
        self.within.deadline(self.table.config())
    }

    /// Checks that the table accepts the writes that this process is configured for. The first
    /// process of a new table stores its settings. The first write of a process does the same.
    ///
    /// # Errors
    /// [`TableError::Unusable`] if the table accepts other writes, uses another protocol, or has
    /// metadata of an earlier version: do not use the table. [`TableError::Lost`] if it has sharded
    /// items and no metadata.
    pub async fn claim(&self) -> Result<(), TableError> {
        self.table.engine().claim_mode(self.until()).await
    }

    /// As [`claim`](Self::claim), but a new table begins without an armed key, even if it is empty.
    pub async fn claim_unarmed(&self) -> Result<(), TableError> {
        self.table.engine().claim_unarmed(self.until()).await
    }

    /// As [`claim`](Self::claim), for a process that only reads: it never stores settings.
    pub async fn check(&self) -> Result<(), TableError> {
        self.table.engine().check_mode(self.until()).await
    }

    /// As [`claim`](Self::claim), for a process that is about to [`rebuild`](Self::rebuild) the
    /// metadata: lost metadata is no error. If the table's settings are lost, other processes refuse
    /// to start until the rebuild has ended.
    pub async fn claim_for_rebuild(&self) -> Result<(), TableError> {
        self.table.engine().claim_for_rebuild(self.until()).await
    }

    /// Reads the metadata of a key, strongly consistent. `None` if it has never grown.
    ///
    /// # Errors
    /// [`TableError::Lost`] if the directory lists the key and its metadata is gone.
    pub async fn metadata(&self, key: &PartitionKey) -> Result<Option<ShardMetadata>, TableError> {
        self.table.engine().shards(key, self.until()).await
    }

    /// Arms the keys of a pattern: once it counts, the product writes them, and they may grow, so no
    /// other program may write them any more. Returns the epoch second from which the pattern
    /// counts: 18 minutes from now, or with [`TableConfig::drain_wait`](crate::TableConfig) after
    /// that wait. A pattern that has a time keeps it. It also tags the main table with the name of
    /// its metadata table, so that no other deployment arms its keys.
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
        self.table.engine().tag(self.until()).await?;
        self.table.engine().arm(pattern, self.until()).await
    }

    /// What stands against arming keys of the main table. Look at it first: docs/adopting.md.
    pub async fn arming_obstacles(&self) -> Result<Vec<ArmingObstacle>, TableError> {
        self.table.engine().arming_obstacles(self.until()).await
    }

    /// Removes a pattern that does not count yet. For one that counts, see
    /// [`begin_disarming`](Self::begin_disarming).
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] if there is no such pattern, or it counts, or will within two
    /// minutes.
    pub async fn disarm(&self, pattern: &KeyPattern) -> Result<(), TableError> {
        self.table.engine().disarm(pattern, self.until()).await
    }

    /// Begins to disarm a pattern that counts: it loses its time. Stop all processes of the product
    /// before. From [`Disarming::may_continue_at`] on, 18 minutes later, call
    /// [`disarm_page`](Self::disarm_page) for each page: it removes what the product has stored in
    /// the items of its keys. Then [`end_disarming`](Self::end_disarming) removes the pattern.
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] if there is no such pattern; [`TableError::Rejected`] if one of
    /// its keys has grown.
    pub async fn begin_disarming(&self, pattern: &KeyPattern) -> Result<Disarming, TableError> {
        self.table.engine().begin_disarming(pattern, self.until()).await
    }

    /// Removes the product's attributes and tombstones from the items of disarmed keys on one page
    /// of the main table. Returns the position of the next page. It may be repeated.
    ///
    /// # Errors
    /// [`TableError::Rejected`] before [`Disarming::may_continue_at`], or if an item shows that a key
    /// has grown or that a process still writes.
    pub async fn disarm_page(
        &self,
        disarming: &Disarming,
        after: Option<&ScanPosition>,
    ) -> Result<(PlainPage, Option<ScanPosition>), TableError> {
        self.table.engine().disarm_page(disarming, after, self.until()).await
    }

    /// Removes the pattern, once all pages are done.
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] if the pattern was armed again; [`TableError::Rejected`] if
    /// one of its keys has grown.
    pub async fn end_disarming(&self, disarming: Disarming) -> Result<(), TableError> {
        self.table.engine().end_disarming(disarming, self.until()).await
    }

    /// The table's patterns, each with the epoch second from which it counts; `None` if it was not
    /// given a time, because its process stopped: arm it again.
    pub async fn armed(&self) -> Result<Vec<(KeyPattern, Option<u64>)>, TableError> {
        let armed = self.table.engine().armed(self.until()).await?;
        Ok(armed.patterns().map(|(pattern, from)| (pattern.clone(), from)).collect())
    }

    /// Whether a key is armed: `None` if it is; otherwise the epoch second from which a pattern
    /// counts that matches it, if there is one.
    pub async fn not_armed_before(
        &self,
        key: &PartitionKey,
    ) -> Result<Option<Option<u64>>, TableError> {
        self.table.engine().not_armed_before(key, self.until()).await
    }

    /// A page of the keys that have metadata, in no order, and the key to continue after. One
    /// request. A key that is registered meanwhile may be missing.
    pub async fn list(
        &self,
        after: Option<&PartitionKey>,
    ) -> Result<(Vec<(PartitionKey, ShardMetadata)>, Option<PartitionKey>), TableError> {
        self.table.engine().list_keys(after, self.until()).await
    }

    /// The events of this process's changes of shards from now on, in order. A slow receiver misses
    /// old ones.
    pub fn events(&self) -> broadcast::Receiver<ScalingEvent> {
        self.table.engine().scaling_events()
    }

    /// What is due for a key now. `is_calm` says that the key was not throttled lately; only a calm
    /// key shrinks.
    pub fn due(
        &self,
        metadata: &ShardMetadata,
        plan: &ShrinkAndSettle,
        is_calm: bool,
    ) -> Option<Due> {
        plan.due(self.table.config(), metadata, is_calm, self.table.engine().epoch_seconds())
    }

    /// Begins what is due for a key. [`drain`](Self::drain) does the rest.
    ///
    /// # Errors
    /// As [`shrink`](Self::shrink).
    pub async fn begin(&self, key: &PartitionKey, due: Due) -> Result<(), DrainRefused> {
        match due {
            Due::Shrink(to) => self.shrink(key, to).await.map(drop),
            Due::Settle => self.settle(key).await.map(drop),
            Due::Open => self.finish_change(key).await.map(drop).map_err(DrainRefused::Table),
            // The drain begins it.
            Due::Purge => Ok(()),
        }
    }

    /// Raises a key to this number of shards ahead of a known peak, as
    /// [`ShardedTable::set_shards`], and says what was done.
    ///
    /// # Errors
    /// [`ScaleError`]. A number below the present one is refused.
    pub async fn grow(
        &self,
        key: &PartitionKey,
        to: ShardCount,
    ) -> Result<ScaleOutcome, ScaleError> {
        self.table.engine().set_shards(key, to, self.until()).await
    }

    /// Lowers a key to this number of shards. [`drain`](Self::drain) then moves the items of the
    /// others.
    ///
    /// # Errors
    /// [`DrainRefused`] if the number is not lower, or the key is being changed.
    pub async fn shrink(
        &self,
        key: &PartitionKey,
        to: ShardCount,
    ) -> Result<ShardMetadata, DrainRefused> {
        self.table.engine().begin_shrink(key, to, self.until()).await
    }

    /// Begins to settle a key. Once [`drain`](Self::drain) has finished, every item is at its home,
    /// and requests for one item look at one place.
    ///
    /// # Errors
    /// [`DrainRefused`] if the key is being changed, or the table takes appends only.
    pub async fn settle(&self, key: &PartitionKey) -> Result<ShardMetadata, DrainRefused> {
        self.table.engine().begin_settle(key, self.until()).await
    }

    /// Continues a key's drain until it is done, has to wait, or the deadline is near, within these
    /// budgets besides the configured pace. It also removes the tombstones of a settled key, a
    /// while later. Any process may call it at any time. After an error, the work so far is kept.
    pub async fn drain(
        &self,
        key: &PartitionKey,
        budgets: &[&DrainBudget],
    ) -> Result<Drained, TableError> {
        self.table.engine().drain_within(key, budgets, self.until()).await
    }

    /// Finishes a change of a key's shards whose process stopped halfway.
    pub async fn finish_change(&self, key: &PartitionKey) -> Result<ScaleOutcome, TableError> {
        self.table.engine().finish_change(key, self.until()).await
    }

    /// Decides by the policy about a key that a report names as throttled, such as an alarm's.
    /// Changes nothing. `warm` is the table's warm throughput if the caller knows it; otherwise the
    /// [published](Self::publish_warm_throughput) one counts.
    pub async fn reported<'a>(
        &'a self,
        key: &'a PartitionKey,
        warm: Option<WarmThroughput>,
    ) -> Result<ReportedKey<'a>, TableError> {
        self.table.engine().decide_by_report(key, warm, self.until()).await
    }

    /// Publishes the table's warm throughput to all its processes: the lowest of the main table and
    /// its indexes. Writers then know the table's partitions, and how many shards help.
    pub async fn publish_warm_throughput(&self, warm: WarmThroughput) -> Result<(), TableError> {
        self.table.engine().publish_warm_throughput(warm, self.until()).await
    }

    /// The table's warm throughput, from the key's page of the directory. `None` if it was not
    /// published.
    pub async fn warm_throughput(
        &self,
        key: &PartitionKey,
    ) -> Result<Option<WarmThroughput>, TableError> {
        self.table.engine().warm_throughput(key, self.until()).await
    }

    /// Raises the number of copies of each page of the directory, up to [`MAX_COPIES`], while
    /// traffic runs. An instance reads one copy, so more copies spread many instances. A lower
    /// number changes nothing.
    ///
    /// # Errors
    /// [`TableError::Rejected`] for a number that is not allowed.
    pub async fn raise_directory_copies(&self, copies: u32) -> Result<(), TableError> {
        self.table.engine().raise_directory_copies(copies, self.until()).await
    }

    /// Compares the directory with the metadata, and writes what is missing, because a process may
    /// have died between the two. Returns the number of entries that were behind.
    pub async fn repair_directory(&self) -> Result<u64, TableError> {
        self.table.engine().repair_directory(self.until()).await
    }

    /// Adds to the survey the keys whose metadata cannot be parsed, or would hide items; from a page
    /// of the metadata table. Returns the key to continue after. The first step of a rebuild.
    pub async fn survey_metadata_page(
        &self,
        survey: &mut Survey,
        after: Option<&PartitionKey>,
    ) -> Result<Option<PartitionKey>, TableError> {
        self.table.engine().survey_metadata_page(survey, after, self.until()).await
    }

    /// Reads a page of the main table, strongly consistent, and adds it to the survey. One request.
    /// The second step of a rebuild.
    pub async fn survey_page(
        &self,
        survey: &mut Survey,
        after: Option<&ScanPosition>,
    ) -> Result<SurveyPage, TableError> {
        self.table.engine().survey_page(survey, after, self.until()).await
    }

    /// Changes a key's metadata so that it covers every item that was found. It never removes a
    /// shard. The third step of a rebuild, for each key of the survey
    /// ([`rebuild_all`](Self::rebuild_all)).
    pub async fn rebuild(
        &self,
        key: &PartitionKey,
        findings: &KeyFindings,
    ) -> Result<Rebuilt, TableError> {
        self.table.engine().rebuild(key, findings, self.until()).await
    }

    /// [Rebuilds](Self::rebuild) every key of a survey, up to `concurrency` of them at once. Calls
    /// `rebuilt` with the result of each.
    pub async fn rebuild_all(
        &self,
        survey: &Survey,
        concurrency: usize,
        mut rebuilt: impl FnMut(&PartitionKey, Result<Rebuilt, TableError>),
    ) {
        let rebuilding: Vec<_> = survey
            .keys()
            .map(|(key, findings)| async move { (key, self.rebuild(key, findings).await) })
            .collect();
        let mut rebuilding = stream::iter(rebuilding).buffer_unordered(concurrency.max(1));
        while let Some((key, result)) = rebuilding.next().await {
            rebuilt(key, result);
        }
    }

    /// The last step of a rebuild: does what [`repair_directory`](Self::repair_directory) does, and
    /// recreates lost pages, and the items that are older than their entries. If the patterns of
    /// armed keys were lost, every key is armed again, unless the survey found an item of another
    /// program. Returns the number of entries that were behind, and of items that were recreated.
    pub async fn rebuild_directory(&self, survey: &Survey) -> Result<(u64, u64), TableError> {
        let engine = self.table.engine();
        let rebuilt = engine.rebuild_directory(self.until()).await?;
        engine.restore_patterns(survey, self.until()).await?;
        Ok(rebuilt)
    }
}

within!(Maintenance);
