//! What the endpoint observes of keys that are not armed, and how `status` shows it.

use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use endpoint::observations;
use serde_json::{Value, json};

use crate::cases::keyed;
use crate::http_checks::served;
use crate::world::{SHARDED, World};

fn item(key: &str, number: usize) -> Value {
    keyed(key, &number.to_string(), &json!({}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_key_is_shown_with_what_would_be_refused() {
    let world = World::new(false).await;
    let slow = PartitionLimits { partitions: 64, write_units: 100.0, ..PartitionLimits::default() };
    world.engine.set_limits([(SHARDED.to_owned(), slow)]);
    let (address, stop, ended) = served(&world).await;
    assert!(observations(address).await.contains("no key was throttled"));

    let put = json!({ "Put": { "TableName": SHARDED, "Item": item("hot", 0) } });
    world.done("TransactWriteItems", &json!({ "TransactItems": [put] })).await;
    let old = json!({ "TableName": SHARDED, "Item": item("hot", 1), "Expected": {} });
    world.endpoint("PutItem", &old).await;
    let mut unprocessed = 0;
    for batch in 0..40 {
        let items = (0..24).map(|n| item("hot", 24 * batch + n)).chain([item("cool", batch)]);
        let puts: Vec<Value> = items.map(|it| json!({ "PutRequest": { "Item": it } })).collect();
        let (_, answer) =
            world.endpoint("BatchWriteItem", &json!({ "RequestItems": { SHARDED: puts } })).await;
        unprocessed += answer["UnprocessedItems"][SHARDED].as_array().map_or(0, Vec::len);
    }
    assert!(unprocessed > 0, "the partition has a limit");

    let hot = world.service.observed().take(Duration::from_secs(1));
    let [hot] = &hot[..] else { panic!("{hot:?}") };
    assert_eq!((hot.key.as_str(), hot.write_units), ("hot", 963));
    assert!(hot.refused.iter().eq(["Expected", "TransactWriteItems"]), "{:?}", hot.refused);
    let line = "  orders \"hot\": 963 write units a second, 2 shards; refused once it is armed: \
                Expected, TransactWriteItems\n";
    let shown = observations(address).await;
    assert!(shown.ends_with(line), "{shown}");
    stop.send(()).expect("it runs");
    ended.await.expect("it ends").expect("without an error");
    assert!(observations(address).await.starts_with("no endpoint answers"));
}
