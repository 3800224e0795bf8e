//! Warm throughput in the control plane. The database does not know the field `WarmThroughput`, so
//! this module removes it from requests and adds it to responses. The units are nominal, as
//! `table_growth.rs` explains.
//!
//! The messages are those of DynamoDB, as others have recorded them. No record was found of three
//! messages:
//! - For a table's `WarmThroughput` without a member and without another change, DynamoDB has
//!   responded with 500.
//! - A refused increase during another one has the message of other updates.
//! - A member of another type has the database's message for other numbers.
//!
//! An unknown index is a `ResourceNotFoundException`, as in other updates of an index. DynamoDB has
//! responded with 500.
//!
//! According to the records:
//! - An increase leaves `TableStatus` and `IndexStatus` at `ACTIVE`.
//! - An `UpdateTable` with the field has no other change, and its response shows the units from
//!   before the increase.
//! - A table's field without a member is ignored beside another change, and so is that of a new
//!   index.
//!
//! The model assumes that a new table or index has the requested units at once.

use std::collections::HashSet;
use std::time::Duration;

use dynoxide::Database;
use serde_json::{Value, json};

use crate::capacity::Limits;
use crate::dispatch::dispatch;
use crate::partition_limits::WarmRequest;
use crate::request;
use crate::response::Response;
use crate::wanted_throughput::{FIELD, Wanted, index_name, invalid};

const INDEXES: &str = "GlobalSecondaryIndexes";
const UPDATES: &str = "GlobalSecondaryIndexUpdates";
/// The fields of an `UpdateTable` that change nothing.
const NAMES: [&str; 2] = ["TableName", "AttributeDefinitions"];
const INITIAL: &str = concat!(
    "initial throughput for OnDemand. See: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/",
    "on-demand-capacity-mode.html#on-demand-capacity-mode-initial"
);
const CURRENT: &str = "current WarmThroughput, decreasing WarmThroughput is not supported";

/// The control plane at an instant.
pub(crate) struct Control<'a> {
    pub(crate) db: &'a Database,
    pub(crate) limits: &'a mut Limits,
    pub(crate) now: Duration,
}

impl Control<'_> {
    pub(crate) fn run(&mut self, operation: &str, body: Value) -> Result<Value, Response> {
        let table = request::table_name(&body).unwrap_or_default().to_owned();
        let mut response = match operation {
            "CreateTable" => self.create(&table, body)?,
            "UpdateTable" => self.update(&table, body)?,
            // A deleted table is described without the field.
            "DeleteTable" => return dispatch(self.db, operation, &body),
            _ => dispatch(self.db, operation, &body)?,
        };
        for field in ["Table", "TableDescription"] {
            if let Some(description) = response.get_mut(field) {
                self.describe(&table, description);
            }
        }
        Ok(response)
    }

    fn create(&mut self, table: &str, mut body: Value) -> Result<Value, Response> {
        let mut wanted: Vec<Wanted> = Wanted::of_table(&mut body, table)?.into_iter().collect();
        for index in elements(&mut body, INDEXES) {
            wanted.extend(Wanted::of_index(index, table)?);
        }
        self.check_new(&wanted)?;
        let response = dispatch(self.db, "CreateTable", &body)?;
        self.limits.forget(table);
        self.begin(&wanted);
        Ok(response)
    }

    fn update(&mut self, table: &str, mut body: Value) -> Result<Value, Response> {
        let of_table = Wanted::of_table(&mut body, table)?;
        let is_name = |field: &String| NAMES.contains(&field.as_str());
        let is_alone = body.as_object().is_none_or(|body| body.keys().all(is_name));
        let of_table = of_table.filter(|one| is_alone || one.units != WarmRequest::default());
        let mut wanted: Vec<Wanted> = of_table.into_iter().collect();
        for (at, update) in elements(&mut body, UPDATES).enumerate() {
            let Some(update) = update.get_mut("Update") else { continue };
            if update.get(FIELD).is_some() && index_name(update).is_none() {
                let message = format!(
                    "1 validation error detected: Value null at \
                     'globalSecondaryIndexUpdates.{}.member.update.indexName' failed to satisfy \
                     constraint: Member must not be null",
                    at + 1
                );
                return Err(Response::error(400, "ValidationException", &message));
            }
            wanted.extend(Wanted::of_index(update, table)?);
        }
        if !wanted.is_empty() {
            return self.warm(table, &mut body, &wanted);
        }
        let mut created = Vec::new();
        for create in elements(&mut body, UPDATES).filter_map(|update| update.get_mut("Create")) {
            created.extend(Wanted::of_index(create, table)?);
        }
        self.check_new(&created)?;
        let response = dispatch(self.db, "UpdateTable", &body)?;
        for update in elements(&mut body, UPDATES) {
            let named = |action: &&str| index_name(update.get(*action)?);
            for index in ["Create", "Delete"].iter().filter_map(named) {
                self.limits.forget(&request::index_resource(table, index));
            }
        }
        self.begin(&created);
        Ok(response)
    }

    /// Raises the warm throughput of all the wanted resources or of none. The rest of the request
    /// never reaches the database.
    fn warm(
        &mut self,
        table: &str,
        rest: &mut Value,
        wanted: &[Wanted],
    ) -> Result<Value, Response> {
        if let Some(empty) = wanted.iter().find(|one| one.units == WarmRequest::default()) {
            let name = empty.name().replacen(' ', ": ", 1);
            let members = "at least one of ReadUnitsPerSecond or WriteUnitsPerSecond";
            return Err(invalid(&format!("{FIELD} must have {members} specified for {name}")));
        }
        if let Some(message) = other_operation(rest) {
            return Err(invalid(&message));
        }
        let mut seen = HashSet::new();
        let mut indexes = wanted.iter().filter_map(Wanted::index);
        if let Some(twice) = indexes.find(|index| !seen.insert(*index)) {
            let message = "Only one global secondary index update per index is allowed";
            return Err(invalid(&format!("{message} simultaneously. Index: {twice}")));
        }
        let mut described = dispatch(self.db, "DescribeTable", &json!({ "TableName": table }))?;
        let mut description = described.get_mut("Table").map(Value::take).unwrap_or_default();
        let names: Vec<String> = elements(&mut description, INDEXES)
            .filter_map(|index| index_name(index).map(str::to_owned))
            .collect();
        let unknown = |index: &&str| !names.iter().any(|name| name == index);
        if let Some(index) = wanted.iter().filter_map(Wanted::index).find(unknown) {
            let message = format!("Requested resource not found: Index {index} for table {table}");
            return Err(Response::error(400, "ResourceNotFoundException", &message));
        }
        for one in wanted {
            let partitions = self.limits.partitions(&one.resource, self.now);
            let checked = partitions.check_warm(one.units, self.now);
            checked.map_err(|refusal| one.refused(refusal, CURRENT))?;
        }
        for one in wanted {
            self.limits.partitions(&one.resource, self.now).warm(one.units, self.now);
        }
        Ok(json!({ "TableDescription": description }))
    }

    /// Checks that no new table or index asks for less than the initial warm throughput.
    fn check_new(&self, wanted: &[Wanted]) -> Result<(), Response> {
        wanted.iter().try_for_each(|one| {
            let checked = self.limits.check_new(&one.resource, one.units);
            checked.map_err(|refusal| one.refused(refusal, INITIAL))
        })
    }

    fn begin(&mut self, wanted: &[Wanted]) {
        for one in wanted {
            self.limits.begin(&one.resource, one.units, self.now);
        }
    }

    /// Adds to a table's description the warm throughput of the table and of each index.
    fn describe(&mut self, table: &str, description: &mut Value) {
        for index in elements(description, INDEXES) {
            let resource = request::index_resource(table, index_name(index).unwrap_or_default());
            self.add(&resource, index);
        }
        self.add(table, description);
    }

    fn add(&mut self, resource: &str, description: &mut Value) {
        let Some(description) = description.as_object_mut() else { return };
        let warm = self.limits.partitions(resource, self.now).warm_throughput(self.now);
        let field = json!({
            "ReadUnitsPerSecond": warm.read_units as u64,
            "WriteUnitsPerSecond": warm.write_units as u64,
            "Status": if warm.updating_until.is_some() { "UPDATING" } else { "ACTIVE" },
        });
        description.insert(FIELD.into(), field);
    }
}

/// DynamoDB's message for a request for warm throughput that also changes something else; `None` if
/// it does not. The message names the first of several changes.
fn other_operation(rest: &mut Value) -> Option<String> {
    let changes = |field: &str| rest.get(field).is_some_and(|value| !value.is_null());
    let modification = [
        ("SSESpecification", "Server-Side Encryption modification"),
        ("TableClass", "TableClass modification"),
        ("DeletionProtectionEnabled", "DeletionProtection modification"),
    ];
    if let Some((_, name)) = modification.into_iter().find(|(field, _)| changes(field)) {
        return Some(format!("{name} must be the only operation in the request"));
    }
    let message = if changes("OnDemandThroughput") {
        "OnDemandThroughput can only be combined with BillingMode in an UpdateTable request"
    } else if elements(rest, UPDATES).any(|update| update.get("Create").is_some()) {
        "Create global secondary index cannot be specified when updating WarmThroughput"
    } else if only_names(rest) {
        return None;
    } else {
        "WarmThroughput must be the only operation in the request"
    };
    Some(message.to_owned())
}

/// Whether a request changes nothing besides warm throughput.
fn only_names(rest: &Value) -> bool {
    let only_index = |update: &Value| {
        let fields = update.as_object().map(|update| update.len());
        let named = update.get("Update").and_then(Value::as_object);
        fields == Some(1)
            && named.is_some_and(|update| update.keys().all(|field| field == "IndexName"))
    };
    let is_empty = |field: &str, value: &Value| match field {
        UPDATES => value.as_array().is_some_and(|updates| updates.iter().all(only_index)),
        _ => NAMES.contains(&field),
    };
    let Some(rest) = rest.as_object() else { return false };
    rest.iter().all(|(field, value)| value.is_null() || is_empty(field, value))
}

fn elements<'a>(body: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    body.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests;
