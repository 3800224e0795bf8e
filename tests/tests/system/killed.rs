//! `kill -9` between the changes of a metadata item and of its page, repeatedly: no key is stuck,
//! and no read is wrong.
//!
//! The process under test runs this program: a local edition that uses the DynamoDB port of another
//! edition, which keeps its tables in a file. The test forwards its requests, and selects its last
//! one.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use embedded_dynamodb::InProcess;
use local::{ServeOptions, in_process_clients};
use serde_json::{Value, json};
use sharding::internal::TableEngine;
use sharding::{Attributes, Item, PartitionKey};
use system_tests::{TestEdition, config, large_or, partition_key, read_items, soon, sort_key};
use tokio::io::{BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout};
use tokio::time::{Instant, timeout};

use crate::child::{self, Running};

const THIS: &str = "killed::a_process_killed_between_item_and_page_leaves_no_key_stuck";
const SCALER: &str = "/2015-03-31/functions/shard-scaler/invocations";
const KEY: &str = "hot";
/// The last change of each process. A growth sends six changes: the closing of the metadata item
/// and of two copies of its page, and the opening of the three. The process is killed before the
/// response to its last change, and concurrent changes are not applied.
const LAST: [u32; 6] = [2, 4, 1, 5, 3, 6];
/// The longest time that other instances wait for it.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The proxy for the process's requests.
#[derive(Clone)]
struct Way {
    server: String,
    http: reqwest::Client,
    state: Arc<Mutex<Doom>>,
}

#[derive(Default)]
struct Doom {
    process: Option<Child>,
    /// The number of changes that are still applied; `None` for any number.
    left: Option<u32>,
    is_dead: bool,
}

impl Way {
    fn state(&self) -> MutexGuard<'_, Doom> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request is forwarded, and whether it is the last.
    fn takes(&self, is_change: bool) -> (bool, bool) {
        let mut state = self.state();
        if state.is_dead {
            return (false, false);
        }
        if let Some(left) = state.left.as_mut().filter(|_| is_change) {
            *left -= 1;
            state.is_dead = state.left == Some(0);
        }
        (true, state.is_dead)
    }
}

async fn pass(State(way): State<Way>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 16 << 20).await.expect("a body");
    let target = parts.headers.get("x-amz-target");
    let is_update = target.is_some_and(|target| target.as_bytes().ends_with(b"UpdateItem"));
    let (goes_on, is_last) = way.takes(is_update && changes_layout(&body));
    if !goes_on {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let sent = way.http.post(&way.server).headers(parts.headers).body(body).send().await;
    let response = sent.expect("the server responds");
    let (status, body) = (response.status(), response.bytes().await.expect("a body"));
    if is_last {
        way.state().process.as_mut().expect("it runs").start_kill().expect("it is killed");
    }
    Response::builder().status(status).body(Body::from(body)).expect("a response")
}

/// Whether an update changes the metadata item, except for its recorded load, or a page.
fn changes_layout(body: &[u8]) -> bool {
    let update: Value = serde_json::from_slice(body).unwrap_or_default();
    let key = update["Key"]["partition_key"]["S"].as_str().unwrap_or_default();
    let names = update["ExpressionAttributeNames"].as_object();
    let of_item =
        key == KEY && names.is_some_and(|names| names.values().any(|name| name == "generation"));
    of_item || key.starts_with("_sharding:page:")
}

/// A running process.
struct Process {
    api: String,
    http: reqwest::Client,
    /// The process's output, which stays open while it runs.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start(way: &Way, server: &str) -> Self {
        *way.state() = Doom::default();
        let Running { api, process, output } = child::start(THIS, server).await;
        *way.state() = Doom { process: Some(process), ..Doom::default() };
        Self { api, http: reqwest::Client::new(), _output: output }
    }

    async fn post(&self, path: &str, body: &Value) -> Result<(u16, Value), reqwest::Error> {
        let sent = self.http.post(format!("{}{path}", self.api)).json(body).send();
        let response =
            timeout(Duration::from_secs(60), sent).await.expect("a response, or none")?;
        let status = response.status().as_u16();
        Ok((status, response.json().await?))
    }
}

fn key() -> PartitionKey {
    partition_key(KEY)
}

fn item(text: &str) -> Item {
    Item { partition_key: key(), sort_key: sort_key(text), attributes: Attributes::new() }
}

/// Asserts that a new instance finds exactly these items.
async fn assert_finds(database: &TestEdition, acknowledged: &BTreeSet<String>, about: &str) {
    let client = in_process_clients(&InProcess::new(database.engine().clone())).dynamodb;
    let new = TableEngine::new(&client, config());
    for table in [database.table(), &new] {
        let items = read_items(table, &key(), 1_000).await;
        let found: BTreeSet<String> = items.iter().map(|item| item.sort_key.to_string()).collect();
        assert_eq!(&found, acknowledged, "{about}");
        for text in acknowledged {
            let found = table.get(&key(), &sort_key(text), true, soon()).await.expect("a response");
            assert!(found.is_some(), "{about}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_between_item_and_page_leaves_no_key_stuck() {
    if child::is_served().await {
        return;
    }
    let kills = large_or(20, 3);
    let data = tempfile::tempdir().expect("a directory");
    let data_dir = Some(data.path().join("data"));
    // The database's own schedule would repair what the processes leave.
    let idle = ServeOptions { alarm_period: 3_600, drain_period: 3_600, ..Default::default() };
    let options = ServeOptions { data_dir, ..idle };
    let database = TestEdition::start(options.clone(), config()).await;
    database.table().raise_directory_copies(2, soon()).await.expect("raised");
    let (server, http) = (database.dynamodb_url(), reqwest::Client::new());
    let way = Way { server, http, state: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let routes = Router::new().fallback(pass).with_state(way.clone());
    tokio::spawn(axum::serve(listener, routes).into_future());

    let (mut acknowledged, mut longest) = (BTreeSet::new(), Duration::ZERO);
    for kill in 0..kills {
        let about = format!("kill {kill}, at change {} of a growth", LAST[kill % LAST.len()]);
        let process = Process::start(&way, &url).await;
        for number in 0..3 {
            let text = format!("{kill:02}-{number}");
            let stored = json!({"partition_key": KEY, "sort_key": text, "attributes": {}});
            let began = Instant::now();
            let (status, response) = process.post("/items", &stored).await.expect("it responds");
            assert_eq!(status, 201, "{about}: {response}");
            longest = longest.max(began.elapsed());
            acknowledged.insert(text);
        }
        way.state().left = Some(LAST[kill % LAST.len()]);
        let set = json!({"action": "set", "partition_key": KEY, "number_of_shards": kill + 2});
        let cut = process.post(SCALER, &set).await;
        assert!(cut.is_err(), "{about}: {cut:?}");
        let mut dead = way.state().process.take().expect("it ran");
        let status = dead.wait().await.expect("its status");
        assert_eq!(status.signal(), Some(9), "{about}");

        assert_finds(&database, &acknowledged, &about).await;
        let (began, text) = (Instant::now(), format!("{kill:02}-others"));
        let written = database.table().put(&item(&text), soon()).await;
        written.unwrap_or_else(|error| panic!("{about}: {error}"));
        longest = longest.max(began.elapsed());
        acknowledged.insert(text);
        assert_finds(&database, &acknowledged, &about).await;
    }
    println!("{kills} kills; the longest that a write waited after one: {longest:?}");
    assert!(longest < LONGEST_WAIT, "{longest:?}");

    // The remains of the last growth do not prevent the next one, and the file has every item.
    let process = Process::start(&way, &url).await;
    let set = json!({"action": "set", "partition_key": KEY, "number_of_shards": 40});
    let (_, scaled) = process.post(SCALER, &set).await.expect("it responds");
    assert_eq!(scaled["outcome"], "scaled", "{scaled}");
    let mut last = way.state().process.take().expect("it runs");
    last.kill().await.expect("it is killed");
    assert_finds(&database, &acknowledged, "at the end").await;
    let metadata = database.table().shards(&key(), soon()).await.expect("a response");
    let metadata = metadata.expect("it has grown");
    assert_eq!((metadata.number_of_shards.get(), metadata.closing()), (40, None));
    database.stop().await;
    let database = TestEdition::start(options, config()).await;
    assert_finds(&database, &acknowledged, "after a restart of the server").await;
    assert_eq!(database.table().repair_directory(soon()).await.expect("compared"), 0);
    database.stop().await;
}
