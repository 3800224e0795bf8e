//! The control plane with warm throughput, by whole requests.

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
    let replica =
        json!({"IndexName": "replica", "KeySchema": keys, "Projection": {"ProjectionType": "ALL"}});
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
fn an_increase_of_table_and_index_is_described_until_it_ends() {
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
fn a_new_table_has_what_it_asks_for_not_what_a_deleted_one_had() {
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
fn an_increase_during_another_one_is_refused_or_joins_it() {
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
    let beside = update_of(&[(FIELD, writes(8_000)), ("DeletionProtectionEnabled", json!(false))]);
    assert_eq!(send("UpdateTable", &beside).0, 200, "beside another change");
    assert_eq!(engine.warm_throughput("items").write_units, 4_000.0);
    engine.set_has_warm_throughput(true);
    let (_, described) = send("DescribeTable", &json!({"TableName": "items"}));
    let unchanged = units(12_000, 4_000, "ACTIVE");
    assert_eq!(reported(&described, "Table"), [unchanged.clone(), unchanged]);
}
