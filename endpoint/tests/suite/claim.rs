//! The first process of a table decides whether its keys are armed. An endpoint is that process: if
//! another one armed all keys of an empty table later, the endpoint would still pass their writes.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use embedded_dynamodb::Engine;
use serde_json::{Value, json};
use sharding::create_tables;

use crate::world::{SHARDED, World, config};

async fn stored_by_the_endpoint(world: &World, item: &Value) -> Value {
    world.done("PutItem", &json!({ "Item": item })).await;
    world.engine("Scan", &json!({ "TableName": SHARDED })).1["Items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_table_of_a_stack_has_all_keys_armed() {
    let engine = Engine::in_memory().expect("a database");
    let client = Client::new(&engine.sdk_config());
    create_tables(&client, &config()).await.expect("the tables");
    let world = World::unclaimed(engine, false).await;
    let item = json!({ "pk": {"S": "k"}, "sk": {"S": "a"} });
    let stored = stored_by_the_endpoint(&world, &item).await;
    assert!(stored["_sh:v"].is_object(), "the first write has a version: {stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_program_has_no_armed_key() {
    let engine = Engine::in_memory().expect("a database");
    engine.create_table(SHARDED, "pk", Some("sk")).expect("a table");
    let world = World::unclaimed(engine, true).await;
    // Another process comes before the first item.
    let refused = world.table.put("k", "a", BTreeMap::<String, u64>::new()).await;
    let refused = refused.expect_err("no key is armed");
    assert!(refused.to_string().contains("armed"), "{refused}");
    let item = json!({ "pk": {"S": "k"}, "sk": {"S": "a"} });
    assert_eq!(stored_by_the_endpoint(&world, &item).await, item);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_armed_needs_no_metadata_table() {
    let engine = Engine::in_memory().expect("a database");
    engine.create_table(SHARDED, "pk", None).expect("a table");
    let world = World::unclaimed(engine, false).await;
    world.done("PutItem", &json!({ "Item": { "pk": {"S": "k"} } })).await;
    let tables = world.engine("ListTables", &json!({})).1;
    assert_eq!(tables["TableNames"], json!([SHARDED]));
}
