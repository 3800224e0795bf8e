//! The console's routes: its files, its stream and its load. `checks/console_page` tests the page
//! in a browser: its samples and decisions, the relief of a hot key, and that only one load runs.

use std::time::Duration;

use local::ServeOptions;
use reqwest::header::CONTENT_TYPE;
use serde_json::json;
use system_tests::{TestEdition, config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

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
    // Every route is guarded, also that of the shard-scaler.
    let foreign = "POST /2015-03-31/functions/shard-scaler/invocations HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    let response = raw(&edition, foreign).await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
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
async fn no_load_stream_or_open_request_keeps_the_edition_alive() {
    let mut one_shard = config();
    one_shard.policy.max_shards = sharding::ShardCount::ONE;
    let options =
        ServeOptions { partitions: 2, partition_write_units: 50, ..ServeOptions::default() };
    let edition = TestEdition::start(options, one_shard).await;
    let load = json!({"partition_key": "hot", "keys": 20, "writes": 300});
    assert_eq!(edition.post("/console/load", &load).await.status, 202);
    while edition.engine().traffic("items").throttled_writes == 0 {
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_secs(2)).await;
    let path = format!("{}/console/stream", edition.url());
    let mut stream = reqwest::get(path).await.expect("a stream");
    assert_eq!(stream.headers()[CONTENT_TYPE], "text/event-stream");
    let first = stream.chunk().await.expect("no error").expect("an event");
    let first = String::from_utf8_lossy(&first);
    assert!(first.contains("history") && first.contains("[{"), "the past comes first: {first}");
    let address = edition.url().trim_start_matches("http://").to_owned();
    let mut half = TcpStream::connect(address).await.expect("a connection");
    let begun = "POST /items HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    half.write_all(begun.as_bytes()).await.expect("sent");
    // Twice the grace period, and time for a slow machine.
    timeout(Duration::from_secs(30), edition.stop()).await.expect("it stops");
    drop(half);
    while stream.chunk().await.is_ok_and(|chunk| chunk.is_some()) {}
}
