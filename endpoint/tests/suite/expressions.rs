//! Each form of condition, update and `ReturnValues` on each state of an item gives the same answer
//! as on one unsharded item, and leaves the same item.

use serde_json::{Value, json};

use crate::cases::{CASES, Case, GROWN, comparable, keyed, leaks, sort_keys};
use crate::world::{Answer, PLAIN, World, combined};

const CONDITIONS: [&str; 19] = [
    "",
    "attribute_not_exists(pk)",
    "attribute_exists(#p)",
    "attribute_not_exists(sk)",
    "attribute_exists(sk) AND attribute_exists(pk)",
    "n = :one",
    "(#n = :one)",
    "n <> :one",
    "(attribute_not_exists(n)) OR (n < :one)",
    "attribute_not_exists(#p) OR #n = :one",
    "n BETWEEN :one AND :two",
    "n IN (:one, :two)",
    "NOT contains(s, :x)",
    "begins_with(s, :te)",
    "size(s) > :one",
    "attribute_type(n, :type)",
    "m.x = :one AND l[1] <> :one",
    "pk = :k",
    "attribute_exists(ttl)",
];
/// So many of the conditions are combined with each update.
const OF_UPDATES: usize = 9;

const UPDATES: [&str; 15] = [
    "",
    "SET n = :five",
    "SET n = n + :five",
    "SET n = if_not_exists(n, :five) + :five, z = :five",
    "SET a = s",
    "SET m.x = :five",
    "SET l[0] = :five",
    "SET l = list_append(if_not_exists(l, :list), :list)",
    "SET #ttl = :five",
    "SET #ttl = if_not_exists(#ttl, :five)",
    "ADD n :five",
    "ADD ss :c",
    "REMOVE n, nothing",
    "DELETE ss :a",
    "remove m.x set z = :five add n :five",
];

const NAMES: [(&str, &str); 3] = [("#p", "pk"), ("#n", "n"), ("#ttl", "ttl")];

fn values() -> [(&'static str, Value); 10] {
    [
        (":one", json!({ "N": "1" })),
        (":two", json!({ "N": "2" })),
        (":five", json!({ "N": "5" })),
        (":x", json!({ "S": "x" })),
        (":te", json!({ "S": "te" })),
        (":type", json!({ "S": "N" })),
        (":k", json!({ "S": "the key of the case" })),
        (":list", json!({ "L": [{ "N": "9" }] })),
        (":a", json!({ "SS": ["a"] })),
        (":c", json!({ "SS": ["c"] })),
    ]
}

/// An expression with its placeholders. An empty one is left out.
fn expression(member: &str, text: &str) -> Value {
    if text.is_empty() {
        return json!({});
    }
    let is_used = |placeholder: &str| {
        let mut words = text.split(|c: char| !c.is_alphanumeric() && !"#:".contains(c));
        words.any(|word| word == placeholder)
    };
    let mut body = json!({ member: text });
    for (placeholder, name) in NAMES.into_iter().filter(|(placeholder, _)| is_used(placeholder)) {
        body["ExpressionAttributeNames"][placeholder] = json!(name);
    }
    for (placeholder, value) in values().into_iter().filter(|(it, _)| is_used(it)) {
        body["ExpressionAttributeValues"][placeholder] = value;
    }
    body
}

/// The requests of each form, without table and key.
fn requests() -> Vec<(&'static str, Value)> {
    let returned = |of_success: &str, of_failure: &str| {
        json!({
            "ReturnValues": of_success,
            "ReturnValuesOnConditionCheckFailure": of_failure,
        })
    };
    let conditions = CONDITIONS.map(|text| expression("ConditionExpression", text));
    let updates = UPDATES.map(|text| expression("UpdateExpression", text));
    let old = ["NONE", "ALL_OLD"].map(|values| returned(values, values));
    let all = ["NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"]
        .map(|values| returned(values, "ALL_OLD"));
    let updates = combined(&[&updates, &conditions[..OF_UPDATES], &all]).into_iter();
    let others = combined(&[&conditions, &old]).into_iter();
    let others = others.flat_map(|body| [("PutItem", body.clone()), ("DeleteItem", body)]);
    updates.map(|body| ("UpdateItem", body)).chain(others).collect()
}

/// A request of a form about the item of a case.
fn addressed(body: &Value, operation: &str, case: &Case, sort_key: &str) -> Value {
    let new = json!({ "n": {"N": "2"}, "new": {"BOOL": true} });
    let mut body = body.clone();
    match operation {
        "PutItem" => body["Item"] = keyed(case.key, sort_key, &new),
        _ => body["Key"] = keyed(case.key, sort_key, &json!({})),
    }
    if let Some(value) = body.pointer_mut("/ExpressionAttributeValues/:k") {
        *value = json!({ "S": case.key });
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_answers_as_on_one_unsharded_item() {
    let world = World::new(true).await;
    world.grow(GROWN, 4).await;
    world.grow(GROWN, 8).await;
    let mut sort_keys = sort_keys();
    let is_equal = |one: &Answer, other: &Answer| {
        one.0 == other.0 && comparable(one.1.clone()) == comparable(other.1.clone())
    };
    for (operation, body) in requests() {
        for case in &CASES {
            let sort_key = sort_keys.next().expect("sort keys");
            case.store(&world, &sort_key);
            let request = addressed(&body, operation, case, &sort_key);
            let [mut expected, mut got] = world.answers(operation, &request).await;
            // The engine returns the keys of an item that was not there. DynamoDB returns nothing.
            if !case.has_item && body["ReturnValues"] == json!("ALL_OLD") {
                for answer in [&mut expected, &mut got] {
                    answer.1.as_object_mut().map(|answer| answer.remove("Attributes"));
                }
            }
            // The engine makes an item of its keys by an update that only removes. DynamoDB does
            // nothing.
            let update = body["UpdateExpression"].as_str().unwrap_or_default();
            let only_removes = update.starts_with("REMOVE") || update.starts_with("DELETE");
            let key = keyed(case.key, &sort_key, &json!({}));
            if !case.has_item && only_removes && expected.0 == 200 {
                world.engine("DeleteItem", &json!({ "TableName": PLAIN, "Key": key }));
                expected.1 = json!({});
            }
            let read = json!({ "Key": key, "ConsistentRead": true });
            let [left, got_left] = world.answers("GetItem", &read).await;
            let same_error = expected.0 == 400
                && expected.1["__type"] == got.1["__type"]
                && expected.1["message"].is_string()
                && !expected.1.to_string().contains("ConditionalCheckFailed");
            let is_right = (is_equal(&expected, &got) || same_error)
                && is_equal(&left, &got_left)
                && !leaks(&got.1)
                && !leaks(&got_left.1);
            assert!(
                is_right,
                "{operation} on {}: {body}\n  engine   {expected:?}\n  endpoint {got:?}\n  left     \
                 {left:?}\n  left     {got_left:?}",
                case.name
            );
        }
    }
}

/// DynamoDB ignores it. The engine refuses it, so it is no oracle here.
#[tokio::test(flavor = "multi_thread")]
async fn the_removal_of_a_part_of_no_item_is_ignored() {
    let world = World::new(true).await;
    world.grow(GROWN, 4).await;
    world.grow(GROWN, 8).await;
    for (case, sort_key) in CASES.iter().filter(|case| !case.has_item).zip(sort_keys()) {
        case.store(&world, &sort_key);
        let key = keyed(case.key, &sort_key, &json!({}));
        let update = json!({
            "Key": key,
            "UpdateExpression": "REMOVE #m.x, l[0] DELETE ss :s",
            "ExpressionAttributeNames": { "#m": "m" },
            "ExpressionAttributeValues": { ":s": {"SS": ["a"]} },
        });
        assert_eq!(world.done("UpdateItem", &update).await, json!({}), "{}", case.name);
        let get = json!({ "Key": key, "ConsistentRead": true });
        assert_eq!(world.done("GetItem", &get).await, json!({}), "{}", case.name);
    }
}
