//! Warm throughput in the control plane. The database does not know the field `WarmThroughput`, so
//! this module removes it from requests and adds it to responses. The units are nominal, as
//! `warm_units.rs` explains.
//!
//! The messages are those of DynamoDB, as others have recorded them, with these exceptions:
//! - For a table's `WarmThroughput` without a member and without another change, DynamoDB has
//!   responded with 500.
//! - A refused increase during another one has the message of other updates.
//! - DynamoDB has messages of its own for some of the changes that an increase excludes, for members
//!   of another type, and for two updates of one index.
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

use std::time::Duration;

use dynoxide::Database;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::capacity::Limits;
use crate::dispatch::dispatch;
use crate::partition_limits::WhileWarming;
use crate::request;
use crate::response::Response;
use crate::warm_units::{MAX_PARTITIONS, WarmRequest, WarmThroughput};

/// The field of a request or a description.
const FIELD: &str = "WarmThroughput";
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
            "DeleteTable" => {
                let response = dispatch(self.db, operation, &body)?;
                self.limits.forget(&table);
                return Ok(response);
            }
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
        self.check(&wanted, INITIAL)?;
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
        for update in elements(&mut body, UPDATES).filter_map(|it| it.get_mut("Update")) {
            wanted.extend(Wanted::of_index(update, table)?);
        }
        if !wanted.is_empty() {
            return self.warm(table, &body, &wanted);
        }
        let mut created = Vec::new();
        for create in elements(&mut body, UPDATES).filter_map(|update| update.get_mut("Create")) {
            created.extend(Wanted::of_index(create, table)?);
        }
        self.check(&created, INITIAL)?;
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
    fn warm(&mut self, table: &str, rest: &Value, wanted: &[Wanted]) -> Result<Value, Response> {
        if let Some(empty) = wanted.iter().find(|one| one.units == WarmRequest::default()) {
            let name = empty.name().replacen(' ', ": ", 1);
            let members = "at least one of ReadUnitsPerSecond or WriteUnitsPerSecond";
            return Err(invalid(&format!("{FIELD} must have {members} specified for {name}")));
        }
        if !only_names(rest) {
            return Err(invalid(&format!("{FIELD} must be the only operation in the request")));
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
        self.check(wanted, CURRENT)?;
        for one in wanted {
            self.limits.partitions(&one.resource, self.now).warm(one.units, self.now);
        }
        Ok(json!({ "TableDescription": description }))
    }

    /// Checks whether all the resources may have the wanted units. `lower_than` names the value that
    /// the units are compared with.
    fn check(&mut self, wanted: &[Wanted], lower_than: &str) -> Result<(), Response> {
        wanted.iter().try_for_each(|one| {
            let while_warming = self.limits.of(&one.resource).while_warming;
            let partitions = self.limits.partitions(&one.resource, self.now);
            let (current, is_updating) = partitions.warm_throughput(self.now);
            if is_updating && while_warming == WhileWarming::Refuses {
                return Err(one.still_in_use());
            }
            one.check(current, lower_than)
        })
    }

    fn begin(&mut self, wanted: &[Wanted]) {
        for one in wanted {
            self.limits.partitions(&one.resource, self.now).begin(one.units, self.now);
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
        let partitions = self.limits.partitions(resource, self.now);
        let (warm, is_updating) = partitions.warm_throughput(self.now);
        let field = json!({
            "ReadUnitsPerSecond": warm.read_units as u64,
            "WriteUnitsPerSecond": warm.write_units as u64,
            "Status": if is_updating { "UPDATING" } else { "ACTIVE" },
        });
        description.insert(FIELD.into(), field);
    }
}

/// Whether a request changes nothing besides warm throughput.
fn only_names(rest: &Value) -> bool {
    let only_index = |update: &Value| {
        let fields = update.as_object().map(|update| update.len());
        let named = update.get("Update").and_then(Value::as_object);
        fields == Some(1) && named.is_some_and(|update| update.keys().eq(["IndexName"]))
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

/// The units that a request names for a table or an index.
struct Wanted {
    resource: String,
    units: WarmRequest,
}

impl Wanted {
    /// Removes the field from a table's request; `None` if it is absent.
    fn of_table(body: &mut Value, table: &str) -> Result<Option<Self>, Response> {
        Ok(taken(body)?.map(|units| Self { resource: table.to_owned(), units }))
    }

    /// Removes the field from an index's part of a request; `None` if the field or the index name
    /// is absent.
    fn of_index(part: &mut Value, table: &str) -> Result<Option<Self>, Response> {
        let units = taken(part)?;
        let resource = index_name(part).map(|index| request::index_resource(table, index));
        Ok(resource.zip(units).map(|(resource, units)| Self { resource, units }))
    }

    fn index(&self) -> Option<&str> {
        request::table_and_index(&self.resource).1
    }

    /// The name of the table or index in DynamoDB's messages.
    fn name(&self) -> String {
        self.index().map_or_else(|| "table".to_owned(), |index| format!("index {index}"))
    }

    /// Checks whether warm throughput may be raised to the wanted units. If read and write units are
    /// both refused, the error names the read units, as DynamoDB does.
    fn check(&self, current: WarmThroughput, lower_than: &str) -> Result<(), Response> {
        let (name, most) = (self.name(), WarmThroughput::of(MAX_PARTITIONS));
        let members = [
            ("Read", self.units.read_units, current.read_units, most.read_units),
            ("Write", self.units.write_units, current.write_units, most.write_units),
        ];
        for (access, wanted, current, most) in members {
            let wanted = wanted.unwrap_or(current);
            let requested = format!("Requested {access}UnitsPerSecond for {FIELD} for {name}");
            if wanted < current {
                return Err(invalid(&format!("{requested} is lower than {lower_than}")));
            }
            if wanted > most.max(current) {
                let message = format!(
                    "Subscriber limit exceeded: {requested} exceeds TableMax{access}CapacityUnits of the account in \
                     region local"
                );
                return Err(Response::error(400, "LimitExceededException", &message));
            }
        }
        Ok(())
    }

    fn still_in_use(&self) -> Response {
        let (table, index) = request::table_and_index(&self.resource);
        let what = index.map_or_else(
            || format!("Table is being updated: {table}"),
            |index| format!("Index is being updated. Table: {table} Index: {index}"),
        );
        let message = format!("Attempt to change a resource which is still in use: {what}");
        Response::error(400, "ResourceInUseException", &message)
    }
}

/// Removes the field from the JSON object that contains it.
fn taken(holder: &mut Value) -> Result<Option<WarmRequest>, Response> {
    let field = holder.as_object_mut().and_then(|holder| holder.remove(FIELD)).unwrap_or_default();
    Option::deserialize(field)
        .map_err(|error| Response::error(400, "SerializationException", &error.to_string()))
}

/// The name of the index that a part of a request or a description is about.
fn index_name(part: &Value) -> Option<&str> {
    part.get("IndexName").and_then(Value::as_str)
}

fn invalid(message: &str) -> Response {
    let message = format!("One or more parameter values were invalid: {message}");
    Response::error(400, "ValidationException", &message)
}

#[cfg(test)]
mod tests;
