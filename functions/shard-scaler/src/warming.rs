//! Raising the table's warm throughput, and that of its indexes, within a budget.
//!
//! The budget is 0 by default, because each added unit is charged once and cannot be given back. A
//! raise is one step, because it takes minutes (others have measured 388 to 514 seconds), and two
//! steps take twice as long.

use std::fmt::Display;

use aws_sdk_dynamodb::types::{
    GlobalSecondaryIndexUpdate, TableStatus, UpdateGlobalSecondaryIndexAction,
    WarmThroughput as SdkWarmThroughput,
};
use serde::{Serialize, Serializer};
use sharding::WarmThroughput;
use tokio::time::Instant as Deadline;
use tokio::time::timeout_at;

use crate::Scaler;
use crate::clients::{ClientError, Clients, in_time};
use crate::event::{EventError, WarmUnits, WholeNumber};
use crate::response::{self, Failure, to_json};
use crate::telemetry;
use crate::warm_throughput::{DescribedThroughput, Looks, NotKnown};

/// The largest number of units that an event may request.
const MAX_UNITS: u64 = 1_000_000_000;
/// The note in every response about a raise. `adviser plan` has the prices.
const COST_NOTE: &str =
    "charged once for each unit that is added; it cannot be undone; the price: docs/costs.md";

/// DynamoDB rejected the raise because another update is in progress.
const UPDATE_IN_PROGRESS: &str = "UpdateTable: ResourceInUseException: \
                      another update of the table is under way";

/// The budget allows none of the needed units.
const RAISE_NOT_ALLOWED: &str = "the shard-scaler may not raise it; by hand: aws dynamodb update-table --warm-throughput (docs/operations.md)";

/// The result for needed warm throughput.
#[derive(Debug, Serialize)]
pub(crate) struct WarmReport {
    #[serde(serialize_with = "units")]
    needed: WarmThroughput,
    /// The part that the budget does not allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    limited_by: Option<String>,
    #[serde(flatten, serialize_with = "response::outcome")]
    outcome: Result<WarmOutcome, Failure>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
enum WarmOutcome {
    Unchanged { reason: String },
    DryRun(Raise),
    Warming(Raise),
}

/// The values before and after, and the charged units.
#[derive(Debug, Serialize)]
struct Raise {
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<Step>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<IndexStep>,
    #[serde(serialize_with = "units")]
    added: WarmThroughput,
    note: &'static str,
    /// The status of the update, if it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct IndexStep {
    index: String,
    #[serde(flatten)]
    step: Step,
}

/// The warm throughput to request: the needed one, within the budget. `None` if that is not above
/// the present one. It is never below the present one, because DynamoDB would reject that.
pub(crate) fn warm_to(
    now: WarmThroughput,
    need: WarmThroughput,
    budget: WarmThroughput,
) -> Option<WarmThroughput> {
    let allowed = need.lowest(budget);
    let to = WarmThroughput {
        write_units: now.write_units.max(allowed.write_units),
        read_units: now.read_units.max(allowed.read_units),
    };
    (to != now).then_some(to)
}

/// The part of the need that the budget does not allow, by the variable's name.
fn beyond(need: WarmThroughput, budget: WarmThroughput) -> Option<String> {
    let sides = [
        ("MAX_WARM_WRITE_UNITS", need.write_units, budget.write_units),
        ("MAX_WARM_READ_UNITS", need.read_units, budget.read_units),
    ];
    let short = sides.into_iter().filter(|(_, need, allowed)| need > allowed);
    let named: Vec<String> = short
        .map(|(name, need, allowed)| format!("{name} is {allowed}, {need} are needed"))
        .collect();
    (!named.is_empty()).then(|| named.join("; "))
}

/// A raise of the table, or of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Step {
    #[serde(serialize_with = "units")]
    from: WarmThroughput,
    #[serde(serialize_with = "units")]
    to: WarmThroughput,
}

impl Step {
    fn of(from: WarmThroughput, need: WarmThroughput, budget: WarmThroughput) -> Option<Self> {
        warm_to(from, need, budget).map(|to| Self { from, to })
    }

    fn added(self) -> WarmThroughput {
        WarmThroughput {
            write_units: self.to.write_units - self.from.write_units,
            read_units: self.to.read_units - self.from.read_units,
        }
    }

    /// Only the values that rise.
    fn to_sdk(self) -> SdkWarmThroughput {
        let rising =
            |from: u64, to: u64| (to > from).then(|| i64::try_from(to).unwrap_or(i64::MAX));
        SdkWarmThroughput::builder()
            .set_write_units_per_second(rising(self.from.write_units, self.to.write_units))
            .set_read_units_per_second(rising(self.from.read_units, self.to.read_units))
            .build()
    }
}

/// The raises of one update of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Steps {
    table: Option<Step>,
    indexes: Vec<IndexStep>,
}

impl Steps {
    /// The table and each index separately, because a write to the table is also a write to its
    /// indexes.
    fn of(now: &DescribedThroughput, need: WarmThroughput, budget: WarmThroughput) -> Self {
        let of_index = |(name, now): (&String, &WarmThroughput)| {
            Some(IndexStep { index: name.clone(), step: Step::of(*now, need, budget)? })
        };
        let indexes = now.indexes.iter().filter_map(of_index).collect();
        Self { table: Step::of(now.table, need, budget), indexes }
    }

    fn is_empty(&self) -> bool {
        self.table.is_none() && self.indexes.is_empty()
    }

    /// The charged units.
    fn added(&self) -> WarmThroughput {
        let steps = self.table.iter().chain(self.indexes.iter().map(|index| &index.step));
        steps.fold(WarmThroughput::default(), |sum, step| {
            let added = step.added();
            WarmThroughput {
                write_units: sum.write_units.saturating_add(added.write_units),
                read_units: sum.read_units.saturating_add(added.read_units),
            }
        })
    }

    fn raise(self, status: Option<String>) -> Raise {
        let added = self.added();
        Raise { table: self.table, indexes: self.indexes, added, note: COST_NOTE, status }
    }
}

fn units<S: Serializer>(units: &WarmThroughput, serializer: S) -> Result<S::Ok, S::Error> {
    let fields = [("write_units", units.write_units), ("read_units", units.read_units)];
    serializer.collect_map(fields)
}

impl Clients {
    /// Raises the warm throughput of a table and its indexes with one update. Returns its status;
    /// `None` if another update is in progress.
    async fn warm(&self, table: &str, steps: &Steps) -> Result<Option<String>, ClientError> {
        let mut update = self.dynamodb.update_table().table_name(table);
        update = update.set_warm_throughput(steps.table.map(Step::to_sdk));
        for IndexStep { index, step } in &steps.indexes {
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
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|error| error.is_resource_in_use_exception()) =>
            {
                Ok(None)
            }
            Err(error) => Err(ClientError::of("UpdateTable")(error)),
        }
    }
}

/// The units that an event requests, within their bounds.
pub(crate) fn checked(asked: WarmUnits) -> Result<WarmThroughput, EventError> {
    let number = |field: &str, asked: Option<WholeNumber>| {
        let asked = asked.unwrap_or_default();
        let number = u64::try_from(asked.0).ok().filter(|units| *units <= MAX_UNITS);
        let why = format_args!("it is {asked}; allowed: 0 to {MAX_UNITS}");
        number.ok_or_else(|| EventError::new(field, why))
    };
    let write_units = number("write_units", asked.write_units)?;
    Ok(WarmThroughput { write_units, read_units: number("read_units", asked.read_units)? })
}

impl Scaler {
    /// A direct event.
    pub(crate) async fn warm_as_asked(
        &self,
        asked: WarmUnits,
        deadline: Deadline,
    ) -> Result<WarmReport, EventError> {
        let need = checked(asked)?;
        if need == WarmThroughput::default() {
            return Err(EventError::new(
                "write_units",
                "write_units or read_units must be above 0",
            ));
        }
        Ok(self.warm(need, deadline).await)
    }

    /// The keys of an alarm need this number of write units a second, and the table has too few
    /// partitions.
    pub(crate) async fn relieve_table(&self, write_units: u64, deadline: Deadline) -> WarmReport {
        telemetry::short_of_partitions(write_units);
        self.warm(WarmThroughput { write_units, read_units: 0 }, deadline).await
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
    pub(crate) async fn warm(&self, need: WarmThroughput, deadline: Deadline) -> WarmReport {
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
    ) -> WarmReport {
        let report = |limited_by, outcome| WarmReport { needed, limited_by, outcome };
        if needed.lowest(budget) == WarmThroughput::default() {
            return report(limited(needed, budget), unchanged(RAISE_NOT_ALLOWED));
        }
        let Ok(mut looks) = timeout_at(deadline, self.looks.lock()).await else {
            return report(None, Err(Failure::new("DescribeTable: no answer in time", true)));
        };
        let now = match looks.look(&self.clients, &self.table.config().table_name, deadline).await {
            Ok(now) => now,
            Err(error @ NotKnown::NotShown(_)) => return report(None, unchanged(error)),
            Err(NotKnown::Failed(error)) => {
                return report(None, Err(Failure::new(&error, error.is_retryable)));
            }
        };
        let steps = Steps::of(&now, needed, budget);
        let suffices = Steps::of(&now, needed, needed).is_empty();
        let limited_by = if suffices { None } else { limited(needed, budget) };
        let outcome = self.raise(&mut looks, &now, steps, limited_by.is_some(), deadline).await;
        drop(looks);
        // Read afterwards, because a raise takes minutes. Writers need this read, too: it is the
        // first that shows the end of a raise.
        self.publish(&now, deadline).await;
        report(limited_by, outcome)
    }

    async fn raise(
        &self,
        looks: &mut Looks,
        now: &DescribedThroughput,
        steps: Steps,
        is_limited: bool,
        deadline: Deadline,
    ) -> Result<WarmOutcome, Failure> {
        if steps.is_empty() {
            return unchanged(match (now.is_warming, is_limited) {
                (true, _) => "as much was asked for already",
                (false, true) => "the table can serve as much already as the budget allows",
                (false, false) => "the table can serve as much already",
            });
        }
        // DynamoDB may accept a second raise during the first, but two steps take longer than one,
        // and the first may be enough.
        if now.is_warming || !now.is_active {
            return unchanged("another update of the table is under way");
        }
        if self.config.dry_run {
            return Ok(WarmOutcome::DryRun(steps.raise(None)));
        }
        looks.ask();
        let table = &self.table.config().table_name;
        match in_time(deadline, "UpdateTable", self.clients.warm(table, &steps)).await {
            Ok(Some(status)) => Ok(WarmOutcome::Warming(steps.raise(Some(status)))),
            Ok(None) => unchanged(UPDATE_IN_PROGRESS),
            // Without a response it may have been accepted: the next read shows it.
            Err(error) => {
                tracing::error!(%error, "the table's warm throughput could not be raised");
                Err(Failure::new(&error, error.is_retryable))
            }
        }
    }
}

/// Names and logs the part that the budget does not allow.
fn limited(need: WarmThroughput, budget: WarmThroughput) -> Option<String> {
    let beyond = beyond(need, budget)?;
    tracing::warn!(
        beyond,
        "the table needs more warm throughput than the shard-scaler may ask for"
    );
    Some(beyond)
}

fn unchanged(reason: impl Display) -> Result<WarmOutcome, Failure> {
    Ok(WarmOutcome::Unchanged { reason: reason.to_string() })
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
            assert_eq!(warm_to(now, need, budget), expected, "{now:?} {need:?} {budget:?}");
        }
    }
}
