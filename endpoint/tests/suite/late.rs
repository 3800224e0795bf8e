//! What happens at an old place between the two requests of a query with a filter: a write without
//! a response arrives, or a drain removes what it has moved.

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use embedded_dynamodb::{Engine, InProcess};
use serde_json::{Value, json};

use crate::cases::keyed;
use crate::world::{SHARDED, World, done};

const ITEMS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// Every item of the first shard gets a higher version.
    LatePut,
    /// Every item of the first shard is removed. The other shards have it in the same version.
    Removal,
}

/// The event comes before a request with a filter.
#[derive(Debug, Clone)]
struct Late {
    engine: Engine,
    event: Event,
}

fn stored(engine: &Engine) -> Vec<Value> {
    let scan = done(engine, "Scan", &json!({ "TableName": SHARDED }));
    scan["Items"].as_array().expect("items").clone()
}

impl HttpConnector for Late {
    fn call(&self, sent: HttpRequest) -> HttpConnectorFuture {
        let body = sent.body().bytes().unwrap_or_default();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if body["FilterExpression"].is_string() {
            let of_first = |item: &Value| item["pk"]["S"] == "k";
            for mut item in stored(&self.engine).into_iter().filter(of_first) {
                if self.event == Event::Removal {
                    let key = json!({ "pk": item["pk"], "sk": item["sk"] });
                    let delete = json!({ "TableName": SHARDED, "Key": key });
                    done(&self.engine, "DeleteItem", &delete);
                    continue;
                }
                let version = item["_sh:v"]["N"].as_str().expect("a version");
                let version: u128 = version.parse().expect("a number");
                item["_sh:v"] = json!({ "N": (version + 1).to_string() });
                let put = json!({ "TableName": SHARDED, "Item": item });
                done(&self.engine, "PutItem", &put);
            }
        }
        InProcess::new(self.engine.clone()).call(sent)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_between_two_requests_hides_no_item() {
    for event in [Event::LatePut, Event::Removal] {
        let world = World::new(true).await;
        for number in 0..ITEMS {
            let item = keyed("k", &number.to_string(), &json!({ "n": {"N": "1"} }));
            world.done("PutItem", &json!({ "Item": item })).await;
        }
        world.grow("k", 4).await;
        let late = Late { engine: world.engine.clone(), event };
        if event == Event::Removal {
            for item in stored(&world.engine) {
                for shard in 2..=4 {
                    let mut copy = item.clone();
                    copy["pk"] = json!({ "S": format!("k\u{1f}s{shard}") });
                    copy["_sh:k"] = json!({ "S": "k" });
                    world.store(SHARDED, &copy);
                }
            }
        }
        let mut query = json!({
            "KeyConditionExpression": "pk = :k",
            "FilterExpression": "n > :zero",
            "ExpressionAttributeValues": { ":k": {"S": "k"}, ":zero": {"N": "0"} },
            "ConsistentRead": true,
        });
        let answer = world.through(late).await.done("Query", &query).await;
        // Items whose home is the first shard are gone after a removal.
        query["ExpressionAttributeValues"] = json!({ ":k": {"S": "k"} });
        query.as_object_mut().expect("an object").remove("FilterExpression");
        let left = world.done("Query", &query).await;
        assert!(left["Count"].as_u64() > Some(ITEMS as u64 / 2), "{event:?}: {left}");
        assert_eq!(answer["Count"], left["Count"], "{event:?}: {answer}");
    }
}
