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

/// Runs an operation of the control plane on a table.
pub(crate) fn run(
    db: &Database,
    limits: &mut Limits,
    operation: &str,
    body: Value,
    now: Duration,
) -> Result<Value, Response> {
    let table = request::table_name(&body).unwrap_or_default().to_owned();
    let mut response = match operation {
        "CreateTable" => create(db, limits, &table, body, now)?,
        "UpdateTable" => update(db, limits, &table, body, now)?,
        "DeleteTable" => {
            let response = dispatch(db, operation, &body)?;
            limits.forget(&table);
            return Ok(response);
        }
        _ => dispatch(db, operation, &body)?,
    };
    for field in ["Table", "TableDescription"] {
        if let Some(description) = response.get_mut(field) {
            describe(limits, &table, description, now);
        }
    }
    Ok(response)
}

fn create(
    db: &Database,
    limits: &mut Limits,
    table: &str,
    mut body: Value,
    now: Duration,
) -> Result<Value, Response> {
    let mut wanted: Vec<Wanted> = Wanted::of_table(&mut body, table)?.into_iter().collect();
    for index in elements(&mut body, INDEXES) {
        wanted.extend(Wanted::of_index(index, table)?);
    }
    check_new(limits, &wanted)?;
    let response = dispatch(db, "CreateTable", &body)?;
    limits.forget(table);
    for one in &wanted {
        limits.begin(&one.resource, one.units, now);
    }
    Ok(response)
}

fn update(
    db: &Database,
    limits: &mut Limits,
    table: &str,
    mut body: Value,
    now: Duration,
) -> Result<Value, Response> {
    let of_table = Wanted::of_table(&mut body, table)?;
    let is_alone = || {
        body.as_object().is_none_or(|body| body.keys().all(|field| NAMES.contains(&field.as_str())))
    };
    let of_table =
        of_table.filter(|of_table| of_table.units != WarmRequest::default() || is_alone());
    let mut wanted: Vec<Wanted> = of_table.into_iter().collect();
    for (at, update) in elements(&mut body, UPDATES).enumerate() {
        let Some(update) = update.get_mut("Update") else { continue };
        if update.get(FIELD).is_some() && index_name(update).is_none() {
            let member = format!("globalSecondaryIndexUpdates.{}.member.update.indexName", at + 1);
            let failed = format!(
                "Value null at '{member}' failed to satisfy constraint: Member must not be null"
            );
            return Err(Response::error(
                400,
                "ValidationException",
                &format!("1 validation error detected: {failed}"),
            ));
        }
        wanted.extend(Wanted::of_index(update, table)?);
    }
    if !wanted.is_empty() {
        return warm(db, limits, table, &mut body, &wanted, now);
    }
    let mut created = Vec::new();
    for create in elements(&mut body, UPDATES).filter_map(|update| update.get_mut("Create")) {
        created.extend(Wanted::of_index(create, table)?);
    }
    check_new(limits, &created)?;
    let response = dispatch(db, "UpdateTable", &body)?;
    for update in elements(&mut body, UPDATES) {
        for index in
            ["Create", "Delete"].iter().filter_map(|action| index_name(update.get(action)?))
        {
            limits.forget(&request::index_resource(table, index));
        }
    }
    for one in &created {
        limits.begin(&one.resource, one.units, now);
    }
    Ok(response)
}

/// Raises the warm throughput of all the wanted resources or of none. The rest of the request never
/// reaches the database.
fn warm(
    db: &Database,
    limits: &mut Limits,
    table: &str,
    rest: &mut Value,
    wanted: &[Wanted],
    now: Duration,
) -> Result<Value, Response> {
    if let Some(empty) = wanted.iter().find(|one| one.units == WarmRequest::default()) {
        let name = empty.name().replacen(' ', ": ", 1);
        let members = "ReadUnitsPerSecond or WriteUnitsPerSecond";
        return Err(invalid(&format!(
            "{FIELD} must have at least one of {members} specified for {name}"
        )));
    }
    if let Some(message) = other_operation(rest) {
        return Err(invalid(&message));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = wanted.iter().filter_map(Wanted::index).find(|index| !seen.insert(*index))
    {
        let message =
            "Only one global secondary index update per index is allowed simultaneously. Index:";
        return Err(invalid(&format!("{message} {twice}")));
    }
    let mut described = dispatch(db, "DescribeTable", &json!({ "TableName": table }))?;
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
        let checked = limits.partitions(&one.resource, now).check_warm(one.units, now);
        checked.map_err(|refusal| one.refused(refusal, CURRENT))?;
    }
    for one in wanted {
        let started = limits.partitions(&one.resource, now).warm(one.units, now);
        started.map_err(|refusal| one.refused(refusal, CURRENT))?;
    }
    Ok(json!({ "TableDescription": description }))
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
    if changes("OnDemandThroughput") {
        return Some(
            "OnDemandThroughput can only be combined with BillingMode in an UpdateTable request"
                .to_owned(),
        );
    }
    if elements(rest, UPDATES).any(|update| update.get("Create").is_some()) {
        return Some(
            "Create global secondary index cannot be specified when updating WarmThroughput"
                .to_owned(),
        );
    }
    (!only_names(rest)).then(|| format!("{FIELD} must be the only operation in the request"))
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

/// Checks that no new table or index asks for less than the initial warm throughput.
fn check_new(limits: &Limits, wanted: &[Wanted]) -> Result<(), Response> {
    for one in wanted {
        limits
            .check_new(&one.resource, one.units)
            .map_err(|refusal| one.refused(refusal, INITIAL))?;
    }
    Ok(())
}

/// Adds to a table's description the warm throughput of the table and of each index.
fn describe(limits: &mut Limits, table: &str, description: &mut Value, now: Duration) {
    for index in elements(description, INDEXES) {
        let resource = request::index_resource(table, index_name(index).unwrap_or_default());
        add(limits, &resource, index, now);
    }
    add(limits, table, description, now);
}

fn add(limits: &mut Limits, resource: &str, description: &mut Value, now: Duration) {
    let Some(description) = description.as_object_mut() else { return };
    let warm = limits.partitions(resource, now).warm_throughput(now);
    let field = json!({
        "ReadUnitsPerSecond": warm.read_units as u64,
        "WriteUnitsPerSecond": warm.write_units as u64,
        "Status": if warm.updating_until.is_some() { "UPDATING" } else { "ACTIVE" },
    });
    description.insert(FIELD.into(), field);
}

fn elements<'a>(body: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    body.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests;
