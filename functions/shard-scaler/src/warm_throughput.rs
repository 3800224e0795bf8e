//! The table's *warm throughput*, that is, what it can serve at once, and that of each index. The
//! shard-scaler reads it, publishes it, and raises it within a budget.
//!
//! Writers need it: shards are hashed onto the table's partitions, and a new on-demand table has
//! four. A writer that knows the number of partitions adds no shards that cannot help, and
//! continues to add those that do. The shard-scaler reads it, because DescribeTable is a request of
//! the control plane: one process may send it now and then, ten thousand writers may not.
//!
//! The budget is 0 by default, because each added unit is charged once and cannot be given back. A
//! raise is one step, because it takes minutes (others have measured 388 to 514 seconds), and two
//! steps take twice as long.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    GlobalSecondaryIndexUpdate, IndexStatus, TableDescription, TableStatus,
    UpdateGlobalSecondaryIndexAction, WarmThroughput as SdkWarmThroughput,
};
use serde_json::{Value, json};
use sharding::WarmThroughput;
use tokio::time::{Instant as Deadline, timeout_at};

use crate::Scaler;
use crate::clients::{ClientError, Clients, in_time, provisioned};
use crate::event::{EventError, WarmUnits, WholeNumber};
use crate::response::{Handled, Outcome, Report, to_json, without_nulls};

/// The longest time that reading and publishing may delay an event.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_UNITS: u64 = 1_000_000_000;
/// The note in every response about a raise. `adviser plan` has the prices.
const COST_NOTE: &str =
    "charged once for each unit that is added; it cannot be undone; the price: docs/costs.md";

const UPDATE_IN_PROGRESS: &str = "UpdateTable: ResourceInUseException: \
                      another update of the table is under way";

const RAISE_NOT_ALLOWED: &str = "the shard-scaler may not raise it; by hand: aws dynamodb update-table --warm-throughput (docs/operations.md)";

/// The result of DescribeTable.
#[derive(Debug)]
struct DescribedThroughput {
    /// The table's own.
    table: WarmThroughput,
    /// That of each global secondary index that has one.
    indexes: BTreeMap<String, WarmThroughput>,
    /// One of them is being raised. The value may be the requested one, and not effective yet.
    is_warming: bool,
    /// The table accepts an update: none is in progress.
    is_active: bool,
}

#[derive(Debug, thiserror::Error)]
enum NotKnown {
    /// The server is not DynamoDB, or an old version.
    #[error(
        "DescribeTable shows no WarmThroughput of the {0} table: this server does not have the field"
    )]
    NotShown(&'static str),
    #[error(transparent)]
    Failed(ClientError),
}

/// The reads of one process.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Why the last read had no result, as it was reported.
    reported: Option<String>,
}

impl DescribedThroughput {
    /// `None` if the table's own value is missing.
    fn of(table: &TableDescription) -> Option<Self> {
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
    fn lowest(&self) -> WarmThroughput {
        self.indexes.values().fold(self.table, |lowest, index| lowest.lowest(*index))
    }
}

impl Looks {
    /// Reads now. If there is no result, the reason is reported once, and again only after a result
    /// or for a different reason.
    async fn look(
        &mut self,
        clients: &Clients,
        table: &str,
        deadline: Deadline,
    ) -> Result<DescribedThroughput, NotKnown> {
        let described = in_time(deadline, "DescribeTable", clients.describe(table)).await;
        let described = described.map_err(NotKnown::Failed).and_then(|table| {
            let mode = provisioned(&table).map_or("on-demand", |_| "provisioned");
            DescribedThroughput::of(&table).ok_or(NotKnown::NotShown(mode))
        });
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
}

/// A raise of the table, or of an index.
#[derive(Debug)]
struct Step {
    /// The index's name. `None` for the table.
    index: Option<String>,
    from: WarmThroughput,
    to: WarmThroughput,
}

impl Step {
    /// The raises of one update: of the table and of each index separately, because a write to the
    /// table is also a write to its indexes.
    fn all(now: &DescribedThroughput, need: WarmThroughput, budget: WarmThroughput) -> Vec<Self> {
        let indexes = now.indexes.iter().map(|(name, now)| (Some(name.as_str()), *now));
        let all = std::iter::once((None, now.table)).chain(indexes);
        all.filter_map(|(index, now)| Self::of(index, now, need, budget)).collect()
    }

    /// To the need, within the budget. `None` if that is not above the present value. It is never
    /// below the present value, because DynamoDB would reject that.
    fn of(
        index: Option<&str>,
        from: WarmThroughput,
        need: WarmThroughput,
        budget: WarmThroughput,
    ) -> Option<Self> {
        let to = combined(from, need.lowest(budget), u64::max);
        (to != from).then(|| Self { index: index.map(str::to_owned), from, to })
    }

    fn to_json(&self) -> Value {
        let (from, to) = (units(self.from), units(self.to));
        without_nulls(json!({"index": self.index, "from": from, "to": to}))
    }

    /// Only the values that rise.
    fn to_sdk(&self) -> SdkWarmThroughput {
        let rising =
            |from: u64, to: u64| (to > from).then(|| i64::try_from(to).unwrap_or(i64::MAX));
        SdkWarmThroughput::builder()
            .set_write_units_per_second(rising(self.from.write_units, self.to.write_units))
            .set_read_units_per_second(rising(self.from.read_units, self.to.read_units))
            .build()
    }
}

/// The values before and after, the charged units, and the status of the update if it was made.
fn raise_json(steps: &[Step], status: Option<String>) -> Value {
    let added = steps.iter().fold(WarmThroughput::default(), |sum, step| {
        let added = combined(step.to, step.from, u64::saturating_sub);
        combined(sum, added, u64::saturating_add)
    });
    let (table, indexes): (Vec<&Step>, Vec<&Step>) =
        steps.iter().partition(|step| step.index.is_none());
    let indexes: Vec<Value> = indexes.into_iter().map(Step::to_json).collect();
    without_nulls(json!({
        "table": table.first().map(|step| step.to_json()),
        "indexes": (!indexes.is_empty()).then_some(indexes),
        "added": units(added),
        "note": COST_NOTE,
        "status": status,
    }))
}

/// Combines the write units of two values, and the read units.
fn combined(one: WarmThroughput, other: WarmThroughput, by: fn(u64, u64) -> u64) -> WarmThroughput {
    let write_units = by(one.write_units, other.write_units);
    WarmThroughput { write_units, read_units: by(one.read_units, other.read_units) }
}

fn units(units: WarmThroughput) -> Value {
    json!({"write_units": units.write_units, "read_units": units.read_units})
}

impl Clients {
    /// Raises the warm throughput of a table and its indexes with one update. Returns its status;
    /// `None` if another update is in progress.
    async fn warm(&self, table: &str, steps: &[Step]) -> Result<Option<String>, ClientError> {
        let mut update = self.dynamodb.update_table().table_name(table);
        for step in steps {
            let Some(index) = &step.index else {
                update = update.warm_throughput(step.to_sdk());
                continue;
            };
            let index = UpdateGlobalSecondaryIndexAction::builder().index_name(index);
            let index = index.warm_throughput(step.to_sdk()).build().expect("the name is set");
            let index = GlobalSecondaryIndexUpdate::builder().update(index).build();
            update = update.global_secondary_index_updates(index);
        }
        match update.send().await {
            Ok(updated) => {
                let table = updated.table_description();
                let status = table
                    .and_then(|table| table.warm_throughput()?.status().or(table.table_status()));
                Ok(Some(status.map_or("UPDATING", TableStatus::as_str).to_owned()))
            }
            Err(error) => match error.as_service_error() {
                Some(service) if service.is_resource_in_use_exception() => Ok(None),
                _ => Err(ClientError::of("UpdateTable")(error)),
            },
        }
    }
}

/// The units that an event requests, within their bounds.
pub(crate) fn checked(asked: WarmUnits) -> Result<WarmThroughput, EventError> {
    let number = |field: &str, asked: Option<WholeNumber>| {
        let asked = asked.unwrap_or_default();
        let number = u64::try_from(asked.0).ok().filter(|units| *units <= MAX_UNITS);
        number.ok_or_else(|| asked.refused(field, format_args!("0 to {MAX_UNITS}")))
    };
    let write_units = number("write_units", asked.write_units)?;
    Ok(WarmThroughput { write_units, read_units: number("read_units", asked.read_units)? })
}

impl Scaler {
    /// Reads the table's warm throughput and publishes it to all processes of the table. Returns the
    /// lowest of the table and its indexes, or `None` if it is not known. Errors are reported, and
    /// do not make the event fail.
    pub async fn learn_warm_throughput(&self, deadline: Deadline) -> Option<WarmThroughput> {
        let deadline = deadline.min(Deadline::now() + LOOK_TIMEOUT);
        let mut looks = timeout_at(deadline, self.looks.lock()).await.ok()?;
        let described =
            looks.look(&self.clients, &self.table.config().table_name, deadline).await.ok()?;
        drop(looks);
        self.publish(&described, deadline).await;
        Some(described.lowest())
    }

    /// Publishes the result, unless a raise is in progress: then the table cannot serve that rate
    /// yet.
    async fn publish(&self, described: &DescribedThroughput, deadline: Deadline) {
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

    pub(crate) async fn warm_as_asked(&self, asked: WarmUnits, deadline: Deadline) -> Handled {
        let need = checked(asked)?;
        if need == WarmThroughput::default() {
            let why = "write_units or read_units must be above 0";
            return Err(EventError::new("write_units", why));
        }
        Ok(self.warm(need, deadline).await)
    }

    /// Raises the warm throughput to the need, as far as the budget allows. Returns what was done,
    /// or why nothing was. Publishes any value that it reads on the way.
    ///
    /// Concurrent callers make one raise. Callers in one process take turns, and each reads first.
    /// Callers in different processes may read and request at the same time. DynamoDB's reference
    /// says that it rejects all but one (`ResourceInUseException`); others have measured that it
    /// accepts them while only the `Status` of the warm throughput is `UPDATING`. Both are
    /// harmless. A raise sets a level, so requesting the same level twice adds nothing, and only
    /// added units are charged. No level exceeds the budget. The next event handles any remaining
    /// need.
    pub(crate) async fn warm(&self, need: WarmThroughput, deadline: Deadline) -> Report {
        let budget = WarmThroughput {
            write_units: self.config.max_warm_write_units,
            read_units: self.config.max_warm_read_units,
        };
        // Boxed, because the SDK's futures nest deeply.
        let report = Box::pin(self.warm_within(budget, need, deadline)).await;
        tracing::info!(audit = true, answer = %to_json(&report), "warm throughput decision");
        report
    }

    async fn warm_within(
        &self,
        budget: WarmThroughput,
        needed: WarmThroughput,
        deadline: Deadline,
    ) -> Report {
        let report = |limited_by: Option<String>, outcome| Report {
            outcome,
            details: without_nulls(json!({"needed": units(needed), "limited_by": limited_by})),
        };
        if needed.lowest(budget) == WarmThroughput::default() {
            return report(limited(needed, budget), Outcome::unchanged(RAISE_NOT_ALLOWED));
        }
        let Ok(mut looks) = timeout_at(deadline, self.looks.lock()).await else {
            return report(None, Outcome::failed("DescribeTable: no answer in time", true));
        };
        let now = match looks.look(&self.clients, &self.table.config().table_name, deadline).await {
            Ok(now) => now,
            Err(error @ NotKnown::NotShown(_)) => return report(None, Outcome::unchanged(error)),
            Err(NotKnown::Failed(error)) => return report(None, Outcome::of_client_error(&error)),
        };
        let steps = Step::all(&now, needed, budget);
        let suffices = Step::all(&now, needed, needed).is_empty();
        let limited_by = if suffices { None } else { limited(needed, budget) };
        let outcome = self.raise(&now, &steps, limited_by.is_some(), deadline).await;
        drop(looks);
        // Read afterwards, because a raise takes minutes. Writers need this read, too: it is the
        // first that shows the end of a raise.
        self.publish(&now, deadline).await;
        report(limited_by, outcome)
    }

    async fn raise(
        &self,
        now: &DescribedThroughput,
        steps: &[Step],
        is_limited: bool,
        deadline: Deadline,
    ) -> Outcome {
        if steps.is_empty() {
            return Outcome::unchanged(match (now.is_warming, is_limited) {
                (true, _) => "as much was asked for already",
                (false, true) => "the table can serve as much already as the budget allows",
                (false, false) => "the table can serve as much already",
            });
        }
        // DynamoDB may accept a second raise during the first, but two steps take longer than one,
        // and the first may be enough.
        if now.is_warming || !now.is_active {
            return Outcome::unchanged("another update of the table is under way");
        }
        if self.config.dry_run {
            return Outcome::DryRun(raise_json(steps, None));
        }
        let table = &self.table.config().table_name;
        match in_time(deadline, "UpdateTable", self.clients.warm(table, steps)).await {
            Ok(Some(status)) => Outcome::Warming(raise_json(steps, Some(status))),
            Ok(None) => Outcome::unchanged(UPDATE_IN_PROGRESS),
            // Without a response it may have been accepted: the next read shows it.
            Err(error) => {
                tracing::error!(%error, "the table's warm throughput could not be raised");
                Outcome::of_client_error(&error)
            }
        }
    }
}

/// Names the part that the budget does not allow, by the variable's name, and logs it.
fn limited(need: WarmThroughput, budget: WarmThroughput) -> Option<String> {
    let sides = [
        ("MAX_WARM_WRITE_UNITS", need.write_units, budget.write_units),
        ("MAX_WARM_READ_UNITS", need.read_units, budget.read_units),
    ];
    let short = sides.into_iter().filter(|(_, need, allowed)| need > allowed);
    let named: Vec<String> = short
        .map(|(name, need, allowed)| format!("{name} is {allowed}, {need} are needed"))
        .collect();
    let beyond = (!named.is_empty()).then(|| named.join("; "))?;
    tracing::warn!(
        beyond,
        "the table needs more warm throughput than the shard-scaler may ask for"
    );
    Some(beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warm(write_units: u64, read_units: u64) -> WarmThroughput {
        WarmThroughput { write_units, read_units }
    }

    #[test]
    fn a_step_goes_to_the_need_within_the_budget_and_never_down() {
        let new = warm(4_000, 12_000);
        let rows = [
            (new, warm(24_000, 0), warm(40_000, 0), Some(warm(24_000, 12_000))),
            (new, warm(24_000, 0), warm(10_000, 0), Some(warm(10_000, 12_000))),
            (new, warm(24_000, 30_000), warm(40_000, 40_000), Some(warm(24_000, 30_000))),
            (new, warm(24_000, 30_000), warm(40_000, 0), Some(warm(24_000, 12_000))),
            // Never, by default.
            (new, warm(24_000, 0), warm(0, 0), None),
            // The present value is enough, or above the budget.
            (new, warm(4_000, 0), warm(40_000, 0), None),
            (warm(30_000, 12_000), warm(24_000, 0), warm(40_000, 0), None),
            (warm(30_000, 12_000), warm(50_000, 0), warm(20_000, 0), None),
        ];
        for (now, need, budget, expected) in rows {
            let to = Step::of(None, now, need, budget).map(|step| step.to);
            assert_eq!(to, expected, "{now:?} {need:?} {budget:?}");
        }
    }
}
