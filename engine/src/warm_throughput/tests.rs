//! The control plane with warm throughput, by whole requests.

use std::collections::HashMap;

use super::*;
use crate::partition_limits::PartitionLimits;

struct Fixture {
    db: Database,
    limits: Limits,
}

impl Fixture {
    /// Creates the table `items` and its index `replica`.
    fn new(limits: PartitionLimits) -> Self {
        let db = Database::memory().expect("a database");
        let limits = Limits::new(HashMap::from([("items".to_owned(), limits)]));
        let mut fixture = Self { db, limits };
        fixture.send("CreateTable", &table("items"), 0).expect("created");
        fixture
    }

    /// The response to an operation at this second, or the text of its error.
    fn send(&mut self, operation: &str, body: &Value, at: u64) -> Result<Value, String> {
        let now = Duration::from_secs(at);
        let mut control = Control { db: &self.db, limits: &mut self.limits, now };
        control.run(operation, body.clone()).map_err(|response| {
            assert_eq!(response.status, 400);
            String::from_utf8_lossy(&response.body).into_owned()
        })
    }

    /// The response to an `UpdateTable` of `items` with these fields.
    fn update(&mut self, fields: &[(&str, Value)], at: u64) -> Result<Value, String> {
        let mut body = json!({"TableName": "items"});
        for (field, value) in fields {
            body[*field] = value.clone();
        }
        self.send("UpdateTable", &body, at)
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

    // The units of whole partitions: the writes need 20, and the reads 11.
    let of_replica = json!({"ReadUnitsPerSecond": 30_001, "WriteUnitsPerSecond": 9_500});
    let increase = [(FIELD, writes(19_500)), (UPDATES, of_index("replica", &of_replica))];
    let updated = fixture.update(&increase, 10).expect("updated");
    let updating = units(12_000, 4_000, "UPDATING");
    assert_eq!(reported(&updated, "TableDescription"), [updating.clone(), updating.clone()]);
    assert_eq!(updated["TableDescription"]["TableName"], "items");
    assert_eq!(updated["TableDescription"]["TableStatus"], "ACTIVE");
    assert_eq!(fixture.described(69), [updating.clone(), updating]);
    let increased = [units(60_000, 20_000, "ACTIVE"), units(33_000, 11_000, "ACTIVE")];
    assert_eq!(fixture.described(70), increased);
    fixture.update(&[(FIELD, writes(20_000))], 80).expect("the same units are accepted");
    let lower = fixture.update(&[(FIELD, writes(19_999))], 80).expect_err("refused");
    assert!(lower.contains("lower than current"), "{lower}");
    assert_eq!(fixture.described(7_200), increased, "they never fall");
}

#[test]
fn units_are_nominal_whatever_the_partitions_give() {
    for (partitions, asked) in [(4, 24_000), (64, 70_000)] {
        let small = PartitionLimits { partitions, write_units: 50.0, ..PartitionLimits::default() };
        let partitions = u64::from(partitions);
        let mut fixture = Fixture::new(small);
        let before = units(3_000 * partitions, 1_000 * partitions, "ACTIVE");
        assert_eq!(fixture.described(0), [before.clone(), before]);
        let lower = [(FIELD, writes(1_000 * partitions - 1))];
        let refusal = fixture.update(&lower, 0).expect_err("refused");
        assert!(refusal.contains("lower than current"), "{refusal}");
        let of_replica = of_index("replica", &writes(asked + 1));
        fixture.update(&[(FIELD, writes(asked)), (UPDATES, of_replica)], 0).expect("updated");
        let of_replica = units(3 * asked + 3_000, asked + 1_000, "ACTIVE");
        assert_eq!(fixture.described(60), [units(3 * asked, asked, "ACTIVE"), of_replica]);
        let ranges = fixture.limits.partitions("items", Duration::from_secs(60)).count();
        assert_eq!(ranges as u64, asked / 1_000);
    }
}

#[test]
fn a_new_table_has_what_it_asks_for_not_what_a_deleted_one_had() {
    let mut fixture = Fixture::new(PartitionLimits::default());
    fixture.update(&[(FIELD, writes(20_000))], 0).expect("updated");
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
    let others = json!({"TableName": "others"});
    fixture.send("DescribeTable", &others, 100).expect_err("it was not created");
}

#[test]
fn a_new_index_has_nothing_of_one_that_was_deleted() {
    let mut fixture = Fixture::new(PartitionLimits::default());
    fixture.update(&[(UPDATES, of_index("replica", &writes(20_000)))], 0).expect("updated");
    let delete = json!([{"Delete": {"IndexName": "replica"}}]);
    fixture.update(&[(UPDATES, delete)], 100).expect("deleted");
    let mut replica = table("items")["GlobalSecondaryIndexes"][0].take();
    replica["WarmThroughput"] = json!({});
    let definitions = table("items")["AttributeDefinitions"].take();
    let create = [("AttributeDefinitions", definitions), (UPDATES, json!([{"Create": replica}]))];
    fixture.update(&create, 100).expect("created");
    let new = units(12_000, 4_000, "ACTIVE");
    assert_eq!(fixture.described(200), [new.clone(), new]);
}

#[test]
fn a_request_is_refused_by_name_and_then_changes_nothing() {
    let table = |units: u64| (FIELD, writes(units));
    let index = |name: &str, warm: Value| (UPDATES, of_index(name, &warm));
    let empty = || json!({});
    let create = || (UPDATES, json!([{"Create": {"IndexName": "by-owner"}}]));
    let beside = |field, value| vec![table(8_000), (field, value)];
    let text = || json!({"WriteUnitsPerSecond": "8000"});
    let few_reads =
        |writes: u64| json!({"ReadUnitsPerSecond": 11_999, "WriteUnitsPerSecond": writes});
    let protection = "DeletionProtectionEnabled";
    let (invalid, unreadable, unknown) = ("Validation", "Serialization", "ResourceNotFound");
    let rows = [
        (vec![table(3_999)], invalid, "WriteUnitsPerSecond for WarmThroughput for table is lower"),
        (vec![(FIELD, few_reads(3_999))], invalid, "ReadUnitsPerSecond for WarmThroughput for"),
        (vec![(FIELD, few_reads(8_000))], invalid, "ReadUnitsPerSecond for WarmThroughput for"),
        (vec![table(8_000), index("replica", writes(1))], invalid, "for index replica is lower"),
        (vec![(FIELD, empty())], invalid, "specified for table"),
        (vec![index("replica", empty())], invalid, "specified for index: replica"),
        (beside("BillingMode", json!("PROVISIONED")), invalid, "WarmThroughput must be the only"),
        (beside(protection, json!(true)), invalid, "WarmThroughput must be the only"),
        (vec![table(8_000), create()], invalid, "WarmThroughput must be the only"),
        (vec![(FIELD, text())], unreadable, "invalid type: string"),
        (vec![(FIELD, json!(8_000))], unreadable, "invalid type: integer"),
        (vec![table(65_536_001)], "LimitExceeded", "exceeds TableMaxWriteCapacityUnits"),
        (vec![table(8_000), index("ghost", writes(8_000))], unknown, "Index ghost for table items"),
        (beside("TableName", json!("nowhere")), unknown, "Table: nowhere not found"),
    ];
    let mut fixture = Fixture::new(PartitionLimits::default());
    for (fields, class, message) in rows {
        let refusal = fixture.update(&fields, 0).expect_err("refused");
        let class = format!("#{class}Exception");
        assert!(refusal.contains(&class) && refusal.contains(message), "{refusal}");
    }
    // Without a member, it is ignored beside another change.
    let ignored = [(FIELD, empty()), (protection, json!(false))];
    fixture.update(&ignored, 0).expect("updated");
    let unchanged = units(12_000, 4_000, "ACTIVE");
    assert_eq!(fixture.described(100), [unchanged.clone(), unchanged]);
}

#[test]
fn an_increase_during_another_one_is_refused_or_joins_it() {
    for (while_warming, is_refused, in_the_end) in
        [(WhileWarming::Refuses, true, 8_000), (WhileWarming::Joins, false, 16_000)]
    {
        let mut fixture =
            Fixture::new(PartitionLimits { while_warming, ..PartitionLimits::default() });
        fixture.update(&[(FIELD, writes(8_000))], 0).expect("updated");
        let refusal = fixture.update(&[(FIELD, writes(16_000))], 30).err().unwrap_or_default();
        let is_in_use = refusal.contains("#ResourceInUseException");
        assert_eq!(is_in_use, is_refused, "{while_warming:?}: {refusal}");
        let of_replica = [(UPDATES, of_index("replica", &writes(8_000)))];
        fixture.update(&of_replica, 30).expect("the index is not being updated");
        let table = units(3 * in_the_end, in_the_end, "ACTIVE");
        let updating = units(12_000, 4_000, "UPDATING");
        assert_eq!(fixture.described(60), [table.clone(), updating], "{while_warming:?}");
        let updated = units(24_000, 8_000, "ACTIVE");
        assert_eq!(fixture.described(90), [table, updated], "{while_warming:?}");
    }
}
