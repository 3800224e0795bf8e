//! Raises a provisioned table that is short of units, if the deployment allows it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::Scaler;
use crate::cause::Cause;
use crate::clients::{ClientError, Units};
use crate::report::to_json;

/// The result for a table that is short of provisioned units.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum CapacityOutcome {
    Unchanged { reason: &'static str },
    DryRun { from: Units, to: Units },
    Raised { from: Units, to: Units },
}

impl Scaler {
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
