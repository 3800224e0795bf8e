//! The `BillingModeSummary` of a table that has been on demand. The database has it only while the
//! table is on demand, and without a time. DynamoDB keeps it from then on (API reference,
//! "BillingModeSummary"), so that programs see the mode after a change.
//!
//! The modes are kept in memory and lost when the process ends. Then a table on demand reports the
//! time of its creation, and a provisioned table reports no summary.

use std::collections::HashMap;

use serde_json::{Value, json};

const FIELD: &str = "BillingModeSummary";
const ON_DEMAND: &str = "PAY_PER_REQUEST";

/// The billing modes of the tables, as their last descriptions had them.
#[derive(Debug, Default)]
pub(crate) struct BillingModes(HashMap<String, Mode>);

#[derive(Debug)]
struct Mode {
    is_on_demand: bool,
    /// When the table became on demand for the last time, in epoch seconds.
    on_demand_from: Option<Value>,
}

impl BillingModes {
    pub(crate) fn forget(&mut self, table: &str) {
        self.0.remove(table);
    }

    /// Notes the mode in a response's description of a table, and completes its summary.
    pub(crate) fn describe(&mut self, table: &str, response: &mut Value, now: u64) {
        let description =
            ["Table", "TableDescription"].into_iter().find(|name| response.get(name).is_some());
        let Some(Value::Object(description)) = description.and_then(|name| response.get_mut(name))
        else {
            return;
        };
        let reported = description.get(FIELD).and_then(|summary| summary.get("BillingMode"));
        let is_on_demand = reported.is_some_and(|mode| mode == ON_DEMAND);
        let mode = self.0.entry(table.to_owned()).or_insert_with(|| {
            let created = description.get("CreationDateTime").cloned();
            Mode { is_on_demand, on_demand_from: created.filter(|_| is_on_demand) }
        });
        if is_on_demand && !mode.is_on_demand {
            mode.on_demand_from = Some(now.into());
        }
        mode.is_on_demand = is_on_demand;
        if let Some(from) = &mode.on_demand_from {
            let billing_mode = if is_on_demand { ON_DEMAND } else { "PROVISIONED" };
            description.insert(FIELD.into(), summary(billing_mode, from));
        }
    }
}

fn summary(billing_mode: &str, on_demand_from: &Value) -> Value {
    json!({"BillingMode": billing_mode, "LastUpdateToPayPerRequestDateTime": on_demand_from})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;

    #[test]
    fn a_summary_stays_after_the_table_was_on_demand() {
        let on_demand = json!({"BillingMode": ON_DEMAND});
        let summary = |mode: &str, from: u64| summary(mode, &from.into());
        let mut modes = BillingModes::default();
        let rows = [
            (Value::Null, 10, Value::Null, "it was never on demand"),
            (on_demand.clone(), 20, summary(ON_DEMAND, 20), "a change"),
            (on_demand.clone(), 30, summary(ON_DEMAND, 20), "no change"),
            (Value::Null, 40, summary("PROVISIONED", 20), "back"),
            (on_demand.clone(), 50, summary(ON_DEMAND, 50), "another change"),
        ];
        for (reported, now, expected, why) in rows {
            let mut response = json!({"Table": {"CreationDateTime": 7, FIELD: reported}});
            modes.describe("items", &mut response, now);
            assert_eq!(response["Table"][FIELD], expected, "{why}");
        }
        modes.forget("items");
        let mut created = json!({"TableDescription": {"CreationDateTime": 60, FIELD: on_demand}});
        modes.describe("items", &mut created, 61);
        let found = &created["TableDescription"][FIELD];
        assert_eq!(*found, summary(ON_DEMAND, 60), "a new table of this name");
    }
    #[test]
    fn a_change_of_the_mode_is_described() {
        let engine = Engine::in_memory().expect("an engine");
        engine.create_table("items", "pk", None).expect("created");
        let provisioned = json!({"TableName": "items", "BillingMode": "PROVISIONED",
            "ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}});
        let updated = engine.operate("UpdateTable", provisioned).expect("updated");
        let items = json!({"TableName": "items"});
        let described = engine.operate("DescribeTable", items).expect("described");
        for description in [&updated["TableDescription"], &described["Table"]] {
            assert_eq!(description[FIELD]["BillingMode"], "PROVISIONED");
            assert!(description[FIELD]["LastUpdateToPayPerRequestDateTime"].is_number());
        }
    }
}
