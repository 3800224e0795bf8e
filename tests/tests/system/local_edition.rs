//! The local edition's own promises: it reports what prevents its start, or a load, and a load stores
//! every line.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use flate2::read::GzDecoder;
use local::load::{LoadError, LoadOptions, load};
use local::{Edition, EditionError, ServeOptions};
use serde_json::Value;
use system_tests::{TestEdition, config};

fn load_options(file: &Path, url: String) -> LoadOptions {
    LoadOptions {
        file: file.to_owned(),
        partition_key: "path".into(),
        sort_key: vec!["time".into()],
        url,
        batch: 10,
        concurrency: 2,
        attempts: 3,
    }
}

#[tokio::test]
async fn a_port_in_use_and_an_unusable_directory_are_reported() {
    let running = TestEdition::start(ServeOptions::default(), config()).await;
    let port = running.url().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let free = ServeOptions { dynamodb_port: 0, endpoint_port: 0, ..ServeOptions::default() };
    let options = ServeOptions { port, ..free.clone() };
    let error = Edition::start(&options, config()).await.expect_err("the port is taken");
    assert!(matches!(error, EditionError::Port { option: "--port", .. }), "{error}");
    let parts = [&*port.to_string(), "--port"];
    assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");

    let file = tempfile::NamedTempFile::new().expect("a file");
    let options = ServeOptions { port: 0, data_dir: Some(file.path().to_owned()), ..free };
    let error = Edition::start(&options, config()).await.expect_err("a file is no directory");
    assert!(matches!(error, EditionError::DataDir { .. }), "{error}");
    assert!(error.to_string().contains("--data-dir"), "{error}");
}

#[tokio::test]
async fn a_load_with_errors_reports_them_and_stores_nothing() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let missing = load(&load_options("no/such/file".as_ref(), edition.url())).await;
    assert!(matches!(missing, Err(LoadError::File { .. })), "{missing:?}");

    let file = tempfile::NamedTempFile::new().expect("a file");
    let write = |lines: &str| std::fs::write(file.path(), lines).expect("written");
    let options = load_options(file.path(), edition.url());
    let line = "{\"path\":\"a\",\"time\":\"1\"}\n";
    write(&format!("{line}{{\"path\":\"a\"\n"));
    let malformed = load(&options).await.expect_err("line 2 is malformed").to_string();
    assert!(malformed.contains("line 2"), "{malformed}");
    assert!(malformed.contains("nothing was stored"), "{malformed}");
    assert_eq!(edition.engine().traffic("items").writes, 0);

    write(line);
    let nowhere = load_options(file.path(), "http://127.0.0.1:9".into());
    let unreachable = load(&nowhere).await.expect_err("no process listens there");
    assert!(matches!(unreachable, LoadError::Api { .. }), "{unreachable}");

    // A line that the API rejects is listed with its number, and the others are stored.
    write(&format!("{line}{{\"path\":\"\",\"time\":\"2\"}}\n"));
    let summary = load(&LoadOptions { batch: 1, ..options }).await.expect("loaded");
    assert_eq!((summary.stored, summary.failed.len(), summary.failed[0].0), (1, 1, 2), "{summary}");
}

/// Real input: file-change events of a public repository, strongly skewed. `checks/adoption` does the
/// same over keys that grow, for another program's table.
#[tokio::test(flavor = "multi_thread")]
async fn on_small_partitions_no_line_of_a_load_is_lost() {
    const LINES: usize = 6_000;
    let small =
        ServeOptions { partitions: 8, partition_write_units: 50, ..ServeOptions::default() };
    let edition = TestEdition::start(small, config()).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/audit-log.jsonl.gz");
    let file = std::fs::File::open(path).expect("the audit log is here");
    let mut part = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut keys: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for line in BufReader::new(GzDecoder::new(file)).lines().take(LINES) {
        let line = line.expect("a line");
        writeln!(part, "{line}").expect("written");
        let event: Value = serde_json::from_str(&line).expect("JSON");
        let sort_key = format!("{}#{}", event["time"], event["commit"].as_str().expect("a commit"));
        let path = event["path"].as_str().expect("a path").to_owned();
        keys.entry(path).or_default().insert(sort_key, event);
    }
    let options = LoadOptions {
        sort_key: vec!["time".into(), "commit".into()],
        batch: 100,
        concurrency: 8,
        attempts: 20,
        ..load_options(part.path(), edition.url())
    };
    let summary = load(&options).await.expect("loaded");
    let lines = LINES as u64;
    assert_eq!((summary.lines, summary.stored), (lines, lines), "{summary}");
    assert!(summary.failed.is_empty(), "{summary}");
    assert!(summary.throttled_items > 0 && summary.retries > 0, "it must throttle: {summary}");
    edition.table().finish_background_work().await;
    for (key, events) in &keys {
        let (found, _) = edition.read_all(key, "&limit=250&consistent=true").await;
        let found: Vec<_> = found
            .iter()
            .map(|item| (item["sort_key"].as_str().expect("a sort key"), &item["attributes"]))
            .collect();
        let events: Vec<_> = events.iter().map(|(sort_key, it)| (sort_key.as_str(), it)).collect();
        assert_eq!(found, events, "{key}: each once and in order");
    }
}
