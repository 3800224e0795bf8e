//! Each form of condition, update and `ReturnValues` on each state of an item gives the same answer
//! as on one unsharded item, and leaves the same item.

use serde_json::{Value, json};

use crate::cases::{CASES, Case, GROWN, comparable, keyed, leaks, sort_keys};
use crate::world::{PLAIN, SHARDED, World};

/// Conditions, with their placeholders.
fn conditions() -> Vec<(&'static str, Value, Value)> {
    let names = json!({ "#p": "pk", "#n": "n" });
    let none = json!({});
    let one = json!({ ":one": {"N": "1"} });
    vec![
        ("", none.clone(), none.clone()),
        ("attribute_not_exists(pk)", none.clone(), none.clone()),
        ("attribute_exists(#p)", json!({ "#p": "pk" }), none.clone()),
        ("attribute_not_exists(sk)", none.clone(), none.clone()),
        ("attribute_exists(sk) AND attribute_exists(pk)", none.clone(), none.clone()),
        ("n = :one", none.clone(), one.clone()),
        ("(#n = :one)", json!({ "#n": "n" }), one.clone()),
        ("n <> :one", none.clone(), one.clone()),
        ("attribute_not_exists(n) OR n < :one", none.clone(), one.clone()),
        ("attribute_not_exists(#p) OR #n = :one", names.clone(), one.clone()),
        ("n BETWEEN :one AND :two", none.clone(), json!({":one": {"N": "1"}, ":two": {"N": "2"}})),
        ("n IN (:one, :two)", none.clone(), json!({":one": {"N": "1"}, ":two": {"N": "2"}})),
        ("NOT contains(s, :x)", none.clone(), json!({ ":x": {"S": "x"} })),
        ("begins_with(s, :t)", none.clone(), json!({ ":t": {"S": "te"} })),
        ("size(s) > :one", none.clone(), one.clone()),
        ("attribute_type(n, :n)", none.clone(), json!({ ":n": {"S": "N"} })),
        ("m.x = :one AND l[1] <> :one", none.clone(), one.clone()),
        ("pk = :k", none.clone(), json!({ ":k": {"S": "?"} })),
        ("attribute_exists(ttl)", none, json!({})),
    ]
}

/// Updates, with their values.
fn updates() -> Vec<(&'static str, Value)> {
    let one = json!({ ":u": {"N": "5"} });
    vec![
        ("", json!({})),
        ("SET n = :u", one.clone()),
        ("SET n = n + :u", one.clone()),
        ("SET n = if_not_exists(n, :u) + :u, z = :u", one.clone()),
        ("SET a = s", json!({})),
        ("SET m.x = :u", one.clone()),
        ("SET l[0] = :u", one.clone()),
        ("SET l = list_append(if_not_exists(l, :e), :e)", json!({ ":e": {"L": [{"N": "9"}]} })),
        ("SET #ttl = :u", one.clone()),
        ("SET #ttl = if_not_exists(#ttl, :u)", one.clone()),
        ("ADD n :u", one.clone()),
        ("ADD ss :s", json!({ ":s": {"SS": ["c"]} })),
        ("REMOVE n, nothing", json!({})),
        ("DELETE ss :s", json!({ ":s": {"SS": ["a"]} })),
        ("remove m.x set z = :u add n :u", one),
    ]
}

/// The requests of one form, without table and key.
fn requests() -> Vec<(&'static str, Value)> {
    let mut requests = Vec::new();
    for (condition, names, values) in conditions() {
        for returned in ["NONE", "ALL_OLD"] {
            for operation in ["PutItem", "DeleteItem"] {
                let mut body = json!({
                    "ReturnValues": returned,
                    "ReturnValuesOnConditionCheckFailure": returned,
                });
                complete(&mut body, condition, &names, &values);
                requests.push((operation, body));
            }
        }
    }
    for (update, update_values) in updates() {
        for (condition, names, values) in conditions().into_iter().take(9) {
            for returned in ["NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"] {
                let mut body = json!({
                    "ReturnValues": returned,
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                });
                let (mut names, mut values) = (names.clone(), values.clone());
                for (name, value) in update_values.as_object().into_iter().flatten() {
                    values[name] = value.clone();
                }
                if update.contains("#ttl") {
                    names["#ttl"] = json!("ttl");
                }
                if !update.is_empty() {
                    body["UpdateExpression"] = json!(update);
                }
                complete(&mut body, condition, &names, &values);
                requests.push(("UpdateItem", body));
            }
        }
    }
    requests
}

fn complete(body: &mut Value, condition: &str, names: &Value, values: &Value) {
    let of = [("ExpressionAttributeNames", names), ("ExpressionAttributeValues", values)];
    for (member, map) in of {
        if map.as_object().is_some_and(|map| !map.is_empty()) {
            body[member] = map.clone();
        }
    }
    if !condition.is_empty() {
        body["ConditionExpression"] = json!(condition);
    }
}

fn addressed(mut body: Value, operation: &str, table: &str, case: &Case, sort_key: &str) -> Value {
    body["TableName"] = json!(table);
    let new = json!({ "n": {"N": "2"}, "new": {"BOOL": true} });
    let key = keyed(case.key, sort_key, &json!({}));
    match operation {
        "PutItem" => body["Item"] = keyed(case.key, sort_key, &new),
        _ => body["Key"] = key,
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
    let (mut sort_keys, mut count, mut wrong) = (sort_keys(), 0, Vec::new());
    for (operation, body) in requests() {
        for case in &CASES {
            let sort_key = sort_keys.next().expect("sort keys");
            case.store(&world, &sort_key);
            let of = |table: &str| addressed(body.clone(), operation, table, case, &sort_key);
            let mut expected = world.engine(operation, &of(PLAIN));
            let mut got = world.endpoint(operation, &of(SHARDED)).await;
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
            if !case.has_item && only_removes && expected.0 == 200 {
                world.remove(PLAIN, case.key, &sort_key);
                expected.1 = json!({});
            }
            let read = |table: &str| {
                let key = keyed(case.key, &sort_key, &json!({}));
                json!({ "TableName": table, "Key": key, "ConsistentRead": true })
            };
            let left = world.engine("GetItem", &read(PLAIN));
            let got_left = world.endpoint("GetItem", &read(SHARDED)).await;
            count += 1;
            let message = |answer: &(u16, Value)| answer.1["message"].as_str().map(str::to_owned);
            let is_equal = |one: (u16, Value), other: (u16, Value)| {
                one.0 == other.0 && comparable(one.1) == comparable(other.1)
            };
            let same_error = expected.0 == 400
                && expected.1["__type"] == got.1["__type"]
                && message(&expected).is_some();
            let is_right = (is_equal(expected.clone(), got.clone())
                || (same_error && !expected.1.to_string().contains("ConditionalCheckFailed")))
                && is_equal(left.clone(), got_left.clone())
                && !leaks(&got.1)
                && !leaks(&got_left.1);
            if !is_right {
                wrong.push(format!(
                    "{operation} on {}: {body}\n  engine   {expected:?}\n  endpoint {got:?}\n  left \
                     {left:?}\n  left     {got_left:?}",
                    case.name
                ));
            }
        }
    }
    println!("{count} requests, {} equal", count - wrong.len());
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.iter().take(25).cloned().collect::<Vec<_>>().join("\n")
    );
}

/// DynamoDB ignores it. The engine refuses it, so it is no oracle here.
#[tokio::test(flavor = "multi_thread")]
async fn the_removal_of_a_part_of_no_item_is_ignored() {
    let world = World::new(true).await;
    world.grow(GROWN, 4).await;
    world.grow(GROWN, 8).await;
    let mut unused = sort_keys();
    for case in CASES.iter().filter(|case| !case.has_item) {
        let sort_key = unused.next().expect("a sort key");
        case.store(&world, &sort_key);
        let key = keyed(case.key, &sort_key, &json!({}));
        let update = json!({
            "TableName": SHARDED,
            "Key": key,
            "UpdateExpression": "REMOVE #m.x, l[0] DELETE ss :s",
            "ExpressionAttributeNames": { "#m": "m" },
            "ExpressionAttributeValues": { ":s": {"SS": ["a"]} },
        });
        let answer = world.endpoint("UpdateItem", &update).await;
        assert_eq!(answer, (200, json!({})), "{}", case.name);
        let get = json!({ "TableName": SHARDED, "Key": key, "ConsistentRead": true });
        assert_eq!(world.endpoint("GetItem", &get).await, (200, json!({})), "{}", case.name);
    }
}
