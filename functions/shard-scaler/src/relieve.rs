//! Relief of what an alarm reports: more shards, by the policy, for the throttled keys, and more
//! units for a provisioned table that is short of them.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::json;
use sharding::maintenance::ScalingDecision;
use sharding::{PartitionKey, TableError, WarmThroughput};
use tokio::task::JoinSet;
use tokio::time::Instant as Deadline;

use crate::Scaler;
use crate::clients::{ClientError, Units};
use crate::limits::Cause;
use crate::response::{KeyOutcome, KeyReport, to_json};
use crate::throttled_keys::Throttles;

/// The result for a throttled key.
struct Relieved {
    outcome: KeyOutcome,
    /// The throttles under the key's present width.
    throttled: u64,
    /// The write units a second that the table would need if more shards of the key do not help.
    lacking: Option<u64>,
}

/// The result for a table that is short of provisioned units.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum CapacityOutcome {
    Unchanged { reason: &'static str },
    DryRun { from: Units, to: Units },
    Raised { from: Units, to: Units },
}

impl Scaler {
    /// One decision for each logical key, all in parallel, because most of a scale-out is waiting.
    /// Returns the result for each key, and the units that the table would need for all keys that
    /// more shards do not help.
    pub(crate) async fn relieve_all(
        &self,
        throttled: impl IntoIterator<Item = (PartitionKey, Throttles)>,
        warm: Option<WarmThroughput>,
        deadline: Deadline,
    ) -> (Vec<KeyReport>, Option<u64>) {
        let mut scaling = JoinSet::new();
        for (key, throttles) in throttled {
            let scaler = self.clone();
            scaling.spawn(async move {
                let (outcome, throttled, lacking) =
                    match scaler.relieve(&key, &throttles, warm, deadline).await {
                        Ok(done) => (Ok(done.outcome), Some(done.throttled), done.lacking),
                        Err(error) => (KeyOutcome::of(Err(error)), None, None),
                    };
                let report =
                    KeyReport { action: Some("scale"), throttled, ..KeyReport::new(&key, outcome) };
                tracing::info!(audit = true, answer = %to_json(&report), "decision");
                (report, lacking)
            });
        }
        let (mut keys, lacking): (Vec<_>, Vec<_>) = scaling.join_all().await.into_iter().unzip();
        keys.sort_by(|one: &KeyReport, other| one.partition_key.cmp(&other.partition_key));
        (keys, lacking.into_iter().flatten().reduce(u64::saturating_add))
    }

    /// Decides about a throttled key, and carries the decision out or, in a dry run, announces it.
    async fn relieve(
        &self,
        key: &PartitionKey,
        throttles: &Throttles,
        warm: Option<WarmThroughput>,
        deadline: Deadline,
    ) -> Result<Relieved, TableError> {
        let maintenance = self.maintenance(deadline);
        let reported = maintenance.reported(key, warm).await?;
        let (metadata, decision) = (reported.metadata(), reported.decision());
        let since = throttles.since(metadata.last_change());
        let throttled = since.after;
        // A change whose actor stopped halfway is finished, whatever the report says.
        if let Some(reason) = since.why_not_counted().filter(|_| metadata.closing().is_none()) {
            let outcome = KeyOutcome::unchanged(reason);
            return Ok(Relieved { outcome, throttled, lacking: None });
        }
        let outcome = if !self.config.dry_run {
            KeyOutcome::of_change(reported.carry_out(throttled).await?)
        } else if let Some(from) = maintenance.not_armed_before(key).await? {
            KeyOutcome::unchanged(ScalingDecision::NotArmed { from })
        } else if let ScalingDecision::ScaleOut(to) = decision {
            KeyOutcome::DryRun(json!({"from": metadata.number_of_shards.get(), "to": to.get()}))
        } else {
            KeyOutcome::unchanged(decision)
        };
        let lacking = if let ScalingDecision::ShortOfPartitions { write_units, .. } = decision {
            write_units
        } else {
            None
        };
        Ok(Relieved { outcome, throttled, lacking })
    }

    /// Doubles the units that the table is short of, up to the maximum that the deployment allows.
    /// `None` if it is short of none.
    pub(crate) async fn raise_capacity(
        &self,
        causes: &BTreeSet<Cause>,
    ) -> Result<Option<CapacityOutcome>, ClientError> {
        let short = |cause| causes.contains(&cause);
        if !short(Cause::ProvisionedWrites) && !short(Cause::ProvisionedReads) {
            return Ok(None);
        }
        let table = &self.table.config().table_name;
        let capacity = self.clients.capacity(table).await?;
        let unchanged = |reason| Ok(Some(CapacityOutcome::Unchanged { reason }));
        let Some(from) = capacity.provisioned else { return unchanged("the table is on demand") };
        if !capacity.is_active {
            return unchanged("the table is being updated");
        }
        let raised = |short: bool, now: u64, most: u64| {
            if short { now.max(now.saturating_mul(2).min(most)) } else { now }
        };
        let to = Units {
            read: raised(short(Cause::ProvisionedReads), from.read, self.config.max_read_units),
            write: raised(short(Cause::ProvisionedWrites), from.write, self.config.max_write_units),
        };
        let outcome = if to == from {
            let cause = if short(Cause::ProvisionedWrites) {
                Cause::ProvisionedWrites
            } else {
                Cause::ProvisionedReads
            };
            CapacityOutcome::Unchanged { reason: cause.advice() }
        } else if self.config.dry_run {
            CapacityOutcome::DryRun { from, to }
        } else {
            self.clients.provision(table, to).await?;
            CapacityOutcome::Raised { from, to }
        };
        tracing::info!(audit = true, answer = %to_json(&outcome), "capacity decision");
        Ok(Some(outcome))
    }
}
