//! The first process of a table decides whether its keys are armed. An endpoint is that process: if
//! another one armed all keys of an empty table later, the endpoint would still pass their writes.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use embedded_dynamodb::{Engine, InProcess};
use serde_json::{Value, json};
use sharding::create_tables;

use crate::world::{SHARDED, World, config, serve};

/// Stores an item through the endpoint, and returns what the table has then.
async fn stored(world: &World, item: &Value) -> Value {
    world.done("PutItem", &json!({ "Item": item })).await;
    world.engine("Scan", &json!({ "TableName": SHARDED })).1["Items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_empty_table_of_a_stack_has_armed_keys() {
    let item = json!({ "pk": {"S": "k"}, "sk": {"S": "a"} });
    let engine = Engine::in_memory().expect("a database");
    let client = Client::new(&engine.sdk_config());
    create_tables(&client, &config()).await.expect("the tables");
    let of_stack = stored(&World::unclaimed(engine, false).await, &item).await;
    assert!(of_stack["_sh:v"].is_object(), "the first write has a version: {of_stack}");

    let engine = Engine::in_memory().expect("a database");
    engine.create_table(SHARDED, "pk", Some("sk")).expect("a table");
    let world = World::unclaimed(engine, true).await;
    // Another process comes before the first item.
    let refused = world.table.put("k", "a", BTreeMap::<String, u64>::new()).await;
    let refused = refused.expect_err("no key is armed");
    assert!(refused.to_string().contains("armed"), "{refused}");
    assert_eq!(stored(&world, &item).await, item);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_armed_is_not_served() {
    let engine = Engine::in_memory().expect("a database");
    engine.create_table(SHARDED, "pk", None).expect("a table");
    let refused = serve(InProcess::new(engine.clone()), &engine, true).await;
    let refused = refused.expect_err("no sort key");
    assert!(refused.to_string().contains("its keys cannot be armed"), "{refused}");
}
