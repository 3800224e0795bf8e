//! The table's *warm throughput*, that is, what it can serve at once, and that of each index. The
//! shard-scaler reads it and publishes it.
//!
//! Writers need it: shards are hashed onto the table's partitions, and a new on-demand table has
//! four. A writer that knows the number of partitions adds no shards that cannot help, and
//! continues to add those that do. The shard-scaler reads it, because DescribeTable is a request of
//! the control plane: one process may send it now and then, ten thousand writers may not.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::{IndexStatus, TableDescription, TableStatus};
use sharding::WarmThroughput;
use tokio::time::{Instant as Deadline, timeout_at};

use crate::Scaler;
use crate::clients::{ClientError, Clients, capacity, in_time};

/// The time between two reads of one process.
const RECHECK_PERIOD: Duration = Duration::from_secs(60);
/// The same while a raise is in progress, so that its end is published soon.
const WARMING_RECHECK_PERIOD: Duration = Duration::from_secs(2);
/// The longest time that reading and publishing may delay an event.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of DescribeTable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DescribedThroughput {
    /// The table's own.
    pub(crate) table: WarmThroughput,
    /// That of each global secondary index that has one.
    pub(crate) indexes: BTreeMap<String, WarmThroughput>,
    /// One of them is being raised. The value may be the requested one, and not effective yet.
    pub(crate) is_warming: bool,
    /// The table accepts an update: none is in progress.
    pub(crate) is_active: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum NotKnown {
    /// The server is not DynamoDB, or an old version.
    #[error(
        "DescribeTable shows no WarmThroughput of the {0} table: this server does not have the field"
    )]
    NotShown(&'static str),
    #[error(transparent)]
    Failed(ClientError),
}

/// The results of one process's reads.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    last: Option<(Deadline, Option<DescribedThroughput>)>,
    /// This process has requested a raise since the last read.
    has_asked: bool,
    /// Why the last read had no result, as it was reported.
    reported: Option<String>,
}

impl DescribedThroughput {
    /// `None` if the table's own value is missing.
    pub(crate) fn of(table: &TableDescription) -> Option<Self> {
        let units = |write: Option<i64>, read: Option<i64>| {
            let write_units = write?.try_into().ok()?;
            Some(WarmThroughput { write_units, read_units: read?.try_into().ok()? })
        };
        let own = table.warm_throughput()?;
        let mut described = Self {
            table: units(own.write_units_per_second(), own.read_units_per_second())?,
            indexes: BTreeMap::new(),
            is_warming: own.status() == Some(&TableStatus::Updating),
            is_active: table.table_status() == Some(&TableStatus::Active),
        };
        for index in table.global_secondary_indexes() {
            let Some((name, warm)) = index.index_name().zip(index.warm_throughput()) else {
                continue;
            };
            described.is_warming |= warm.status() == Some(&IndexStatus::Updating);
            if let Some(units) = units(warm.write_units_per_second(), warm.read_units_per_second())
            {
                described.indexes.insert(name.to_owned(), units);
            }
        }
        Some(described)
    }

    /// The lowest of the table and its indexes, because a write to the table is also a write to its
    /// indexes.
    pub(crate) fn lowest(&self) -> WarmThroughput {
        self.indexes.values().fold(self.table, |lowest, index| lowest.lowest(*index))
    }
}

impl Looks {
    /// Reads now. If there is no result, the reason is reported once, and again only after a result
    /// or for a different reason.
    pub(crate) async fn look(
        &mut self,
        clients: &Clients,
        table: &str,
        deadline: Deadline,
    ) -> Result<DescribedThroughput, NotKnown> {
        let described = in_time(deadline, "DescribeTable", clients.describe(table)).await;
        let described = described.map_err(NotKnown::Failed).and_then(|table| {
            let is_provisioned = capacity(&table).provisioned.is_some();
            let mode = if is_provisioned { "provisioned" } else { "on-demand" };
            DescribedThroughput::of(&table).ok_or(NotKnown::NotShown(mode))
        });
        self.last = Some((Deadline::now(), described.as_ref().ok().cloned()));
        self.has_asked = false;
        let why = described.as_ref().err().map(ToString::to_string);
        if let Some(why) = why.as_deref().filter(|why| self.reported.as_deref() != Some(*why)) {
            tracing::warn!(
                why,
                "the table's warm throughput is not known: scaling goes on without it"
            );
        }
        self.reported = why;
        described
    }

    /// This process requests a raise. Whatever the response is, a raise may be in progress from now
    /// on.
    pub(crate) const fn ask(&mut self) {
        self.has_asked = true;
    }

    /// The result of a recent read, if there was one.
    fn recent(&self) -> Option<Option<&DescribedThroughput>> {
        let (at, described) = self.last.as_ref()?;
        let is_warming =
            self.has_asked || described.as_ref().is_some_and(|described| described.is_warming);
        let pause = if is_warming { WARMING_RECHECK_PERIOD } else { RECHECK_PERIOD };
        (Deadline::now() < *at + pause).then_some(described.as_ref())
    }
}

impl Scaler {
    /// Reads the table's warm throughput and publishes it to all processes of the table: in each
    /// process at most once a minute, and every two seconds while a raise is in progress. Returns
    /// the lowest of the table and its indexes, or `None` if it is not known. Errors are reported,
    /// and do not make the event fail.
    pub async fn learn_warm_throughput(&self, deadline: Deadline) -> Option<WarmThroughput> {
        let deadline = deadline.min(Deadline::now() + LOOK_TIMEOUT);
        let mut looks = timeout_at(deadline, self.looks.lock()).await.ok()?;
        if let Some(recent) = looks.recent() {
            return recent.map(DescribedThroughput::lowest);
        }
        let described =
            looks.look(&self.clients, &self.table.config().table_name, deadline).await.ok()?;
        drop(looks);
        self.publish(&described, deadline).await;
        Some(described.lowest())
    }

    /// Publishes the result, unless a raise is in progress: then the table cannot serve that rate
    /// yet.
    pub(crate) async fn publish(&self, described: &DescribedThroughput, deadline: Deadline) {
        if self.config.dry_run || described.is_warming {
            return;
        }
        let deadline = deadline.min(Deadline::now() + LOOK_TIMEOUT);
        let maintenance = self.maintenance(deadline);
        let publishing = maintenance.publish_warm_throughput(described.lowest());
        let again = "the table's warm throughput could not be published; the next look tries again";
        match timeout_at(deadline, publishing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "{again}"),
            Err(_) => tracing::warn!(error = "no answer in time", "{again}"),
        }
    }
}
