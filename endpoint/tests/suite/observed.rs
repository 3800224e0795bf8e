//! What the endpoint observes of keys that are not armed, and how `status` shows it.

use std::collections::BTreeSet;
use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use endpoint::{Server, observations};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::world::{SHARDED, World};

fn item(number: usize) -> Value {
    json!({ "pk": {"S": "hot"}, "sk": {"S": number.to_string()} })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_key_is_shown_with_what_would_be_refused() {
    let world = World::new(false).await;
    let slow = PartitionLimits { partitions: 64, write_units: 100.0, ..PartitionLimits::default() };
    world.engine.set_limits([(SHARDED.to_owned(), slow)]);
    let (listener, service) =
        (TcpListener::bind("127.0.0.1:0").await.expect("a port"), world.service.clone());
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(Server::new(service, &[]).serve(listener, async {
        let _ = stopped.await;
    }));
    assert!(observations(address).await.contains("no key was throttled"));

    let transact =
        json!({ "TransactItems": [{ "Put": { "TableName": SHARDED, "Item": item(0) } }] });
    assert_eq!(world.endpoint("TransactWriteItems", &transact).await.0, 200);
    let old = json!({ "TableName": SHARDED, "Item": item(1), "Expected": {} });
    world.endpoint("PutItem", &old).await;
    let mut unprocessed = 0;
    for batch in 0..40 {
        let mut puts: Vec<Value> =
            (0..24).map(|n| json!({ "PutRequest": { "Item": item(24 * batch + n) } })).collect();
        let cool = json!({ "pk": {"S": "cool"}, "sk": {"S": batch.to_string()} });
        puts.push(json!({ "PutRequest": { "Item": cool } }));
        let (_, answer) =
            world.endpoint("BatchWriteItem", &json!({ "RequestItems": { SHARDED: puts } })).await;
        unprocessed += answer["UnprocessedItems"][SHARDED].as_array().map_or(0, Vec::len);
    }
    assert!(unprocessed > 0, "the partition has a limit");

    let hot = world.service.observed().take(Duration::from_secs(1));
    let [hot] = &hot[..] else { panic!("{hot:?}") };
    assert_eq!((hot.key.as_str(), hot.write_units), ("hot", 963.0));
    assert_eq!(hot.refused, BTreeSet::from(["Expected", "TransactWriteItems"]));
    let shown = observations(address).await;
    assert!(
        shown.contains(
            "orders \"hot\": 963 write units a second, 2 shards; refused once it is armed: \
             Expected, TransactWriteItems"
        ),
        "{shown}"
    );
    stop.send(()).expect("the server runs");
    server.await.expect("no panic").expect("it stops");
    assert!(observations(address).await.starts_with("no endpoint answers"));
}
