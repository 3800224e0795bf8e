//! An engine with a sharded table and a plain one, and the endpoint in front of both.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector};
use bytes::Bytes;
use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use endpoint::{Reply, Service, Upstream, open};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use sharding::{ShardedTable, SortKeyType, TableConfig, create_tables};

use crate::cases::{comparable, leaks};

/// The sharded table, and the plain one that the engine serves by itself.
pub(crate) const SHARDED: &str = "orders";
pub(crate) const PLAIN: &str = "plain";

/// An answer: its status and its body.
pub(crate) type Answer = (u16, Value);

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) table: ShardedTable,
    pub(crate) service: Service,
}

async fn serve(engine: &Engine, creates_metadata: bool) -> Service {
    serve_through(InProcess::new(engine.clone()), engine, creates_metadata).await
}

async fn serve_through(
    connector: impl HttpConnector + 'static,
    engine: &Engine,
    creates_metadata: bool,
) -> Service {
    let aws = engine.sdk_config();
    let upstream = Upstream::over(&aws, SharedHttpConnector::new(connector)).await;
    let upstream = upstream.expect("an upstream");
    open(&aws, upstream, vec![config()], creates_metadata).await.expect("the table is served")
}

fn config() -> TableConfig {
    TableConfig::new(SHARDED, "orders-metadata").with(|config| {
        config.partition_key_name = "pk".to_owned();
        config.sort_key_name = "sk".to_owned();
        config.ttl_attribute = Some("ttl".to_owned());
    })
}

impl World {
    /// With all keys armed from the beginning, or with none.
    pub(crate) async fn new(is_armed: bool) -> Self {
        let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
        let typed = |name: &str| json!({ "AttributeName": name, "AttributeType": "S" });
        let table = json!({
            "KeySchema": [key("pk", "HASH"), key("sk", "RANGE")],
            "AttributeDefinitions": [typed("pk"), typed("sk")],
            "BillingMode": "PAY_PER_REQUEST",
        });
        Self::of(is_armed, &table).await
    }

    /// With numbers as sort keys, and all keys armed.
    pub(crate) async fn with_numbers() -> Self {
        let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
        let typed =
            |name: &str, kind: &str| json!({ "AttributeName": name, "AttributeType": kind });
        let table = json!({
            "KeySchema": [key("pk", "HASH"), key("sk", "RANGE")],
            "AttributeDefinitions": [typed("pk", "S"), typed("sk", "N")],
            "BillingMode": "PAY_PER_REQUEST",
        });
        Self::of(true, &table).await
    }

    /// As [`new`](Self::new), with both tables as a request describes them.
    pub(crate) async fn of(is_armed: bool, described: &Value) -> Self {
        let engine = Engine::in_memory().expect("a database");
        let unlimited =
            PartitionLimits { write_units: 1e9, read_units: 1e9, ..PartitionLimits::default() };
        engine.set_limits([(SHARDED.to_owned(), unlimited), (PLAIN.to_owned(), unlimited)]);
        let aws = engine.sdk_config();
        let client = Client::new(&aws);
        for table in [SHARDED, PLAIN] {
            let mut body = described.clone();
            body["TableName"] = json!(table);
            let created = "DynamoDB_20120810.CreateTable";
            let answer = engine.respond("/", Some(created), body.to_string().as_bytes());
            assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        }
        let number = json!({ "AttributeName": "sk", "AttributeType": "N" });
        let definitions = described["AttributeDefinitions"].as_array();
        let has_number = definitions.is_some_and(|defined| defined.contains(&number));
        let config = config().with(|config| {
            config.sort_key_type =
                if has_number { SortKeyType::Number } else { SortKeyType::String };
        });
        create_tables(&client, &config).await.expect("the metadata table");
        let table = ShardedTable::new(&client, config);
        let maintenance = table.maintenance();
        let claimed =
            if is_armed { maintenance.claim().await } else { maintenance.claim_unarmed().await };
        claimed.expect("the table is claimed");
        let service = serve(&engine, false).await;
        Self { engine, table, service }
    }

    /// The same tables with an endpoint that has just started.
    pub(crate) async fn with_another_endpoint(&self) -> Self {
        self.through(InProcess::new(self.engine.clone())).await
    }

    /// The same tables with an endpoint that has just started and sends through this connector.
    pub(crate) async fn through(&self, connector: impl HttpConnector + 'static) -> Self {
        let (engine, table) = (self.engine.clone(), self.table.clone());
        Self { service: serve_through(connector, &engine, false).await, engine, table }
    }

    /// Over a table without a sort key, whose keys cannot be armed, and without a metadata table.
    pub(crate) async fn without_sort_key() -> Self {
        let engine = Engine::in_memory().expect("a database");
        engine.create_table(SHARDED, "pk", None).expect("a table");
        let service = serve(&engine, false).await;
        let client = Client::new(&engine.sdk_config());
        Self { engine, table: ShardedTable::new(&client, config()), service }
    }

    /// Over an empty table that no process has used yet. With `creates_metadata`, the endpoint
    /// makes the metadata table.
    pub(crate) async fn unclaimed(creates_metadata: bool) -> Self {
        let engine = Engine::in_memory().expect("a database");
        let client = Client::new(&engine.sdk_config());
        if creates_metadata {
            engine.create_table(SHARDED, "pk", Some("sk")).expect("a table");
        } else {
            create_tables(&client, &config()).await.expect("the tables");
        }
        let service = serve(&engine, creates_metadata).await;
        Self { engine, table: ShardedTable::new(&client, config()), service }
    }

    /// A request to the engine itself.
    pub(crate) fn engine(&self, operation: &str, body: &Value) -> Answer {
        let target = format!("DynamoDB_20120810.{operation}");
        let answer = self.engine.respond("/", Some(&target), body.to_string().as_bytes());
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// A request to the endpoint.
    pub(crate) async fn endpoint(&self, operation: &str, body: &Value) -> Answer {
        let reply = self.reply(operation, body).await;
        (reply.status.as_u16(), serde_json::from_slice(&reply.body).unwrap_or_default())
    }

    /// The answers to a request: the engine's for the plain table, and the endpoint's.
    pub(crate) async fn answers(&self, operation: &str, body: &Value) -> [Answer; 2] {
        let of = |table: &str| {
            let mut body = body.clone();
            body["TableName"] = json!(table);
            body
        };
        let expected = self.engine(operation, &of(PLAIN));
        [expected, self.endpoint(operation, &of(SHARDED)).await]
    }

    /// Sends a request for both tables. The answers must be equal.
    pub(crate) async fn both(&self, operation: &str, body: &Value) {
        let answers = self.answers(operation, body).await;
        let [expected, got] = answers.map(|(status, answer)| (status, comparable(answer)));
        assert_eq!(expected, got, "{operation} {body}");
    }

    /// Follows the pages of a query or a scan, and returns them.
    pub(crate) async fn pages(&self, operation: &str, table: &str, request: &Value) -> Vec<Value> {
        let (mut pages, mut request) = (Vec::new(), request.clone());
        request["TableName"] = json!(table);
        loop {
            let (status, page) = match table {
                PLAIN => self.engine(operation, &request),
                _ => self.endpoint(operation, &request).await,
            };
            assert_eq!(status, 200, "{request}: {page}");
            // The key after which a scan continues has a mark of ours.
            let shown = if operation == "Scan" { &page["Items"] } else { &page };
            assert!(!leaks(shown), "{page}");
            let next = page.get("LastEvaluatedKey").cloned();
            pages.push(comparable(page));
            let Some(next) = next else { return pages };
            request["ExclusiveStartKey"] = next;
        }
    }

    pub(crate) async fn reply(&self, operation: &str, body: &Value) -> Reply {
        self.raw(operation, body.to_string()).await
    }

    /// A request whose body may be no JSON.
    pub(crate) async fn raw(&self, operation: &str, body: String) -> Reply {
        let mut headers = HeaderMap::new();
        let target = HeaderValue::try_from(format!("DynamoDB_20120810.{operation}"));
        headers.insert("x-amz-target", target.expect("a header"));
        self.service.respond(&headers, Bytes::from(body)).await
    }

    /// Stores an item in a table as it is.
    pub(crate) fn store(&self, table: &str, item: &Value) {
        let (status, answer) = self.engine("PutItem", &json!({ "TableName": table, "Item": item }));
        assert_eq!(status, 200, "{answer}");
    }

    /// Removes an item from a table.
    pub(crate) fn remove(&self, table: &str, key: &str, sort_key: &str) {
        let key = json!({ "pk": {"S": key}, "sk": {"S": sort_key} });
        let (status, answer) =
            self.engine("DeleteItem", &json!({ "TableName": table, "Key": key }));
        assert_eq!(status, 200, "{answer}");
    }

    /// Gives a key this number of shards.
    pub(crate) async fn grow(&self, key: &str, shards: u32) {
        let grown = self.table.set_shards(key, shards).timeout(Duration::from_secs(20)).await;
        grown.expect("the key grows");
    }
}
