//! Raising the table's warm throughput, and that of its indexes, within a budget.
//!
//! The budget is 0 by default, because each added unit is charged once and cannot be given back. A
//! raise is one step, because it takes minutes (others have measured 388 to 514 seconds), and two
//! steps take twice as long.

use aws_sdk_dynamodb::types::{
    GlobalSecondaryIndexUpdate, TableStatus, UpdateGlobalSecondaryIndexAction,
    WarmThroughput as SdkWarmThroughput,
};
use serde_json::{Value, json};
use sharding::WarmThroughput;
use tokio::time::{Instant as Deadline, timeout_at};

use crate::Scaler;
use crate::clients::{ClientError, Clients, in_time};
use crate::event::{EventError, WarmUnits, WholeNumber};
use crate::response::{Handled, Outcome, Report, to_json, without_nulls};
use crate::warm_throughput::{DescribedThroughput, Looks, NotKnown};

const MAX_UNITS: u64 = 1_000_000_000;
/// The note in every response about a raise. `adviser plan` has the prices.
const COST_NOTE: &str =
    "charged once for each unit that is added; it cannot be undone; the price: docs/costs.md";

const UPDATE_IN_PROGRESS: &str = "UpdateTable: ResourceInUseException: \
                      another update of the table is under way";

const RAISE_NOT_ALLOWED: &str = "the shard-scaler may not raise it; by hand: aws dynamodb update-table --warm-throughput (docs/operations.md)";

/// A raise of the table, or of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    from: WarmThroughput,
    to: WarmThroughput,
}

impl Step {
    /// To the need, within the budget. `None` if that is not above the present value. It is never
    /// below the present value, because DynamoDB would reject that.
    fn of(from: WarmThroughput, need: WarmThroughput, budget: WarmThroughput) -> Option<Self> {
        let to = combined(from, need.lowest(budget), u64::max);
        (to != from).then_some(Self { from, to })
    }

    fn to_json(self) -> Value {
        json!({"from": units(self.from), "to": units(self.to)})
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
    /// By the index's name.
    indexes: Vec<(String, Step)>,
}

impl Steps {
    /// The table and each index separately, because a write to the table is also a write to its
    /// indexes.
    fn of(now: &DescribedThroughput, need: WarmThroughput, budget: WarmThroughput) -> Self {
        let of_index = |(name, now): (&String, &WarmThroughput)| {
            Some((name.clone(), Step::of(*now, need, budget)?))
        };
        let indexes = now.indexes.iter().filter_map(of_index).collect();
        Self { table: Step::of(now.table, need, budget), indexes }
    }

    fn is_empty(&self) -> bool {
        self.table.is_none() && self.indexes.is_empty()
    }

    /// The values before and after, the charged units, and the status of the update if it was made.
    fn to_json(&self, status: Option<String>) -> Value {
        let steps = self.table.iter().chain(self.indexes.iter().map(|(_, step)| step));
        let added = steps.fold(WarmThroughput::default(), |sum, step| {
            let added = combined(step.to, step.from, u64::saturating_sub);
            combined(sum, added, u64::saturating_add)
        });
        let of_index = |(name, step): &(String, Step)| {
            let mut json = step.to_json();
            json["index"] = name.as_str().into();
            json
        };
        let indexes: Vec<Value> = self.indexes.iter().map(of_index).collect();
        without_nulls(json!({
            "table": self.table.map(Step::to_json),
            "indexes": (!indexes.is_empty()).then_some(indexes),
            "added": units(added),
            "note": COST_NOTE,
            "status": status,
        }))
    }
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
    async fn warm(&self, table: &str, steps: &Steps) -> Result<Option<String>, ClientError> {
        let mut update = self.dynamodb.update_table().table_name(table);
        update = update.set_warm_throughput(steps.table.map(Step::to_sdk));
        for (index, step) in &steps.indexes {
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
        let steps = Steps::of(&now, needed, budget);
        let suffices = Steps::of(&now, needed, needed).is_empty();
        let limited_by = if suffices { None } else { limited(needed, budget) };
        let outcome = self.raise(&mut looks, &now, &steps, limited_by.is_some(), deadline).await;
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
        steps: &Steps,
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
            return Outcome::DryRun(steps.to_json(None));
        }
        looks.ask();
        let table = &self.table.config().table_name;
        match in_time(deadline, "UpdateTable", self.clients.warm(table, steps)).await {
            Ok(Some(status)) => Outcome::Warming(steps.to_json(Some(status))),
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
            let to = Step::of(now, need, budget).map(|step| step.to);
            assert_eq!(to, expected, "{now:?} {need:?} {budget:?}");
        }
    }
}
