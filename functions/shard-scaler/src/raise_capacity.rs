//! A provisioned table that is short of units gets more, where the deployment allows it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::Scaler;
use crate::cause::Cause;
use crate::clients::{ClientError, Units};

impl Scaler {
    /// Doubles what the table is short of, up to the maximum that the deployment allows. Null where that is not the cause.
    pub(crate) async fn raise_capacity(&self, causes: &BTreeSet<Cause>) -> Result<Value, ClientError> {
        let short = |cause| causes.contains(&cause);
        if !short(Cause::ProvisionedWrites) && !short(Cause::ProvisionedReads) {
            return Ok(Value::Null);
        }
        let table = &self.table.config().table_name;
        let capacity = self.clients.capacity(table).await?;
        let unchanged = |reason: &str| json!({"outcome": "unchanged", "reason": reason});
        let Some(now) = capacity.provisioned else { return Ok(unchanged("the table is on demand")) };
        if !capacity.is_active {
            return Ok(unchanged("the table is being updated"));
        }
        let raised =
            |short: bool, now: u64, most: u64| if short { now.max(now.saturating_mul(2).min(most)) } else { now };
        let to = Units {
            read: raised(short(Cause::ProvisionedReads), now.read, self.config.max_read_units),
            write: raised(short(Cause::ProvisionedWrites), now.write, self.config.max_write_units),
        };
        let units = |units: Units| json!({"read": units.read, "write": units.write});
        let answer = if to == now {
            let cause =
                if short(Cause::ProvisionedWrites) { Cause::ProvisionedWrites } else { Cause::ProvisionedReads };
            unchanged(cause.advice())
        } else if self.config.dry_run {
            json!({"outcome": "dry-run", "from": units(now), "to": units(to)})
        } else {
            self.clients.provision(table, to).await?;
            json!({"outcome": "raised", "from": units(now), "to": units(to)})
        };
        tracing::info!(audit = true, %answer, "capacity decision");
        Ok(answer)
    }
}
