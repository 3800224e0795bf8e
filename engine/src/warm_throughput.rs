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

use crate::access::Access;
use crate::capacity::Limits;
use crate::dispatch::dispatch;
use crate::partition_limits::WarmRequest;
use crate::request;
use crate::response::Response;
use crate::table_growth::WarmRefusal;

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

    /// The response to a refusal. `lower_than` names the value that the units were compared with.
    fn refused(&self, refusal: WarmRefusal, lower_than: &str) -> Response {
        let name = self.name();
        let member = |access: Access| match access {
            Access::Read => "ReadUnitsPerSecond",
            Access::Write => "WriteUnitsPerSecond",
        };
        match refusal {
            WarmRefusal::Updating { .. } => {
                let (table, index) = request::table_and_index(&self.resource);
                let what = index.map_or_else(
                    || format!("Table is being updated: {table}"),
                    |index| format!("Index is being updated. Table: {table} Index: {index}"),
                );
                let message = format!("Attempt to change a resource which is still in use: {what}");
                Response::error(400, "ResourceInUseException", &message)
            }
            WarmRefusal::Lower { access, .. } => {
                let member = member(access);
                invalid(&format!(
                    "Requested {member} for WarmThroughput for {name} is lower than {lower_than}"
                ))
            }
            WarmRefusal::AboveQuota { access, .. } => {
                let quota = match access {
                    Access::Read => "TableMaxReadCapacityUnits",
                    Access::Write => "TableMaxWriteCapacityUnits",
                };
                let message = format!(
                    "Subscriber limit exceeded: Requested {} for WarmThroughput for {name} exceeds {quota} of the \
                     account in region local",
                    member(access)
                );
                Response::error(400, "LimitExceededException", &message)
            }
        }
    }
}

/// Removes the field from the JSON object that contains it.
fn taken(holder: &mut Value) -> Result<Option<WarmRequest>, Response> {
    let wrong = |message: &str| Response::error(400, "SerializationException", message);
    let field = holder
        .as_object_mut()
        .and_then(|holder| holder.remove(FIELD))
        .filter(|field| !field.is_null());
    let Some(field) = field else { return Ok(None) };
    let Some(members) = field.as_object() else { return Err(wrong("Unexpected field type")) };
    let units = |name: &str| members.get(name).map_or(Ok(None), whole_units).map_err(wrong);
    Ok(Some(WarmRequest {
        write_units: units("WriteUnitsPerSecond")?,
        read_units: units("ReadUnitsPerSecond")?,
    }))
}

fn whole_units(member: &Value) -> Result<Option<f64>, &'static str> {
    match member {
        Value::Null => Ok(None),
        Value::Number(units) => Ok(units.as_f64().map(f64::trunc)),
        Value::String(_) => Err("STRING_VALUE cannot be converted to Long"),
        Value::Bool(true) => Err("TRUE_VALUE cannot be converted to Long"),
        Value::Bool(false) => Err("FALSE_VALUE cannot be converted to Long"),
        Value::Array(_) => Err("Unrecognized collection type class java.lang.Long"),
        Value::Object(_) => Err("Start of structure or map found where not expected"),
    }
}

fn index_name(part: &Value) -> Option<&str> {
    part.get("IndexName").and_then(Value::as_str)
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

fn invalid(message: &str) -> Response {
    Response::error(
        400,
        "ValidationException",
        &format!("One or more parameter values were invalid: {message}"),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::engine::Engine;
    use crate::partition_limits::{PartitionLimits, WhileWarming};

    struct Fixture {
        db: Database,
        limits: Limits,
    }

    impl Fixture {
        /// Creates the table `items` and its index `replica`.
        fn new(limits: PartitionLimits) -> Self {
            let db = Database::memory().expect("a database");
            let mut fixture = Self { db, limits: Limits::new(limits, HashMap::new()) };
            fixture.send("CreateTable", &table("items"), 0).expect("created");
            fixture
        }

        /// The response to an operation at this second, or the text of its error.
        fn send(&mut self, operation: &str, body: &Value, at: u64) -> Result<Value, String> {
            let response =
                run(&self.db, &mut self.limits, operation, body.clone(), Duration::from_secs(at));
            response.map_err(|response| {
                assert_eq!(response.status, 400);
                String::from_utf8_lossy(&response.body).into_owned()
            })
        }

        fn described(&mut self, at: u64) -> [Value; 2] {
            let response = self.send("DescribeTable", &json!({"TableName": "items"}), at);
            reported(&response.expect("described"), "Table")
        }
    }

    fn table(name: &str) -> Value {
        let keys = json!([{"AttributeName": "pk", "KeyType": "HASH"}]);
        let replica = json!({"IndexName": "replica", "KeySchema": keys, "Projection": {"ProjectionType": "ALL"}});
        json!({
            "TableName": name, "BillingMode": "PAY_PER_REQUEST", "KeySchema": keys,
            "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
            "GlobalSecondaryIndexes": [replica],
        })
    }

    /// An `UpdateTable` of `items` with these fields.
    fn update_of(fields: &[(&str, Value)]) -> Value {
        let mut body = json!({"TableName": "items"});
        for (field, value) in fields {
            body[*field] = value.clone();
        }
        body
    }

    fn writes(units: u64) -> Value {
        json!({"WriteUnitsPerSecond": units})
    }

    fn of_index(name: &str, warm: &Value) -> Value {
        json!([{"Update": {"IndexName": name, "WarmThroughput": warm}}])
    }

    /// The warm throughput of the table and its index in a response.
    fn reported(response: &Value, of: &str) -> [Value; 2] {
        [format!("/{of}/WarmThroughput"), format!("/{of}/GlobalSecondaryIndexes/0/WarmThroughput")]
            .map(|field| response.pointer(&field).cloned().unwrap_or_default())
    }

    fn units(read: u64, write: u64, status: &str) -> Value {
        json!({"ReadUnitsPerSecond": read, "WriteUnitsPerSecond": write, "Status": status})
    }

    #[test]
    fn an_increase_of_the_table_and_its_index_is_described_until_it_ends() {
        let mut fixture = Fixture::new(PartitionLimits::default());
        let before = units(12_000, 4_000, "ACTIVE");
        assert_eq!(fixture.described(0), [before.clone(), before]);

        let of_replica = json!({"ReadUnitsPerSecond": 30_000, "WriteUnitsPerSecond": 9_500});
        let increase =
            update_of(&[(FIELD, writes(20_000)), (UPDATES, of_index("replica", &of_replica))]);
        let updated = fixture.send("UpdateTable", &increase, 10).expect("updated");
        let updating = units(12_000, 4_000, "UPDATING");
        assert_eq!(reported(&updated, "TableDescription"), [updating.clone(), updating.clone()]);
        assert_eq!(updated["TableDescription"]["TableName"], "items");
        assert_eq!(updated["TableDescription"]["TableStatus"], "ACTIVE");
        assert_eq!(fixture.described(69), [updating.clone(), updating]);
        let increased = [units(60_000, 20_000, "ACTIVE"), units(30_000, 10_000, "ACTIVE")];
        assert_eq!(fixture.described(70), increased);
        fixture
            .send("UpdateTable", &update_of(&[(FIELD, writes(20_000))]), 80)
            .expect("the same units are accepted");
        assert_eq!(fixture.described(80), increased);
    }

    #[test]
    fn units_are_nominal_whatever_the_partitions_give() {
        for (partitions, asked) in [(4u64, 24_000), (64, 70_000)] {
            let of_table = u32::try_from(partitions).expect("few");
            let small = PartitionLimits {
                partitions: of_table,
                write_units: 50.0,
                ..PartitionLimits::default()
            };
            let mut fixture = Fixture::new(small);
            let before = units(3_000 * partitions, 1_000 * partitions, "ACTIVE");
            assert_eq!(fixture.described(0), [before.clone(), before]);
            let lower = update_of(&[(FIELD, writes(1_000 * partitions - 1))]);
            let refusal = fixture.send("UpdateTable", &lower, 0).expect_err("refused");
            assert!(refusal.contains("lower than current"), "{refusal}");
            let increase = update_of(&[
                (FIELD, writes(asked)),
                (UPDATES, of_index("replica", &writes(asked + 1))),
            ]);
            fixture.send("UpdateTable", &increase, 0).expect("updated");
            let of_replica = units(3 * asked + 3_000, asked + 1_000, "ACTIVE");
            assert_eq!(fixture.described(60), [units(3 * asked, asked, "ACTIVE"), of_replica]);
            let ranges = fixture.limits.partitions("items", Duration::from_secs(60)).count();
            assert_eq!(ranges as u64, asked / 1_000);
        }
    }

    #[test]
    fn a_new_table_has_what_it_asks_for_and_nothing_of_one_that_was_deleted() {
        let mut fixture = Fixture::new(PartitionLimits::default());
        fixture.send("UpdateTable", &update_of(&[(FIELD, writes(20_000))]), 0).expect("updated");
        fixture.send("DeleteTable", &json!({"TableName": "items"}), 100).expect("deleted");
        let mut new = table("items");
        new["GlobalSecondaryIndexes"][0]["WarmThroughput"] = writes(7_000);
        let created = fixture.send("CreateTable", &new, 100).expect("created");
        let expected = [units(12_000, 4_000, "ACTIVE"), units(21_000, 7_000, "ACTIVE")];
        assert_eq!(reported(&created, "TableDescription"), expected);

        let mut short = table("others");
        short["WarmThroughput"] = json!({"ReadUnitsPerSecond": 11_999});
        let refusal = fixture.send("CreateTable", &short, 100).expect_err("refused");
        let initial = "ReadUnitsPerSecond for WarmThroughput for table is lower than initial throughput for OnDemand";
        assert!(refusal.contains("#ValidationException") && refusal.contains(initial), "{refusal}");
        fixture
            .send("DescribeTable", &json!({"TableName": "others"}), 100)
            .expect_err("it was not created");
    }

    #[test]
    fn a_new_index_has_nothing_of_one_that_was_deleted() {
        let mut fixture = Fixture::new(PartitionLimits::default());
        let increase = update_of(&[(UPDATES, of_index("replica", &writes(20_000)))]);
        fixture.send("UpdateTable", &increase, 0).expect("updated");
        let delete = update_of(&[(UPDATES, json!([{"Delete": {"IndexName": "replica"}}]))]);
        fixture.send("UpdateTable", &delete, 100).expect("deleted");
        let mut replica = table("items")["GlobalSecondaryIndexes"][0].take();
        replica["WarmThroughput"] = json!({});
        let create = update_of(&[
            ("AttributeDefinitions", table("items")["AttributeDefinitions"].take()),
            (UPDATES, json!([{"Create": replica}])),
        ]);
        fixture.send("UpdateTable", &create, 100).expect("created");
        let new = units(12_000, 4_000, "ACTIVE");
        assert_eq!(fixture.described(200), [new.clone(), new]);
    }

    #[test]
    fn a_request_is_refused_by_name_and_then_changes_nothing() {
        let table = |units: u64| (FIELD, writes(units));
        let index = |name: &str, warm: Value| (UPDATES, of_index(name, &warm));
        let empty = || json!({});
        let create = || (UPDATES, json!([{"Create": {"IndexName": "by-owner"}}]));
        let of_replica = || of_index("replica", &writes(8_000))[0].take();
        let rows = [
            (
                vec![table(3_999)],
                "Validation",
                "WriteUnitsPerSecond for WarmThroughput for table is lower",
            ),
            (
                vec![table(8_000), index("replica", writes(1))],
                "Validation",
                "for index replica is lower than current",
            ),
            (vec![(FIELD, empty())], "Validation", "specified for table"),
            (vec![index("replica", empty())], "Validation", "specified for index: replica"),
            (
                vec![table(8_000), ("BillingMode", json!("PROVISIONED"))],
                "Validation",
                "WarmThroughput must be the",
            ),
            (
                vec![table(8_000), ("DeletionProtectionEnabled", json!(true))],
                "Validation",
                "DeletionProtection modification must be the only operation",
            ),
            (
                vec![table(8_000), create()],
                "Validation",
                "Create global secondary index cannot be specified when",
            ),
            (
                vec![(UPDATES, json!([of_replica(), of_replica()]))],
                "Validation",
                "Only one global secondary index update per index is allowed simultaneously. Index: replica",
            ),
            (
                vec![(UPDATES, json!([{"Update": {"WarmThroughput": writes(8_000)}}]))],
                "Validation",
                "Value null at 'globalSecondaryIndexUpdates.1.member.update.indexName'",
            ),
            (
                vec![(FIELD, json!({"WriteUnitsPerSecond": "8000"}))],
                "Serialization",
                "STRING_VALUE cannot be",
            ),
            (vec![(FIELD, json!(8_000))], "Serialization", "Unexpected field type"),
            (vec![table(1_000_000_000)], "LimitExceeded", "exceeds TableMaxWriteCapacityUnits"),
            (
                vec![table(8_000), index("ghost", writes(8_000))],
                "ResourceNotFound",
                "Index ghost for table items",
            ),
            (
                vec![table(8_000), ("TableName", json!("nowhere"))],
                "ResourceNotFound",
                "Table: nowhere not found",
            ),
        ];
        let mut fixture = Fixture::new(PartitionLimits::default());
        for (fields, class, message) in rows {
            let refusal = fixture.send("UpdateTable", &update_of(&fields), 0).expect_err("refused");
            assert!(
                refusal.contains(&format!("#{class}Exception")) && refusal.contains(message),
                "{refusal}"
            );
        }
        let beside = update_of(&[(FIELD, empty()), ("DeletionProtectionEnabled", json!(false))]);
        fixture
            .send("UpdateTable", &beside, 0)
            .expect("beside another change it is ignored without a member");
        let unchanged = units(12_000, 4_000, "ACTIVE");
        assert_eq!(fixture.described(100), [unchanged.clone(), unchanged]);
    }

    #[test]
    fn an_increase_during_another_of_the_same_table_is_refused_or_joins_it() {
        let in_use = "#ResourceInUseException";
        for (while_warming, refusal, in_the_end) in
            [(WhileWarming::Refuses, Some(in_use), 8_000), (WhileWarming::Joins, None, 16_000)]
        {
            let mut fixture =
                Fixture::new(PartitionLimits { while_warming, ..PartitionLimits::default() });
            fixture.send("UpdateTable", &update_of(&[(FIELD, writes(8_000))]), 0).expect("updated");
            let second = fixture.send("UpdateTable", &update_of(&[(FIELD, writes(16_000))]), 30);
            let refused = second.err().unwrap_or_default();
            assert_eq!(refusal.is_some(), refused.contains(in_use), "{while_warming:?}: {refused}");
            let of_replica = update_of(&[(UPDATES, of_index("replica", &writes(8_000)))]);
            fixture.send("UpdateTable", &of_replica, 30).expect("the index is not being updated");
            let table = units(3 * in_the_end, in_the_end, "ACTIVE");
            assert_eq!(
                fixture.described(60),
                [table.clone(), units(12_000, 4_000, "UPDATING")],
                "{while_warming:?}"
            );
            assert_eq!(
                fixture.described(90),
                [table, units(24_000, 8_000, "ACTIVE")],
                "{while_warming:?}"
            );
        }
    }

    #[test]
    fn an_engine_without_warm_throughput_ignores_it() {
        let engine = Engine::in_memory().expect("an engine");
        engine.set_has_warm_throughput(false);
        let send = |operation: &str, body: &Value| {
            let target = format!("DynamoDB_20120810.{operation}");
            let response = engine.respond("/", Some(&target), body.to_string().as_bytes());
            let body: Value = serde_json::from_slice(&response.body).expect("JSON");
            (response.status, body)
        };
        let mut warm = table("items");
        warm["WarmThroughput"] = writes(8_000);
        assert_eq!(send("CreateTable", &warm).0, 200);
        let (_, described) = send("DescribeTable", &json!({"TableName": "items"}));
        assert_eq!(reported(&described, "Table"), [Value::Null, Value::Null]);
        let (status, response) = send("UpdateTable", &update_of(&[(FIELD, writes(8_000))]));
        assert!(
            status == 400 && response.to_string().contains("At least one of ProvisionedThroughput"),
            "{response}"
        );
        let beside =
            update_of(&[(FIELD, writes(8_000)), ("DeletionProtectionEnabled", json!(false))]);
        assert_eq!(send("UpdateTable", &beside).0, 200, "beside another change");
        assert_eq!(engine.warm_throughput("items").write_units, 4_000.0);
        engine.set_has_warm_throughput(true);
        let (_, described) = send("DescribeTable", &json!({"TableName": "items"}));
        let unchanged = units(12_000, 4_000, "ACTIVE");
        assert_eq!(reported(&described, "Table"), [unchanged.clone(), unchanged]);
    }
}
