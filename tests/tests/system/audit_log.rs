//! Real input: file-change events of a public repository, strongly skewed, are stored and read back
//! through the whole system.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use flate2::read::GzDecoder;
use local::ServeOptions;
use local::load::{LoadOptions, load};
use serde_json::Value;
use system_tests::{TestEdition, config};

const LINES: usize = 6_000;

/// `checks/adoption` does the same over keys that grow, for another program's table.
#[tokio::test(flavor = "multi_thread")]
async fn on_small_partitions_no_line_of_a_load_is_lost() {
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
        file: part.path().to_owned(),
        partition_key: "path".into(),
        sort_key: vec!["time".into(), "commit".into()],
        url: edition.url(),
        batch: 100,
        concurrency: 8,
        attempts: 20,
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
