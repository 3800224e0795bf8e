//! The console's routes: its files, its stream and its load. `checks/console_page` tests the page
//! in a browser.

use std::time::Duration;

use local::ServeOptions;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use system_tests::{TestEdition, config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

/// The stream of events in their order.
struct Events {
    response: reqwest::Response,
    text: String,
}

impl Events {
    async fn open(edition: &TestEdition) -> Self {
        let response =
            reqwest::get(format!("{}/console/stream", edition.url())).await.expect("a stream");
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next event: its name and its data. `None` if the stream has ended.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                // Comments keep the connection alive.
                if event.starts_with(':') {
                    continue;
                }
                let field = |name: &str| {
                    let value = event.lines().find_map(|line| line.strip_prefix(name));
                    value.unwrap_or_default().trim()
                };
                let data = serde_json::from_str(field("data:")).expect("JSON");
                return Some((field("event:").to_owned(), data));
            }
            let chunk = timeout(PATIENCE, self.response.chunk()).await;
            let chunk = chunk.expect("an event in time").ok()??;
            self.text += std::str::from_utf8(&chunk).expect("UTF-8");
        }
    }

    async fn until(&mut self, holds: impl Fn(&str, &Value) -> bool) -> Value {
        let search = async {
            loop {
                let (event, data) = self.next().await.expect("the stream goes on");
                if holds(&event, &data) {
                    return data;
                }
            }
        };
        timeout(PATIENCE, search).await.expect("it comes in time")
    }

    async fn until_throttled(&mut self) {
        let is_throttled = |event: &str, data: &Value| {
            event == "sample" && data["writes"]["throttled"].as_u64() > Some(0)
        };
        self.until(is_throttled).await;
    }
}

/// `checks/console_page` shows the relief of a hot key, and that only one load runs.
#[tokio::test]
async fn a_stream_begins_with_the_past_and_ends_with_the_edition() {
    let options =
        ServeOptions { partitions: 32, partition_write_units: 50, ..ServeOptions::default() };
    let edition = TestEdition::start(options, config()).await;
    let mut events = Events::open(&edition).await;
    let (first, history) = events.next().await.expect("an event");
    assert!(first == "history" && history.is_array(), "{first}: {history}");
    let load = json!({"partition_key": "hot", "writes": 200, "reads": 5, "item_size": 500});
    assert_eq!(edition.post("/console/load", &load).await.status, 202);
    let decision = events.until(|event, _| event == "decision").await;
    let of_decision = ["partition_key", "from", "by"].map(|name| &decision[name]);
    assert_eq!(of_decision, [&json!("hot"), &json!(1), &json!("writer")]);
    let reason = decision["reason"].as_str().expect("words");
    assert!(reason.ends_with("first attempts throttled"), "{decision}");
    events.until(|event, _| event == "sample").await;

    let mut late = Events::open(&edition).await;
    let (_, history) = late.next().await.expect("an event");
    assert!(history.as_array().is_some_and(|samples| !samples.is_empty()), "{history}");
    assert_eq!(late.next().await.expect("an event").0, "decision");
    let stop = async || edition.send("DELETE", "/console/load", &[], None).await.status;
    assert_eq!((stop().await, stop().await), (204, 204), "also if no load runs");
    edition.stop().await;
    while late.next().await.is_some() {}
}

#[tokio::test]
async fn a_wrong_load_is_rejected_by_name_and_files_have_their_types() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let load = json!({"partition_key": "hot", "writes": 1_000_000});
    let refused = edition.post("/console/load", &load).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert_eq!(refused.body["field"], "writes", "{}", refused.body);
    let text = edition.send("POST", "/console/load", &[], Some(b"{}".to_vec())).await;
    assert_eq!(text.status, 415, "another page's form cannot start a load");

    for (path, content_type) in [
        ("/console", "text/html"),
        ("/console/app.js", "text/javascript"),
        ("/console/style.css", "text/css"),
    ] {
        let file = edition.get(path).await;
        assert_eq!(file.status, 200, "{path}");
        let header = |name: &str| file.headers[name].to_str().expect("text");
        assert!(header("content-type").starts_with(content_type), "{path}");
        assert!(header("content-security-policy").contains("default-src 'self'"), "{path}");
    }
    for path in ["/console/absent.js", "/console/../Cargo.toml", "/console/%2e%2e/Cargo.toml"] {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let response = raw(&edition, &request).await;
        assert!(response.starts_with("HTTP/1.1 404"), "{path}: {response}");
        assert!(response.ends_with("there is no such file\n"), "{path}: {response}");
    }
}

/// The raw response to a request, which an HTTP client would normalize.
async fn raw(edition: &TestEdition, request: &str) -> String {
    let address = edition.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response");
    response
}

#[tokio::test]
async fn pages_of_other_sites_are_kept_out() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let body = r#"{"action":"set","partition_key":"k","number_of_shards":50}"#;
    let invoke = |headers: &str| {
        let length = body.len();
        format!(
            "POST /2015-03-31/functions/shard-scaler/invocations HTTP/1.1\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
    };
    for headers in [
        "host: localhost\r\norigin: http://evil.example\r\ncontent-type: text/plain\r\n",
        "host: evil.example\r\n",
    ] {
        let response = raw(&edition, &invoke(headers)).await;
        assert!(response.starts_with("HTTP/1.1 403"), "{headers}: {response}");
    }
    let shards = edition.get("/shards?partition_key=k").await.body;
    assert_eq!(shards["number_of_shards"], 1, "nothing was changed");
    let response = raw(&edition, &invoke("host: localhost\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[tokio::test]
async fn neither_a_load_nor_an_open_request_keeps_the_edition_alive() {
    let mut one_shard = config();
    one_shard.policy.max_shards = sharding::ShardCount::ONE;
    let options =
        ServeOptions { partitions: 2, partition_write_units: 50, ..ServeOptions::default() };
    let edition = TestEdition::start(options, one_shard).await;
    let load = json!({"partition_key": "hot", "keys": 20, "writes": 300});
    assert_eq!(edition.post("/console/load", &load).await.status, 202);
    let mut events = Events::open(&edition).await;
    events.until_throttled().await;
    let address = edition.url().trim_start_matches("http://").to_owned();
    let mut half = TcpStream::connect(address).await.expect("a connection");
    let begun = "POST /items HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    half.write_all(begun.as_bytes()).await.expect("sent");
    // Twice the grace period, and time for a slow machine.
    timeout(Duration::from_secs(30), edition.stop()).await.expect("it stops");
    drop(half);
}
