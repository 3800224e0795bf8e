//! A key shrinks to one shard again and again under writes, while the process that stores its data
//! is killed. No acknowledged item is lost, and none is stored twice. `KILL_SEED` sets the seed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use connection::server::configuration_for;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use system_tests::{large_or, scan_stored};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::Served;

const KEY: &str = "hot";
const WIDTH: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(120);
const SCALER: &str = "/2015-03-31/functions/shard-scaler/invocations";

fn serve(data: &Path) -> Served {
    let data = data.to_str().expect("a UTF-8 path");
    let mut arguments = vec!["--port", "0", "--dynamodb-port", "0", "--endpoint-port", "0"];
    arguments.extend(["--partitions", "64", "--drain-period", "1", "--drain-wait", "5"]);
    arguments.extend(["--data-dir", data]);
    Served::start(&arguments, &[])
}

/// A client of whatever process serves.
#[derive(Clone)]
struct Site {
    api: watch::Receiver<String>,
    http: reqwest::Client,
}

impl Site {
    /// Sends a request until a process has answered it.
    async fn send(&self, path: &str, body: Option<&Value>) -> Value {
        let began = Instant::now();
        loop {
            let url = format!("{}{path}", *self.api.borrow());
            let request = match body {
                Some(body) => self.http.post(url).body(body.to_string()),
                None => self.http.get(url),
            };
            let sent = request.header("content-type", "application/json").send().await;
            if let Ok(response) = sent
                && response.status().is_success()
                && let Ok(bytes) = response.bytes().await
            {
                return serde_json::from_slice(&bytes).expect("JSON");
            }
            assert!(began.elapsed() < PATIENCE, "no process answers {path} {body:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn metadata(&self) -> Value {
        let event = json!({"action": "show", "partition_key": KEY});
        self.send(SCALER, Some(&event)).await["metadata"].clone()
    }

    /// Sends an event for the key until the shard-scaler has this outcome.
    async fn scale(&self, action: &str, width: u64, outcome: &str) {
        let event = json!({"action": action, "partition_key": KEY, "number_of_shards": width});
        let began = Instant::now();
        while self.send(SCALER, Some(&event)).await["outcome"] != outcome {
            assert!(began.elapsed() < PATIENCE, "{action}: {}", self.metadata().await);
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Stores items until it is stopped. Each is repeated until it is acknowledged.
    async fn write(self, acknowledged: Arc<Mutex<BTreeSet<String>>>, stop: watch::Receiver<bool>) {
        for number in 0.. {
            if *stop.borrow() {
                return;
            }
            let sort_key = format!("{number:06}");
            let item = json!({"partition_key": KEY, "sort_key": sort_key, "attributes": {}});
            self.send("/items", Some(&item)).await;
            acknowledged.lock().expect("no panic").insert(sort_key);
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The sort keys of the key's items, page by page.
    async fn read(&self) -> BTreeSet<String> {
        let (mut found, mut cursor) = (BTreeSet::new(), String::new());
        loop {
            let path = format!("/items?partition_key={KEY}&limit=1000&consistent=true{cursor}");
            let page = self.send(&path, None).await;
            for item in page["items"].as_array().expect("items") {
                let sort_key = item["sort_key"].as_str().expect("a string").to_owned();
                assert!(found.last() < Some(&sort_key), "{sort_key} comes twice or late");
                found.insert(sort_key);
            }
            let Some(next) = page["cursor"].as_str() else { return found };
            cursor = format!("&cursor={next}");
        }
    }
}

fn text(value: &AttributeValue) -> String {
    value.as_s().expect("a text").clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grown_key_shrinks_while_the_process_is_killed() {
    let wanted = large_or(20, 2);
    let seed = std::env::var("KILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    println!("KILL_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let data = tempfile::tempdir().expect("a directory");
    let mut served = serve(data.path());
    let (announce, api) = watch::channel(served.address("API"));
    let site = Site { api, http: reqwest::Client::new() };
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let known = || acknowledged.lock().expect("no panic").clone();
    let (stop, stopped) = watch::channel(false);
    let writer = tokio::spawn(site.clone().write(Arc::clone(&acknowledged), stopped));

    let mut kills = 0;
    while kills < wanted {
        site.scale("set", WIDTH, "scaled").await;
        site.scale("shrink", 1, "begun").await;
        let mut due = Instant::now() + Duration::from_millis(rng.random_range(300..6_500));
        loop {
            let metadata = site.metadata().await;
            let is_narrow = metadata["read_shards"] == 1 && metadata["draining"] != true;
            if is_narrow && metadata["closing"].is_null() {
                break;
            }
            if Instant::now() >= due && kills < wanted {
                let before = known();
                served.process.kill().expect("it is killed");
                served.process.wait().expect("it has ended");
                let folder = data.path().to_owned();
                let started = tokio::task::spawn_blocking(move || serve(&folder));
                served = started.await.expect("it starts");
                announce.send_replace(served.address("API"));
                kills += 1;
                println!("kill {kills}: {metadata}");
                let lost: Vec<_> = before.difference(&site.read().await).cloned().collect();
                assert!(lost.is_empty(), "lost: {lost:?}");
                due = Instant::now() + Duration::from_millis(rng.random_range(300..6_500));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
    stop.send_replace(true);
    writer.await.expect("the writer ends");
    let client = Client::new(&configuration_for(&served.address("DynamoDB")).await);
    let stored = scan_stored(&client).await.into_iter();
    let stored = stored.filter(|item| item.get("_sh:d") != Some(&AttributeValue::Bool(true)));
    let mut stored: Vec<_> =
        stored.map(|item| [&item["partition_key"], &item["sort_key"]].map(text)).collect();
    stored.sort();
    let on_the_first: Vec<_> =
        known().into_iter().map(|sort_key| [KEY.to_owned(), sort_key]).collect();
    assert_eq!(stored, on_the_first, "an item is stored twice, or lost");
    println!("{kills} kills, {} items, all on shard 1, each once", on_the_first.len());
}
