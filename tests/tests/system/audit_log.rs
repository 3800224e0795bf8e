//! Real input: 61,299 file-change events of a public repository, strongly skewed, are stored and
//! read back through the whole system.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use flate2::read::GzDecoder;
use local::ServeOptions;
use local::load::{LoadOptions, load};
use serde_json::Value;
use system_tests::{TestEdition, config};

/// The first lines of the audit log.
fn first_lines(lines: usize) -> impl Iterator<Item = String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/audit-log.jsonl.gz");
    let file = std::fs::File::open(path).expect("the audit log is here");
    BufReader::new(GzDecoder::new(file)).lines().take(lines).map(|line| line.expect("a line"))
}

fn options(file: &Path, edition: &TestEdition) -> LoadOptions {
    LoadOptions {
        file: file.to_owned(),
        partition_key: "path".into(),
        sort_key: vec!["time".into(), "commit".into()],
        url: edition.url(),
        batch: 100,
        concurrency: 8,
        attempts: 20,
    }
}

/// The events of the first lines by key, in sort-key order.
fn expected(lines: usize) -> BTreeMap<String, BTreeMap<String, Value>> {
    let mut keys: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for line in first_lines(lines) {
        let event: Value = serde_json::from_str(&line).expect("JSON");
        let sort_key = format!("{}#{}", event["time"], event["commit"].as_str().expect("a commit"));
        let path = event["path"].as_str().expect("a path").to_owned();
        keys.entry(path).or_default().insert(sort_key, event);
    }
    keys
}

/// Reads every key in pages and compares: it has exactly the events of the file, each once, in
/// order.
async fn compare(
    edition: &TestEdition,
    expected: &BTreeMap<String, BTreeMap<String, Value>>,
) -> (usize, usize) {
    let (mut events, mut pages) = (0, 0);
    for (key, wanted) in expected {
        let (found, of_key) = edition.read_all(key, "&limit=250&consistent=true").await;
        let found: Vec<(&str, &Value)> = found
            .iter()
            .map(|item| (item["sort_key"].as_str().expect("a sort key"), &item["attributes"]))
            .collect();
        let wanted: Vec<(&str, &Value)> =
            wanted.iter().map(|(sort_key, event)| (sort_key.as_str(), event)).collect();
        assert_eq!(found, wanted, "{key}");
        events += found.len();
        pages += of_key;
    }
    (events, pages)
}

/// The events of a hot key: one in a hundred.
const HOT: usize = LINES / 100;
const LINES: usize = 6_000;

#[tokio::test(flavor = "multi_thread")]
async fn on_small_partitions_hot_keys_spread_and_nothing_is_lost() {
    let small =
        ServeOptions { partitions: 8, partition_write_units: 50, ..ServeOptions::default() };
    let edition = TestEdition::start(small, config()).await;
    let mut part = tempfile::NamedTempFile::new().expect("a temporary file");
    for line in first_lines(LINES) {
        writeln!(part, "{line}").expect("written");
    }
    let summary = load(&options(part.path(), &edition)).await.expect("loaded");
    let lines = LINES as u64;
    assert_eq!((summary.lines, summary.stored), (lines, lines), "{summary}");
    assert!(summary.failed.is_empty(), "{summary}");
    assert!(summary.throttled_items > 0 && summary.retries > 0, "it must throttle: {summary}");
    edition.table().finish_background_work().await;
    let expected = expected(LINES);
    let (events, pages) = compare(&edition, &expected).await;
    println!(
        "{summary}read back: {events} events of {} keys in {pages} pages, each once and in order",
        expected.len()
    );
    let width = async |key: &str| {
        let path = format!("/shards?partition_key={}", key.replace('/', "%2F"));
        edition.get(&path).await.body["number_of_shards"].as_u64()
    };
    let (mut of_hot, mut of_cold) = (Vec::new(), Vec::new());
    for (key, events) in &expected {
        if events.len() >= HOT {
            of_hot.push(width(key).await);
        } else if events.len() == 1 && of_cold.len() < 50 {
            of_cold.push(width(key).await);
        }
    }
    // Which ones spread depends on their bursts: on average, the hottest fills a third of its
    // partition.
    println!("shards of the hot keys: {of_hot:?}");
    assert!(of_hot.iter().any(|width| *width > Some(1)), "no hot key spreads: {of_hot:?}");
    assert!(of_hot.iter().all(|width| *width <= Some(16)), "one spreads too far: {of_hot:?}");
    assert_eq!(of_cold, [Some(1); 50], "keys of one event must stay on one shard");
    edition.stop().await;
}
