//! Relief of what an alarm reports: more shards, by the policy, for the throttled keys, and more
//! units for a provisioned table that is short of them.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::TableStatus;
use serde_json::json;
use sharding::maintenance::ScalingDecision;
use sharding::{PartitionKey, TableError, WarmThroughput};
use tokio::task::JoinSet;
use tokio::time::Instant as Deadline;

use crate::Scaler;
use crate::clients::{ClientError, Units, provisioned};
use crate::limits::Cause;
use crate::response::{Outcome, Report, to_json};
use crate::throttled_keys::Throttles;

impl Scaler {
    /// One decision for each logical key, all in parallel, because most of a scale-out is waiting.
    /// Returns the result for each key, and the units that the table would need for all keys that
    /// more shards do not help.
    pub(crate) async fn relieve_all(
        &self,
        throttled: impl IntoIterator<Item = (PartitionKey, Throttles)>,
        warm: Option<WarmThroughput>,
        deadline: Deadline,
    ) -> (Vec<Report>, Option<u64>) {
        let mut scaling = JoinSet::new();
        for (key, throttles) in throttled {
            let scaler = self.clone();
            scaling.spawn(async move {
                let relieved = scaler.relieve(&key, &throttles, warm, deadline).await;
                let failed = |error| (Report::of_key(&key, Outcome::not_scaled(&error)), None);
                let (mut report, lacking) = relieved.unwrap_or_else(failed);
                report.details["action"] = "scale".into();
                tracing::info!(audit = true, answer = %to_json(&report), "decision");
                (key, report, lacking)
            });
        }
        let mut relieved = scaling.join_all().await;
        relieved.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let lacking = relieved.iter().filter_map(|(.., lacking)| *lacking);
        let lacking = lacking.reduce(u64::saturating_add);
        (relieved.into_iter().map(|(_, report, _)| report).collect(), lacking)
    }

    /// Decides about a throttled key, and carries the decision out or, in a dry run, announces it.
    /// Also returns the write units a second that the table would need if more shards of the key do
    /// not help.
    async fn relieve(
        &self,
        key: &PartitionKey,
        throttles: &Throttles,
        warm: Option<WarmThroughput>,
        deadline: Deadline,
    ) -> Result<(Report, Option<u64>), TableError> {
        let maintenance = self.maintenance(deadline);
        let reported = maintenance.reported(key, warm).await?;
        let (metadata, decision) = (reported.metadata(), reported.decision());
        let (throttled, why_none) = throttles.since(metadata.last_change());
        let report = |outcome| {
            let mut report = Report::of_key(key, outcome);
            report.details["throttled"] = throttled.into();
            report
        };
        // A change whose actor stopped halfway is finished, whatever the report says.
        if let Some(reason) = why_none.filter(|_| metadata.closing().is_none()) {
            return Ok((report(Outcome::unchanged(reason)), None));
        }
        let outcome = if !self.config.dry_run {
            Outcome::of_change(reported.carry_out(throttled).await?)
        } else if let Some(from) = maintenance.not_armed_before(key).await? {
            Outcome::unchanged(ScalingDecision::NotArmed { from })
        } else if let ScalingDecision::ScaleOut(to) = decision {
            Outcome::DryRun(json!({"from": metadata.number_of_shards.get(), "to": to.get()}))
        } else {
            Outcome::unchanged(decision)
        };
        let lacking = if let ScalingDecision::ShortOfPartitions { write_units, .. } = decision {
            write_units
        } else {
            None
        };
        Ok((report(outcome), lacking))
    }

    /// Doubles the units that the table is short of, up to the maximum that the deployment allows.
    /// `None` if it is short of none.
    pub(crate) async fn raise_capacity(
        &self,
        causes: &BTreeSet<Cause>,
    ) -> Result<Option<Outcome>, ClientError> {
        let short = |cause| causes.contains(&cause);
        let mut remedied = [Cause::ProvisionedWrites, Cause::ProvisionedReads].into_iter();
        let Some(first) = remedied.find(|cause| short(*cause)) else { return Ok(None) };
        let table = &self.table.config().table_name;
        let described = self.clients.describe(table).await?;
        let unchanged = |reason: &str| Ok(Some(Outcome::unchanged(reason)));
        let Some(from) = provisioned(&described) else {
            return unchanged("the table is on demand");
        };
        if described.table_status() != Some(&TableStatus::Active) {
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
            Outcome::unchanged(first.advice())
        } else if self.config.dry_run {
            Outcome::DryRun(json!({"from": from, "to": to}))
        } else {
            self.clients.provision(table, to).await?;
            Outcome::Raised { from, to }
        };
        tracing::info!(audit = true, answer = %to_json(&outcome), "capacity decision");
        Ok(Some(outcome))
    }
}
