//! What happens at an old place between the two requests of a query with a filter: a write without
//! a response arrives, or a drain removes what it has moved.

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use embedded_dynamodb::{Engine, InProcess};
use serde_json::{Value, json};

use crate::world::{SHARDED, World};

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

impl Late {
    fn request(&self, operation: &str, body: &Value) -> Value {
        let target = format!("DynamoDB_20120810.{operation}");
        let answer = self.engine.respond("/", Some(&target), body.to_string().as_bytes());
        assert_eq!(answer.status, 200);
        serde_json::from_slice(&answer.body).expect("JSON")
    }
}

impl HttpConnector for Late {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body: Value =
            serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        if body["FilterExpression"].is_string() {
            let stored = self.request("Scan", &json!({ "TableName": SHARDED }));
            let of_first = |item: &&Value| item["pk"]["S"] == "k";
            for item in stored["Items"].as_array().expect("items").iter().filter(of_first) {
                if self.event == Event::Removal {
                    let key = json!({ "pk": item["pk"], "sk": item["sk"] });
                    self.request("DeleteItem", &json!({ "TableName": SHARDED, "Key": key }));
                    continue;
                }
                let mut item = item.clone();
                let version: u128 = item["_sh:v"]["N"]
                    .as_str()
                    .and_then(|text| text.parse().ok())
                    .expect("a version");
                item["_sh:v"] = json!({ "N": (version + 1).to_string() });
                self.request("PutItem", &json!({ "TableName": SHARDED, "Item": item }));
            }
        }
        InProcess::new(self.engine.clone()).call(request)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_put_between_two_requests_hides_no_item() {
    all_are_found(Event::LatePut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_between_two_requests_hides_no_item() {
    all_are_found(Event::Removal).await;
}

async fn all_are_found(event: Event) {
    let world = World::new(true).await;
    for number in 0..ITEMS {
        let item = json!({ "pk": {"S": "k"}, "sk": {"S": number.to_string()}, "n": {"N": "1"} });
        let (status, answer) =
            world.endpoint("PutItem", &json!({ "TableName": SHARDED, "Item": item })).await;
        assert_eq!(status, 200, "{answer}");
    }
    world.grow("k", 4).await;
    let late = Late { engine: world.engine.clone(), event };
    if event == Event::Removal {
        let stored = late.request("Scan", &json!({ "TableName": SHARDED }));
        for item in stored["Items"].as_array().expect("items") {
            for shard in 2..=4 {
                let mut copy = item.clone();
                copy["pk"] = json!({ "S": format!("k\u{1f}s{shard}") });
                copy["_sh:k"] = json!({ "S": "k" });
                world.store(SHARDED, &copy);
            }
        }
    }
    let mut query = json!({
        "TableName": SHARDED,
        "KeyConditionExpression": "pk = :k",
        "FilterExpression": "n > :zero",
        "ExpressionAttributeValues": { ":k": {"S": "k"}, ":zero": {"N": "0"} },
        "ConsistentRead": true,
    });
    let (_, answer) = world.through(late).await.endpoint("Query", &query).await;
    // Items whose home is the first shard are gone after a removal.
    query["ExpressionAttributeValues"] = json!({ ":k": {"S": "k"} });
    query.as_object_mut().expect("an object").remove("FilterExpression");
    let (_, left) = world.endpoint("Query", &query).await;
    assert!(left["Count"].as_u64() > Some(ITEMS as u64 / 2), "{left}");
    assert_eq!(answer["Count"], left["Count"], "{answer}");
}
