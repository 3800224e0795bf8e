//! The audit log makes several keys grow. Then they shrink to one shard again, while clients write
//! and read, and while the process is killed twenty times.
//!
//! Every response is compared with the allowed states of the item. A sort key has one writer, so an
//! acknowledged write leaves one state. A write without a response leaves two possible states until
//! the item is read again. `KILL_SEED` sets the seed.

mod client;
mod site;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, Counts, Log, Rounds};
use flate2::read::GzDecoder;
use futures_util::future::join_all;
use local::load::{LoadOptions, Summary, load};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use site::{PATIENCE, Served, Site};
use system_tests::large_or;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The number of stored lines of the audit log. All of them belong to its hottest keys.
fn stored_lines() -> usize {
    large_or(3_000, 1_200)
}
const HOTTEST: usize = 8;
fn wanted_kills() -> usize {
    large_or(20, 2)
}
/// The minimum number of keys that must grow.
const MIN_GROWN: usize = 3;
/// The number of shards added to a key when it grows again.
const WIDER: u64 = 6;
const CLIENTS: u64 = 4;
/// The partitions on which keys grow.
const SMALL: [&str; 4] = ["--partitions", "64", "--partition-write-units", "25"];
/// The partitions on which keys shrink after the peak.
const USUAL: [&str; 2] = ["--partitions", "64"];

/// Returns the first lines of the hottest keys, as a file and as the expected events.
fn audit_log() -> (tempfile::NamedTempFile, Log) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/audit-log.jsonl.gz");
    let file = std::fs::File::open(path).expect("the audit log is here");
    let lines: Vec<String> = BufReader::new(GzDecoder::new(file))
        .lines()
        .collect::<Result<_, _>>()
        .expect("it is whole");
    let events: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let key = |event: &Value| event["path"].as_str().expect("a path").to_owned();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for event in &events {
        *counts.entry(key(event)).or_default() += 1;
    }
    let mut hottest: Vec<_> = counts.into_iter().collect();
    hottest.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    hottest.truncate(HOTTEST);
    let is_hot = |event: &Value| hottest.iter().any(|(hot, _)| *hot == key(event));
    let (mut part, mut log) =
        (tempfile::NamedTempFile::new().expect("a temporary file"), Log::new());
    for (line, event) in
        lines.iter().zip(events).filter(|(_, event)| is_hot(event)).take(stored_lines())
    {
        writeln!(part, "{line}").expect("written");
        let sort_key = format!("{}#{}", event["time"], event["commit"].as_str().expect("a commit"));
        log.entry(key(&event)).or_default().insert(sort_key, event);
    }
    (part, log)
}

async fn store(file: &Path, url: &str) -> Summary {
    let options = LoadOptions {
        file: file.to_owned(),
        partition_key: "path".into(),
        sort_key: vec!["time".into(), "commit".into()],
        url: url.to_owned(),
        batch: 100,
        concurrency: 8,
        attempts: 50,
    };
    let summary = load(&options).await.expect("loaded");
    assert_eq!(
        (summary.stored, summary.failed.as_slice()),
        (stored_lines() as u64, &[][..]),
        "{summary}"
    );
    summary
}

/// Returns the keys with more than one shard and their widths, after all growth has ended.
async fn grown(site: &Site) -> BTreeMap<String, u64> {
    let began = Instant::now();
    'list: loop {
        assert!(began.elapsed() < PATIENCE, "keys go on growing");
        let (mut grown, mut after) = (BTreeMap::new(), Value::Null);
        loop {
            let event = if after.is_null() {
                json!({"action": "list"})
            } else {
                json!({"action": "list", "after": after})
            };
            let listed = site.scaler(&event).await;
            for key in listed["keys"].as_array().expect("keys") {
                let (write, read) = (key["number_of_shards"].as_u64(), key["read_shards"].as_u64());
                if write != read {
                    sleep(Duration::from_millis(100)).await;
                    continue 'list;
                }
                if write > Some(1) {
                    grown.insert(
                        key["partition_key"].as_str().expect("a key").to_owned(),
                        write.unwrap_or(1),
                    );
                }
            }
            after = listed["next"].clone();
            if after.is_null() {
                return grown;
            }
        }
    }
}

/// Returns every stored item without tombstones: the stored key and the sort key.
async fn stored(dynamodb: &str) -> Vec<(String, String)> {
    let (http, mut start, mut found) = (reqwest::Client::new(), Value::Null, Vec::new());
    loop {
        let mut request = json!({"TableName": "items", "ConsistentRead": true});
        if !start.is_null() {
            request["ExclusiveStartKey"] = start;
        }
        let scan = http
            .post(dynamodb)
            .header("x-amz-target", "DynamoDB_20120810.Scan")
            .body(request.to_string());
        let response = scan.send().await.expect("a response");
        let bytes = response.bytes().await.expect("a body");
        let page: Value = serde_json::from_slice(&bytes).expect("JSON");
        let items = page["Items"].as_array().unwrap_or_else(|| panic!("{page}"));
        for item in items.iter().filter(|item| item["_sh:d"]["BOOL"] != true) {
            let text = |name: &str| item[name]["S"].as_str().expect("a text").to_owned();
            found.push((text("partition_key"), text("sort_key")));
        }
        start = page["LastEvaluatedKey"].clone();
        if start.is_null() {
            return found;
        }
    }
}

/// Makes a key shrink to one shard and waits for that. Returns the number of shrinks that it began.
async fn narrow(site: Site, key: String) -> u32 {
    let (began, mut begun) = (Instant::now(), 0);
    loop {
        let widths = site.widths(&key).await;
        if widths.is_narrow() {
            return begun;
        }
        assert!(began.elapsed() < PATIENCE, "{key} does not shrink: {widths:?}");
        // After a restart, the process continues a change or a drain, and begins the drain of a
        // shrink that was killed between the two.
        if !widths.closing && !widths.draining && widths.write > 1 {
            let shrink = json!({"action": "shrink", "partition_key": key, "number_of_shards": 1});
            begun += u32::from(site.scaler(&shrink).await["outcome"] == "begun");
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn widen(site: &Site, key: &str, width: u64) {
    let set = json!({"action": "set", "partition_key": key, "number_of_shards": width});
    let began = Instant::now();
    while site.scaler(&set).await["outcome"] != "scaled" {
        assert!(began.elapsed() < PATIENCE, "{key} does not grow");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Returns only if a client found a fault.
async fn none_ended<T: 'static>(clients: &mut JoinSet<T>) {
    if let Some(ended) = clients.join_next().await {
        ended.expect("a client found a fault");
        panic!("a client has ended");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grown_keys_shrink_to_one_shard_while_the_process_is_killed() {
    let seed = std::env::var("KILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    println!("KILL_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let data = tempfile::tempdir().expect("a directory");
    let (file, log) = audit_log();
    let log = Arc::new(log);

    let mut served = Served::start(data.path(), &SMALL);
    let (announce, at) = watch::channel((0, Some(served.api.clone())));
    let site = Site { at, http: reqwest::Client::new() };
    let widths = loop {
        print!("{}", store(file.path(), &served.api).await);
        let widths = grown(&site).await;
        println!("grown: {widths:?}");
        if widths.len() >= MIN_GROWN {
            break widths;
        }
    };
    let restart = async |served: &mut Served| {
        served.kill();
        announce.send_modify(|(number, url)| (*number, *url) = (*number + 1, None));
        let data = data.path().to_owned();
        *served = tokio::task::spawn_blocking(move || Served::start(&data, &USUAL))
            .await
            .expect("it starts");
        announce.send_modify(|(_, url)| *url = Some(served.api.clone()));
    };
    restart(&mut served).await;

    let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
    let keys = Arc::new(widths.keys().cloned().collect::<Vec<_>>());
    let (round, wanted) = watch::channel(0);
    let round_state = Rounds { wanted, stored: Arc::new(Semaphore::new(0)) };
    let mut clients = JoinSet::new();
    for name in 1..=CLIENTS {
        let (log, keys, counts) = (Arc::clone(&log), Arc::clone(&keys), Arc::clone(&counts));
        let rng = StdRng::seed_from_u64(seed * 100 + name);
        let client = Client {
            name,
            site: site.clone(),
            rng,
            log,
            keys,
            items: BTreeMap::new(),
            writes: 0,
            counts,
        };
        clients.spawn(client.run(round_state.clone(), Arc::clone(&stop)));
    }

    let began = Instant::now();
    let (mut kills, mut rounds, mut begun) = (Vec::new(), 0u32, 0);
    let mut steps: BTreeMap<&str, u32> = BTreeMap::new();
    while kills.len() < wanted_kills() {
        if rounds > 0 {
            // The keys grow again, and every event gets a second copy at its home among the shards.
            join_all(widths.iter().map(|(key, width)| widen(&site, key, (width + WIDER).min(16))))
                .await;
            print!("{}", store(file.path(), &served.api).await);
        }
        rounds += 1;
        round.send_replace(rounds);
        tokio::select! {
            stored = round_state.stored.acquire_many(CLIENTS as u32) => stored.expect("the clients go on").forget(),
            () = none_ended(&mut clients) => {}
        }
        let mut shrinking: JoinSet<u32> =
            keys.iter().map(|key| narrow(site.clone(), key.clone())).collect();
        while !shrinking.is_empty() {
            let gap = Duration::from_millis(rng.random_range(300..6_500));
            let due = sleep(if kills.len() < wanted_kills() { gap } else { 2 * PATIENCE });
            tokio::pin!(due);
            let is_due = loop {
                tokio::select! {
                    () = &mut due => break true,
                    () = none_ended(&mut clients) => {}
                    ended = shrinking.join_next() => match ended {
                        Some(ended) => begun += ended.expect("a key shrinks"),
                        None => break false,
                    },
                }
            };
            if is_due {
                kills.push(format!("{:.1}", began.elapsed().as_secs_f64()));
                restart(&mut served).await;
                for widths in join_all(keys.iter().map(|key| site.widths(key))).await {
                    let narrow = if widths.is_narrow() { "over" } else { "not begun" };
                    *steps.entry(widths.step.unwrap_or(narrow)).or_default() += 1;
                }
            }
        }
    }
    let elapsed = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    let mut expected: BTreeSet<(String, String)> = BTreeSet::new();
    let events = log.iter().flat_map(|(key, events)| {
        events.keys().map(move |sort_key| (key.clone(), sort_key.clone()))
    });
    expected.extend(events);
    for own in clients.join_all().await {
        for (item, allowed) in own {
            assert_eq!(allowed.len(), 1, "the last scan leaves one state");
            if allowed.iter().any(Option::is_some) {
                expected.insert(item);
            }
        }
    }
    for key in keys.iter() {
        let widths = site.widths(key).await;
        assert!(widths.is_narrow(), "{key}: {widths:?}");
    }
    let stored = stored(&served.dynamodb).await;
    let found: BTreeSet<(String, String)> = stored.iter().cloned().collect();
    assert_eq!(found.len(), stored.len(), "an item is stored twice");
    let (lost, left) = (expected.difference(&found).next(), found.difference(&expected).next());
    assert_eq!((lost, left), (None, None));

    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} kills within {:.0} s, at {} s",
        kills.len(),
        elapsed.as_secs_f64(),
        kills.join(", ")
    );
    println!("steps of {} keys at the kills: {steps:?}", keys.len());
    println!("shrinks begun {begun}, ended {}, in {rounds} rounds", rounds as usize * keys.len());
    println!("items {}, all on shard 1, each once", stored.len());
    let (acknowledged, unknown, rejected) =
        (count(&counts.acknowledged), count(&counts.unknown), count(&counts.rejected));
    println!("writes acknowledged {acknowledged}, unknown {unknown}, rejected {rejected}");
    let (gets, scans, pages) = (count(&counts.gets), count(&counts.scans), count(&counts.pages));
    let (items, failed) = (count(&counts.scanned_items), count(&counts.failed_reads));
    println!(
        "reads checked: {gets} of one item, {scans} of all ({pages} pages, {items} items); \
         {failed} failed reads"
    );
}
