//! Real input: 61,299 file-change events of a public repository, strongly skewed, are stored and
//! read back through the whole system.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use local::ServeOptions;
use local::load::{LoadOptions, Summary, load};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use sharding::internal::policy::collisions::fewest;
use system_tests::{TestEdition, config};

fn audit_log() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/audit-log.jsonl.gz")
}

/// A file with the first lines of the audit log.
fn first_lines(lines: usize) -> tempfile::NamedTempFile {
    let mut part = tempfile::NamedTempFile::new().expect("a temporary file");
    let file = std::fs::File::open(audit_log()).expect("the audit log is here");
    for line in BufReader::new(GzDecoder::new(file)).lines().take(lines) {
        writeln!(part, "{}", line.expect("a line")).expect("written");
    }
    part
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
    let file = std::fs::File::open(audit_log()).expect("the audit log is here");
    let mut keys: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for line in BufReader::new(GzDecoder::new(file)).lines().take(lines) {
        let event: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let sort_key = format!("{}#{}", event["time"], event["commit"].as_str().expect("a commit"));
        keys.entry(event["path"].as_str().expect("a path").to_owned())
            .or_default()
            .insert(sort_key, event);
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

fn assert_nothing_lost(summary: &Summary, lines: u64) {
    assert_eq!(
        (summary.lines, summary.stored, summary.failed.as_slice()),
        (lines, lines, &[][..]),
        "{summary}"
    );
}

/// The partitions of the small table, and the write units per second of each.
const SMALL: (u32, u32) = (8, 50);
/// The share of all events from which the oracle gives a key more than one shard.
const HOT: f64 = 0.01;
/// The number of random placements of all keys with which the oracle tries a width.
const PLACEMENTS: u64 = 2_000;
/// A width counts as equally good if the log takes at most this factor longer to store.
const NEARLY_AS_FAST: f64 = 1.025;

/// The best width of the hot keys for an oracle that knows all events and the partitions, but not
/// where shards are placed. The whole log waits for the fullest partition. So it is the fewest
/// shards with which that partition has hardly more events than with the most shards. The hottest
/// key is the first.
fn of_oracle(events: &[usize]) -> u32 {
    let all: usize = events.iter().sum();
    let fullest = |shards: u32| {
        let mut total = 0.0;
        for seed in 0..PLACEMENTS {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut partitions = [0.0_f64; SMALL.0 as usize];
            // The cold keys come first, so that every width is tried with the same placement of
            // them.
            for &of_key in events.iter().rev() {
                let shards = if of_key as f64 >= HOT * all as f64 { shards } else { 1 };
                for _ in 0..shards {
                    partitions[rng.random_range(0..partitions.len())] +=
                        of_key as f64 / f64::from(shards);
                }
            }
            total += partitions.into_iter().fold(0.0, f64::max);
        }
        total
    };
    let most = config().policy.max_shards;
    let best = fullest(most.get());
    fewest(most, |shards| fullest(shards.get()) <= best * NEARLY_AS_FAST).unwrap_or(most).get()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_small_partitions_hot_keys_spread_and_nothing_is_lost() {
    const LINES: usize = 6_000;
    let options_small = ServeOptions {
        partitions: SMALL.0,
        partition_write_units: SMALL.1,
        ..ServeOptions::default()
    };
    let edition = TestEdition::start(options_small, config()).await;
    let part = first_lines(LINES);
    let summary = load(&options(part.path(), &edition)).await.expect("loaded");
    assert_nothing_lost(&summary, LINES as u64);
    assert!(
        summary.throttled_items > 0 && summary.retries > 0,
        "small partitions must throttle: {summary}"
    );
    edition.table().finish_background_work().await;
    let expected = expected(LINES);
    let (events, pages) = compare(&edition, &expected).await;
    println!(
        "{summary}read back: {events} events of {} keys in {pages} pages, each once and in order",
        expected.len()
    );
    let widths = |key: String| {
        let edition = &edition;
        async move {
            edition.get(&format!("/shards?partition_key={}", key.replace('/', "%2F"))).await.body["number_of_shards"]
                .as_u64()
        }
    };
    let mut by_heat: Vec<_> = expected.iter().map(|(key, events)| (events.len(), key)).collect();
    by_heat.sort_unstable_by(|one, other| other.cmp(one));
    let oracle = of_oracle(&by_heat.iter().map(|(events, _)| *events).collect::<Vec<_>>());
    println!("oracle: {oracle} shards");
    let mut of_hot = Vec::new();
    for (events, key) in by_heat {
        let width = widths(key.clone()).await.expect("a width");
        if events as f64 >= HOT * LINES as f64 {
            println!("{key}: {events} events, {width} shards");
            of_hot.push(width);
        } else {
            assert!(2 * width <= 3 * u64::from(oracle), "{key}: {events} events, {width} shards");
        }
    }
    // Which ones spread depends on their bursts: on average, the hottest fills a third of a partition.
    of_hot.sort_unstable();
    assert!(of_hot.last() > Some(&1), "no hot key spreads: {of_hot:?}");
    let median = of_hot[of_hot.len() / 2];
    assert!(2 * median <= 3 * u64::from(oracle), "{oracle} shards suffice: {of_hot:?}");
    let mut cold = 0;
    for key in expected.iter().filter(|(_, events)| events.len() == 1).map(|(key, _)| key).take(50)
    {
        cold += u32::from(widths(key.clone()).await == Some(1));
    }
    assert_eq!(cold, 50, "keys of one event must stay on one shard");
    edition.stop().await;
}
