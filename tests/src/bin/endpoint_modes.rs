//! The endpoint over the embedded engine, for test suites of other projects that make their own
//! tables: `endpoint_modes MODE`. It prints its address.
//!
//! A table that a client makes is served at once. In the modes `armed-1`, `armed-4` and `changing`
//! all its keys are armed; then a key that a request names has 1 shard, 4 shards, or one more every
//! three seconds. In the mode `engine` the engine answers by itself.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admin::take_key_names;
use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use embedded_dynamodb::{Engine, InProcess};
use endpoint::{Service, Upstream, open};
use serde_json::Value;
use sharding::{PartitionKey, ShardedTable, TableConfig};
use system_tests::count;

const MAX_BODY_BYTES: usize = 16 * 1_024 * 1_024;
const PERIOD: Duration = Duration::from_secs(3);
const MAX_SHARDS: u32 = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Engine,
    NotArmed,
    Armed1,
    Armed4,
    Changing,
}

const MODES: [(&str, Mode); 5] = [
    ("engine", Mode::Engine),
    ("not-armed", Mode::NotArmed),
    ("armed-1", Mode::Armed1),
    ("armed-4", Mode::Armed4),
    ("changing", Mode::Changing),
];

struct World {
    mode: Mode,
    engine: Engine,
    client: Client,
    tables: Mutex<HashMap<String, ShardedTable>>,
    service: Mutex<Option<Service>>,
    seen: Mutex<HashSet<(String, String)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn by_engine(&self, operation: &str, body: &[u8]) -> Response {
        let target = format!("DynamoDB_20120810.{operation}");
        let answer = self.engine.respond("/", Some(&target), body);
        let response = Response::builder().status(answer.status);
        let response = response.header("content-type", answer.content_type);
        response.body(Body::from(answer.body)).unwrap_or_default()
    }

    /// Serves a table that was just made.
    async fn serve(&self, name: &str) -> Result<(), Box<dyn std::error::Error>> {
        let mut config = TableConfig::new(name, &format!("{name}-metadata"));
        let described = take_key_names(&self.client, &mut config).await?;
        let kind = |name: &str| {
            let mut attributes = described.attribute_definitions().iter();
            let attribute = attributes.find(|it| it.attribute_name() == name);
            attribute.map(|it| it.attribute_type().as_str())
        };
        let is_armable = described.key_schema().len() == 2
            && kind(&config.partition_key_name) == Some("S")
            && matches!(kind(&config.sort_key_name), Some("S" | "N"));
        if !is_armable {
            return Ok(());
        }
        let table = ShardedTable::new(&self.client, config.clone());
        if self.mode != Mode::NotArmed {
            sharding::create_tables(&self.client, &config).await?;
            table.maintenance().claim().await?;
        }
        locked(&self.tables).insert(name.to_owned(), table);
        self.open().await
    }

    async fn open(&self) -> Result<(), Box<dyn std::error::Error>> {
        let configurations: Vec<TableConfig> =
            locked(&self.tables).values().map(|table| table.config().clone()).collect();
        let connector = SharedHttpConnector::new(InProcess::new(self.engine.clone()));
        let aws = self.engine.sdk_config();
        let upstream = Upstream::over(&aws, connector).await?.of_any_region();
        let service = open(&aws, upstream, configurations, true).await?;
        *locked(&self.service) = Some(service);
        Ok(())
    }

    /// Gives the keys that a request names their shards.
    async fn grow(&self, request: &Value) {
        let mut named = Vec::new();
        for (name, table) in locked(&self.tables).iter() {
            if request.to_string().contains(&format!("\"{name}\"")) {
                keys(request, &table.config().partition_key_name, &mut |key| {
                    named.push((name.clone(), key.to_owned(), table.clone()));
                });
            }
        }
        let mut growing = tokio::task::JoinSet::new();
        for (name, key, table) in named {
            if !locked(&self.seen).insert((name, key.clone())) {
                continue;
            }
            let Ok(key) = PartitionKey::new(&key) else { continue };
            let maintenance = table.maintenance().timeout(Duration::from_secs(20));
            let grow = async move |to: u32| maintenance.grow(&key, count(to)).await.is_ok();
            if self.mode == Mode::Armed4 {
                growing.spawn(async move { grow(4).await });
            } else {
                tokio::spawn(async move {
                    for to in 2..=MAX_SHARDS {
                        if !grow(to).await {
                            return;
                        }
                        tokio::time::sleep(PERIOD).await;
                    }
                });
            }
        }
        growing.join_all().await;
    }
}

/// The values of an attribute anywhere in a request.
fn keys(value: &Value, name: &str, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                match value["S"].as_str() {
                    Some(key) if member == name && !key.is_empty() => found(key),
                    _ => keys(value, name, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, name, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

async fn handle(State(world): State<Arc<World>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let target = parts.headers.get("x-amz-target").and_then(|target| target.to_str().ok());
    let operation = target.and_then(|target| target.split('.').nth(1)).unwrap_or_default();
    let raw = to_bytes(body, MAX_BODY_BYTES).await.unwrap_or_default();
    if world.mode == Mode::Engine {
        return world.by_engine(operation, &raw);
    }
    let request: Value = serde_json::from_slice(&raw).unwrap_or_default();
    let name = request["TableName"].as_str().unwrap_or_default();
    match operation {
        "CreateTable" => {
            let response = world.by_engine(operation, &raw);
            if response.status().is_success() {
                world.serve(name).await.expect("a new table can be served");
            }
            return response;
        }
        "DeleteTable" => {
            let deleted = locked(&world.tables).remove(name);
            if deleted.is_some() && world.open().await.is_err() {
                *locked(&world.service) = None;
            }
            return world.by_engine(operation, &raw);
        }
        _ => {}
    }
    if matches!(world.mode, Mode::Armed4 | Mode::Changing) {
        world.grow(&request).await;
    }
    let service = locked(&world.service).clone();
    let Some(service) = service else { return world.by_engine(operation, &raw) };
    let reply = service.respond(&parts.headers, raw).await;
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(reply.body)).unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let named = std::env::args().nth(1).unwrap_or_default();
    let mode = MODES.into_iter().find_map(|(name, mode)| (name == named).then_some(mode));
    let mode = mode.ok_or("usage: endpoint_modes engine|not-armed|armed-1|armed-4|changing")?;
    let engine = Engine::in_memory()?;
    let client = Client::new(&engine.sdk_config());
    let world = World {
        mode,
        engine,
        client,
        tables: Mutex::default(),
        service: Mutex::default(),
        seen: Mutex::default(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    use std::io::Write;
    writeln!(std::io::stdout(), "http://{address}")?;
    let routes = Router::new().fallback(handle).with_state(Arc::new(world));
    axum::serve(listener, routes).await?;
    Ok(())
}
