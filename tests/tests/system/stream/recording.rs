//! The recorder of the engine's stream, and the connection of an instance that it records.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use embedded_dynamodb::{Engine, InProcess};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value as Json, json};
use sharding::internal::Clock;
use system_tests::{TestClock, ask};
use tokio::time::sleep;

const TABLES: &str = "DynamoDB_20120810";
const STREAMS: &str = "DynamoDBStreams_20120810";

#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) stored_key: String,
    pub(super) at: Duration,
    pub(super) json: Json,
}

/// The engine's stream, with the test's time.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) engine: Engine,
    pub(super) clock: TestClock,
    iterator: Mutex<Json>,
    records: Mutex<Vec<Arc<Made>>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    pub(super) fn new(engine: Engine, clock: TestClock) -> Self {
        let view = json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"});
        let table = json!({"TableName": "items", "StreamSpecification": view});
        let updated = ask(&engine, TABLES, "UpdateTable", &table);
        let arn = &updated["TableDescription"]["LatestStreamArn"];
        let stream = ask(&engine, STREAMS, "DescribeStream", &json!({"StreamArn": arn}));
        let shard = &stream["StreamDescription"]["Shards"][0]["ShardId"];
        let begin =
            json!({"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"});
        let mut begun = ask(&engine, STREAMS, "GetShardIterator", &begin);
        let iterator = Mutex::new(begun["ShardIterator"].take());
        Self { engine, clock, iterator, records: Mutex::default() }
    }

    /// Takes in the new records, with the current time.
    fn take_in(&self, by_time_to_live: bool) {
        let at = self.clock.now().wall;
        let mut iterator = lock(&self.iterator);
        let request = json!({"ShardIterator": *iterator});
        let response = ask(&self.engine, STREAMS, "GetRecords", &request);
        *iterator = response["NextShardIterator"].clone();
        for record in response["Records"].as_array().expect("records") {
            let mut json = record.clone();
            json["dynamodb"]["ApproximateCreationDateTime"] = json!(at.as_secs());
            if by_time_to_live {
                json["userIdentity"] =
                    json!({"type": "Service", "principalId": "dynamodb.amazonaws.com"});
            }
            let stored_key =
                json["dynamodb"]["Keys"]["partition_key"]["S"].as_str().expect("a key").to_owned();
            lock(&self.records).push(Arc::new(Made { stored_key, at, json }));
        }
    }

    pub(super) fn records(&self) -> Vec<Arc<Made>> {
        lock(&self.records).clone()
    }

    /// Removes expired items, as DynamoDB does.
    pub(super) fn expire(&self) {
        let now = self.clock.now().wall.as_secs();
        let scanned = ask(&self.engine, TABLES, "Scan", &json!({"TableName": "items"}));
        for item in scanned["Items"].as_array().expect("items") {
            let ends = item["expires"]["N"].as_str().and_then(|text| text.parse::<u64>().ok());
            if ends.is_some_and(|ends| ends <= now) {
                let key =
                    json!({"partition_key": item["partition_key"], "sort_key": item["sort_key"]});
                let request = json!({"TableName": "items", "Key": key});
                ask(&self.engine, TABLES, "DeleteItem", &request);
                self.take_in(true);
            }
        }
    }
}

/// An instance's connection. It records writes, and loses some of the responses.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) inner: InProcess,
    pub(super) stream: Arc<Stream>,
    pub(super) faults: Arc<Mutex<(StdRng, f64)>>,
}

impl HttpConnector for Connection {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let writes = target.ends_with(".PutItem") || target.ends_with(".DeleteItem");
        let this = self.clone();
        HttpConnectorFuture::new(async move {
            let delay = lock(&this.faults).0.random_range(1..30);
            sleep(Duration::from_millis(delay)).await;
            // No other request intervenes, because the engine responds at once.
            let response = this.inner.call(request).await;
            if writes {
                this.stream.take_in(false);
                let (rng, share) = &mut *lock(&this.faults);
                if rng.random_bool(*share) {
                    return Err(ConnectorError::io("the connection broke".into()));
                }
            }
            response
        })
    }
}
