//! The first process of a table decides whether its keys are armed. An endpoint is that process: if
//! another one armed all keys of an empty table later, the endpoint would still pass their writes.

use serde_json::{Value, json};

use crate::world::{SHARDED, World};

fn item() -> Value {
    json!({ "pk": {"S": "k"}, "sk": {"S": "a"} })
}

async fn stored_by_the_endpoint(world: &World) -> Value {
    let put = json!({ "TableName": SHARDED, "Item": item() });
    let (status, answer) = world.endpoint("PutItem", &put).await;
    assert_eq!(status, 200, "{answer}");
    let get = json!({ "TableName": SHARDED, "Key": item() });
    world.engine("GetItem", &get).1["Item"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_table_of_a_stack_has_all_keys_armed() {
    let world = World::unclaimed(false).await;
    let stored = stored_by_the_endpoint(&world).await;
    assert!(stored["_sh:v"].is_object(), "the first write has a version: {stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_program_has_no_armed_key() {
    let world = World::unclaimed(true).await;
    // Another process comes before the first item.
    let refused = world.table.put("k", "a", std::collections::BTreeMap::<String, u64>::new()).await;
    let refused = refused.expect_err("no key is armed");
    assert!(refused.to_string().contains("armed"), "{refused}");
    assert_eq!(stored_by_the_endpoint(&world).await, item());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_armed_needs_no_metadata_table() {
    let world = World::without_sort_key().await;
    let put = json!({ "TableName": SHARDED, "Item": { "pk": {"S": "k"} } });
    assert_eq!(world.endpoint("PutItem", &put).await.0, 200);
    let tables = world.engine("ListTables", &json!({})).1;
    assert_eq!(tables["TableNames"], json!([SHARDED]));
}
