//! An engine with a sharded table and a plain one, and the endpoint in front of both.

use std::time::Duration;

use admin::take_key_names;
use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector};
use bytes::Bytes;
use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use endpoint::{Reply, Service, Upstream, UpstreamError, open};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use sharding::maintenance::{ScaleOutcome, ScalingDecision};
use sharding::{PartitionKey, ShardCount, ShardedTable, TableConfig, create_tables};

use crate::cases::{comparable, leaks};

/// The sharded table, and the plain one that the engine serves by itself.
pub(crate) const SHARDED: &str = "orders";
pub(crate) const PLAIN: &str = "plain";

pub(crate) type Answer = (u16, Value);

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) table: ShardedTable,
    pub(crate) service: Service,
}

pub(crate) async fn serve(
    connector: impl HttpConnector + 'static,
    engine: &Engine,
    creates_metadata: bool,
) -> Result<Service, UpstreamError> {
    let aws = engine.sdk_config();
    let upstream = Upstream::over(&aws, SharedHttpConnector::new(connector)).await?;
    open(&aws, upstream, vec![config()], creates_metadata).await
}

pub(crate) fn config() -> TableConfig {
    TableConfig::new(SHARDED, "orders-metadata").with(|config| {
        config.partition_key_name = "pk".to_owned();
        config.sort_key_name = "sk".to_owned();
        config.ttl_attribute = Some("ttl".to_owned());
    })
}

pub(crate) fn schema(sort_key: Option<&str>) -> Vec<Value> {
    let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
    [key("pk", "HASH")].into_iter().chain(sort_key.map(|name| key(name, "RANGE"))).collect()
}

pub(crate) fn described(types: &[(&str, &str)]) -> Value {
    let typed = |(name, of): &(&str, &str)| json!({ "AttributeName": name, "AttributeType": of });
    json!({
        "KeySchema": schema(Some("sk")),
        "AttributeDefinitions": types.iter().map(typed).collect::<Vec<_>>(),
        "BillingMode": "PAY_PER_REQUEST",
    })
}

/// The members of all of these. The placeholders of several are put together.
pub(crate) fn together(parts: &[&Value]) -> Value {
    let mut all = json!({});
    for (name, value) in parts.iter().filter_map(|part| part.as_object()).flatten() {
        match (all[name].as_object_mut(), value.as_object()) {
            (Some(members), Some(more)) => members.extend(more.clone()),
            _ => all[name] = value.clone(),
        }
    }
    all
}

/// Every combination of one of each of these lists.
pub(crate) fn combined(lists: &[&[Value]]) -> Vec<Value> {
    let mut all = vec![json!({})];
    for list in lists {
        let of = |one: &Value| list.iter().map(|more| together(&[one, more])).collect::<Vec<_>>();
        all = all.iter().flat_map(of).collect();
    }
    all
}

pub(crate) fn expression(member: &str, text: &str, values: Value) -> Value {
    let mut expression = json!({ member: text });
    expression["ExpressionAttributeValues"] = values;
    expression
}

fn ask(engine: &Engine, operation: &str, body: &Value) -> Answer {
    let target = format!("DynamoDB_20120810.{operation}");
    let answer = engine.respond("/", Some(&target), body.to_string().as_bytes());
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

/// The engine's answer to a request, which succeeds.
pub(crate) fn done(engine: &Engine, operation: &str, body: &Value) -> Value {
    let (status, answer) = ask(engine, operation, body);
    assert_eq!(status, 200, "{operation} {body}: {answer}");
    answer
}

/// What pages have together: their items, `Count` and `ScannedCount`.
pub(crate) fn joined(pages: &[Value]) -> (Vec<Value>, u64, u64) {
    let sum = |name: &str| pages.iter().filter_map(|page| page[name].as_u64()).sum();
    let items = pages.iter().filter_map(|page| page["Items"].as_array()).flatten().cloned();
    (items.collect(), sum("Count"), sum("ScannedCount"))
}

/// A request about a table. A batch, a transaction and a statement name their tables themselves.
fn about(table: &str, body: &Value) -> Value {
    let mut body = body.clone();
    let names_itself = ["RequestItems", "TransactItems", "Statement"];
    if names_itself.iter().all(|member| body.get(member).is_none()) {
        body["TableName"] = json!(table);
    }
    body
}

impl World {
    /// With all keys armed from the beginning, or with none.
    pub(crate) async fn new(is_armed: bool) -> Self {
        Self::of(is_armed, &described(&[("pk", "S"), ("sk", "S")])).await
    }

    /// With numbers as sort keys, and all keys armed.
    pub(crate) async fn with_numbers() -> Self {
        Self::of(true, &described(&[("pk", "S"), ("sk", "N")])).await
    }

    /// As [`new`](Self::new), with both tables as a request describes them.
    pub(crate) async fn of(is_armed: bool, described: &Value) -> Self {
        let engine = Engine::in_memory().expect("a database");
        let unlimited =
            PartitionLimits { write_units: 1e9, read_units: 1e9, ..PartitionLimits::default() };
        engine.set_limits([(SHARDED.to_owned(), unlimited), (PLAIN.to_owned(), unlimited)]);
        let client = Client::new(&engine.sdk_config());
        for table in [SHARDED, PLAIN] {
            done(&engine, "CreateTable", &about(table, described));
        }
        let mut config = config();
        take_key_names(&client, &mut config).await.expect("the keys of the table");
        create_tables(&client, &config).await.expect("the metadata table");
        let table = ShardedTable::new(&client, config);
        let maintenance = table.maintenance();
        let claimed =
            if is_armed { maintenance.claim().await } else { maintenance.claim_unarmed().await };
        claimed.expect("the table is claimed");
        let service = serve(InProcess::new(engine.clone()), &engine, false).await;
        let service = service.expect("the table is served");
        Self { engine, table, service }
    }

    /// The same tables with an endpoint that has just started.
    pub(crate) async fn with_another_endpoint(&self) -> Self {
        self.through(InProcess::new(self.engine.clone())).await
    }

    /// The same tables with an endpoint that has just started and sends through this connector.
    pub(crate) async fn through(&self, connector: impl HttpConnector + 'static) -> Self {
        let (engine, table) = (self.engine.clone(), self.table.clone());
        let service = serve(connector, &engine, false).await.expect("the table is served");
        Self { engine, table, service }
    }

    /// Over the tables that an engine has, which no process has used yet. With `creates_metadata`,
    /// the endpoint makes the metadata table.
    pub(crate) async fn unclaimed(engine: Engine, creates_metadata: bool) -> Self {
        let service = serve(InProcess::new(engine.clone()), &engine, creates_metadata).await;
        let service = service.expect("the table is served");
        let client = Client::new(&engine.sdk_config());
        Self { engine, table: ShardedTable::new(&client, config()), service }
    }

    pub(crate) fn engine(&self, operation: &str, body: &Value) -> Answer {
        ask(&self.engine, operation, body)
    }

    pub(crate) async fn endpoint(&self, operation: &str, body: &Value) -> Answer {
        let reply = self.reply(operation, body.to_string()).await;
        (reply.status.as_u16(), serde_json::from_slice(&reply.body).unwrap_or_default())
    }

    /// The answer to a request about the sharded table, which succeeds.
    pub(crate) async fn done(&self, operation: &str, body: &Value) -> Value {
        let (status, answer) = self.endpoint(operation, &about(SHARDED, body)).await;
        assert_eq!(status, 200, "{operation} {body}: {answer}");
        answer
    }

    /// The error of a request about the sharded table, which the endpoint refuses as one that is
    /// wrong.
    pub(crate) async fn refused(&self, operation: &str, body: &Value) -> Value {
        let (status, answer) = self.endpoint(operation, &about(SHARDED, body)).await;
        assert_eq!(status, 400, "{operation} {body}: {answer}");
        let is_validation = answer["__type"].to_string().ends_with("#ValidationException\"");
        assert!(is_validation, "{operation} {body}: {answer}");
        answer
    }

    /// The answers to a request: the engine's for the plain table, and the endpoint's.
    pub(crate) async fn answers(&self, operation: &str, body: &Value) -> [Answer; 2] {
        let expected = self.engine(operation, &about(PLAIN, body));
        [expected, self.endpoint(operation, &about(SHARDED, body)).await]
    }

    /// Sends a request for both tables. The answers must be equal.
    pub(crate) async fn both(&self, operation: &str, body: &Value) {
        let answers = self.answers(operation, body).await;
        let [expected, got] = answers.map(|(status, answer)| (status, comparable(answer)));
        assert_eq!(expected, got, "{operation} {body}");
    }

    /// Follows the pages of a query or a scan, and returns them.
    pub(crate) async fn pages(&self, operation: &str, table: &str, request: &Value) -> Vec<Value> {
        let (mut pages, mut request) = (Vec::new(), about(table, request));
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

    /// The pages of a query on the plain table and on the sharded one.
    pub(crate) async fn both_pages(&self, query: &Value) -> [Vec<Value>; 2] {
        let expected = self.pages("Query", PLAIN, query).await;
        [expected, self.pages("Query", SHARDED, query).await]
    }

    /// The reply to a request whose body may be no JSON.
    pub(crate) async fn reply(&self, operation: &str, body: String) -> Reply {
        let target = HeaderValue::try_from(format!("DynamoDB_20120810.{operation}"));
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-target", target.expect("a header"));
        self.service.respond(&headers, Bytes::from(body)).await
    }

    pub(crate) fn store(&self, table: &str, item: &Value) {
        done(&self.engine, "PutItem", &json!({ "TableName": table, "Item": item }));
    }

    pub(crate) async fn grow(&self, key: &str, shards: u32) {
        let key = PartitionKey::new(key).expect("a key");
        let shards = ShardCount::new(shards).expect("a width");
        let maintenance = self.table.maintenance().timeout(Duration::from_secs(20));
        let grown = maintenance.grow(&key, shards).await.expect("the key grows");
        let is_as_wide = matches!(
            grown,
            ScaleOutcome::Scaled { .. } | ScaleOutcome::Unchanged(ScalingDecision::Calm)
        );
        assert!(is_as_wide, "{grown:?}");
    }
}
