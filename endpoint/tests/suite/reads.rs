//! Reads of a key with several shards, beside those of a plain table.

use serde_json::{Value, json};

use crate::cases::{CASES, GROWN, keyed};
use crate::indexes::{ITEMS, filled};
use crate::world::{PLAIN, SHARDED, World, combined, expression, joined, together};

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_those_of_one_unsharded_key() {
    let world = filled(GROWN, &[1, 4, 8]).await;
    let all = json!({
        "ExpressionAttributeValues": { ":k": {"S": GROWN} },
        "ConsistentRead": true,
    });
    let text = |text: &str| json!({ "S": text });
    let condition = |text, values| expression("KeyConditionExpression", text, values);
    let names = json!({ "ExpressionAttributeNames": {"#p": "pk"} });
    let between = json!({ ":a": text("005"), ":b": text("044") });
    let begins = json!({ ":a": text("02") });
    let conditions = [
        condition("pk = :k", json!({})),
        condition("pk = :k AND sk > :a", json!({ ":a": text("010") })),
        together(&[&condition("#p = :k AND sk BETWEEN :a AND :b", between), &names]),
        together(&[&condition("begins_with(sk, :a) AND (#p = :k)", begins), &names]),
        condition("pk = :k AND sk = :a", json!({ ":a": text("025") })),
        condition(":k = pk AND :a = sk", json!({ ":a": text("025") })),
    ];
    let filter = |text, value: Value| expression("FilterExpression", text, json!({ ":f": value }));
    let filters = [
        json!({}),
        filter("n > :f", json!({ "N": "2" })),
        filter("attribute_not_exists(n) OR n = :f", json!({ "N": "9" })),
        filter("contains(words, :f)", text("xxxx")),
    ];
    let pages = [
        json!({}),
        json!({ "Limit": 1 }),
        json!({ "Limit": 7, "ScanIndexForward": false }),
        json!({ "Limit": 20 }),
        json!({ "ScanIndexForward": false }),
    ];
    let shown = [
        json!({}),
        json!({ "ProjectionExpression": "n, sk" }),
        json!({ "ProjectionExpression": "pk" }),
        json!({ "Select": "COUNT" }),
    ];
    for query in combined(&[&[all], &conditions, &filters, &pages, &shown]) {
        let [expected, got] = world.both_pages(&query).await;
        assert_eq!(joined(&expected), joined(&got), "{query}");
        if query.get("Limit").is_some() {
            // An empty last page is allowed.
            let full = |pages: &[Value]| {
                let of = |page: &Value| page["ScannedCount"].as_u64();
                pages.iter().filter_map(of).filter(|it| *it > 0).collect::<Vec<_>>()
            };
            assert_eq!(full(&expected), full(&got), "{query}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn single_reads_and_batches_are_those_of_unsharded_items() {
    let world = filled(GROWN, &[1, 4, 8]).await;
    let key = |number: u32| keyed(GROWN, &format!("{number:03}"), &json!({}));
    let put = json!({ "PutRequest": { "Item": keyed(GROWN, "000", &json!({ "n": {"N": "7"} })) } });
    let writes = json!([put, { "DeleteRequest": { "Key": key(1) } }]);
    let batch = json!({ "RequestItems": { SHARDED: writes, PLAIN: writes } });
    let answer = world.endpoint("BatchWriteItem", &batch).await;
    assert_eq!(answer, (200, json!({ "UnprocessedItems": {} })));
    for number in 0..ITEMS {
        for more in [
            json!({}),
            json!({ "ProjectionExpression": "n" }),
            json!({ "ProjectionExpression": "#p, n", "ExpressionAttributeNames": {"#p": "pk"} }),
        ] {
            let mut body = more;
            body["Key"] = key(number);
            body["ConsistentRead"] = json!(true);
            world.both("GetItem", &body).await;
        }
    }
    let transaction = |table: &str| {
        let get = |number| json!({ "Get": { "TableName": table, "Key": key(number) } });
        json!({ "TransactItems": (0..20).map(get).collect::<Vec<_>>() })
    };
    let expected = world.engine("TransactGetItems", &transaction(PLAIN));
    assert_eq!(world.endpoint("TransactGetItems", &transaction(SHARDED)).await, expected);
    let keys = json!({ "Keys": (0..20).map(key).collect::<Vec<_>>(), "ConsistentRead": true });
    let batch = world.endpoint("BatchGetItem", &json!({ "RequestItems": { SHARDED: keys } })).await;
    let items = expected.1["Responses"].as_array().into_iter().flatten();
    let items: Vec<_> = items.filter_map(|response| response.get("Item")).collect();
    assert_eq!(batch.1["Responses"][SHARDED], json!(items));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_does_not_count_the_tombstones_of_one_shard() {
    let world = World::new(true).await;
    let case = CASES.iter().find(|case| case.name == "one place, a tombstone").expect("a case");
    case.store(&world, "s");
    let query = json!({
        "KeyConditionExpression": "pk = :k",
        "FilterExpression": "attribute_not_exists(nothing)",
        "ExpressionAttributeValues": { ":k": {"S": case.key} },
    });
    world.both("Query", &query).await;
}

/// DynamoDB allows it. A tombstone has its keys.
#[tokio::test(flavor = "multi_thread")]
async fn the_sort_key_may_be_the_time_to_live() {
    let world = World::with_numbers().await;
    let ttl = json!({ "TableName": SHARDED,
        "TimeToLiveSpecification": { "AttributeName": "sk", "Enabled": true } });
    assert_eq!(world.engine("UpdateTimeToLive", &ttl).0, 200);
    let world = world.with_another_endpoint().await;
    world.grow("k", 4).await;
    for number in 0..8 {
        let keys = json!({ "pk": {"S": "k"}, "sk": {"N": (1_900_000_000 + number).to_string()} });
        let condition = "attribute_not_exists(pk)";
        let put = json!({ "Item": keys, "ConditionExpression": condition });
        world.both("PutItem", &put).await;
        world.both("DeleteItem", &json!({ "Key": keys, "ReturnValues": "ALL_OLD" })).await;
        let update = json!({ "Key": keys, "UpdateExpression": "SET n = :n",
            "ExpressionAttributeValues": { ":n": {"N": "1"} }, "ReturnValues": "ALL_NEW" });
        world.both("UpdateItem", &update).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_spellings_of_a_number_are_one_item_of_a_batch() {
    let world = World::with_numbers().await;
    let keyed = |number: &str| json!({ "pk": {"S": "k"}, "sk": {"N": number} });
    world.both("PutItem", &json!({ "Item": keyed("1000") })).await;
    let of = |keys: [&str; 2]| json!({ "RequestItems": { SHARDED: { "Keys": keys.map(keyed) } } });
    let answer = world.done("BatchGetItem", &of(["1000", "1e3"])).await;
    assert_eq!(answer["Responses"][SHARDED], json!([keyed("1000")]));
    let answer = world.refused("BatchGetItem", &of(["1000", "1000"])).await;
    assert!(answer["message"].to_string().contains("duplicates"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_more_than_16_megabytes_leaves_keys_unprocessed() {
    let world = World::new(true).await;
    let text = "x".repeat(390_000);
    for number in 0..45 {
        let item = keyed("k", &format!("{number:02}"), &json!({ "text": {"S": text} }));
        world.both("PutItem", &json!({ "Item": item })).await;
    }
    let mut left: Vec<_> =
        (0..45).map(|number| keyed("k", &format!("{number:02}"), &json!({}))).collect();
    let (mut found, mut rounds) = (0, 0);
    while !left.is_empty() {
        let request = json!({ "RequestItems": { SHARDED: { "Keys": left } } });
        let reply = world.reply("BatchGetItem", request.to_string()).await;
        assert!(reply.status.is_success() && reply.body.len() < 17_000_000);
        let answer: Value = serde_json::from_slice(&reply.body).expect("JSON");
        found += answer["Responses"][SHARDED].as_array().map_or(0, Vec::len);
        let keys = answer["UnprocessedKeys"][SHARDED]["Keys"].as_array();
        left = keys.cloned().unwrap_or_default();
        rounds += 1;
    }
    assert_eq!((found, rounds), (45, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_served_is_refused_by_name_in_every_width() {
    let world = World::new(true).await;
    world.grow(GROWN, 4).await;
    let statement = |text: &str| ("ExecuteStatement", json!({ "Statement": text }), "armed keys");
    let mut requests = vec![
        ("DeleteTable", json!({}), "DeleteTable"),
        ("PutItem", json!({ "Item": keyed("grown\u{1f}s2", "s", &json!({})) }), "U+001F"),
        statement("SELECT * FROM orders"),
        statement("INSERT INTO\norders VALUE {}"),
        statement("DELETE FROM orders.i"),
    ];
    for key in ["one", GROWN] {
        let keys = keyed(key, "s", &json!({}));
        let ours = keyed(key, "s", &json!({ "_sh:v": {"N": "1"} }));
        let is_false = keyed(key, "s", &json!({ "a": {"L": [{"NULL": false}]} }));
        let removes_ours = json!({ "Key": keys, "UpdateExpression": "REMOVE #v",
            "ExpressionAttributeNames": {"#v": "_sh:d"} });
        let shown = "ReturnValuesOnConditionCheckFailure";
        let put = json!({ "Put": { "TableName": SHARDED, "Item": keys } });
        let puts = |count: usize| {
            let puts = vec![json!({ "PutRequest": { "Item": keys } }); count];
            json!({ "RequestItems": { SHARDED: puts } })
        };
        requests.extend([
            ("PutItem", json!({ "Item": keys, "Expected": {} }), "Expected"),
            ("PutItem", json!({ "Item": ours }), "_sh:v"),
            ("PutItem", json!({ "Item": is_false }), "the value of true"),
            ("PutItem", json!({ "Item": keys, shown: "UPDATED_OLD" }), "returnValuesOn"),
            (
                "UpdateItem",
                json!({ "Key": keys, "UpdateExpression": "SET a = sk" }),
                "a key name on the right-hand side",
            ),
            ("UpdateItem", removes_ours, "_sh:d"),
            ("GetItem", json!({ "Key": keys, "AttributesToGet": ["a"] }), "AttributesToGet"),
            ("GetItem", json!({ "Key": keys, "ProjectionExpression": "pk.x" }), "a part of a key"),
            ("TransactWriteItems", json!({ "TransactItems": [put] }), "TransactWriteItems"),
            ("BatchWriteItem", puts(26), "Too many items"),
            ("BatchWriteItem", puts(2), "duplicates"),
        ]);
        // A condition cannot leave its group.
        for (text, why) in [
            ("a = :a) OR (b = :a", "no partner"),
            ("(a = :a", "no partner"),
            ("a = :a)", "no partner"),
            ("", "can not be empty"),
        ] {
            let put = expression("ConditionExpression", text, json!({ ":a": {"N": "1"} }));
            requests.push(("PutItem", together(&[&put, &json!({ "Item": keys })]), why));
        }
    }
    for (operation, body, why) in requests {
        let answer = world.refused(operation, &body).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.contains(why), "{operation} {body}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_another_parser_may_read_does_not_pass() {
    let world = World::new(true).await;
    let body = format!(
        r#"{{"TableName":"{SHARDED}","Item":{{"pk":{{"S":"k"}},"sk":{{"S":"s"}},"a":{{"S":"\ud83d"}}}}}}"#
    );
    let reply = world.reply("PutItem", body).await;
    assert_eq!(reply.status.as_u16(), 400);
    assert!(String::from_utf8_lossy(&reply.body).contains("SerializationException"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_placeholder_may_stand_for_both_keys() {
    let world = World::new(true).await;
    for key in ["a", "b", "c", "d", "e"] {
        world.grow(key, 4).await;
        world.both("PutItem", &json!({ "Item": keyed(key, key, &json!({})) })).await;
        let query = json!({
            "KeyConditionExpression": "sk = :id AND pk = :id",
            "ExpressionAttributeValues": { ":id": {"S": key} },
        });
        let [expected, got] = world.both_pages(&query).await.map(|pages| joined(&pages));
        assert_eq!(expected.1, 1, "{expected:?}");
        assert_eq!(got, expected);
    }
    let scan = json!({
        "FilterExpression": "pk = :c OR sk = :d",
        "ExpressionAttributeValues": { ":c": {"S": "c"}, ":d": {"S": "d"} },
    });
    let answer = world.done("Scan", &scan).await;
    assert_eq!(answer["Count"], json!(2), "{answer}");
}
