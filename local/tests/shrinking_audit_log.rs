//! The audit log grows several keys; then they shrink to one shard again, while clients write and read, and the process is killed twenty
//! times.
//!
//! Every answer is compared with what may be there: a sort key has one writer, so what was acknowledged is known exactly, and a write
//! without an answer leaves two possibilities until the item is read again. `KILL_SEED` sets the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flate2::read::GzDecoder;
use futures_util::future::join_all;
use local::load::{LoadOptions, Summary, load};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

/// Lines of the audit log that are stored, all of its hottest keys.
const LINES: usize = 3_000;
const HOTTEST: usize = 8;
const KILLS: usize = 20;
/// So many keys have to grow.
const SEVERAL: usize = 3;
/// So that a fast machine's load does not make wider keys than a slow one's.
const MAX_SHARDS: &str = "16";
/// Shards that a key is given beyond those that it had, where it grows again.
const WIDER: u64 = 6;
const CLIENTS: u64 = 4;
/// Sort keys of a client in each key.
const OWN: usize = 50;
/// Between two requests of a client.
const PACE: Duration = Duration::from_millis(15);
/// For anything that must come.
const PATIENCE: Duration = Duration::from_secs(400);
const SCALER: &str = "/2015-03-31/functions/shard-scaler/invocations";
/// Keys grow on these.
const SMALL: [&str; 4] = ["--partitions", "64", "--partition-write-units", "25"];
/// And shrink on these, as the peak is over.
const USUAL: [&str; 2] = ["--partitions", "64"];

/// The process.
struct Served {
    process: Child,
    api: String,
    dynamodb: String,
}

impl Served {
    fn start(data: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_local"));
        command.env_clear().env("MAX_SHARDS", MAX_SHARDS).args(["serve", "--port", "0", "--dynamodb-port", "0"]);
        command.args(["--drain-period", "1", "--drain-wait", "5", "--data-dir"]).arg(data).args(options);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the local edition starts");
        let told = BufReader::new(process.stdout.take().expect("its output")).lines().map_while(Result::ok);
        let told: Vec<String> = told.take_while(|line| !line.starts_with("stop")).collect();
        let address = |name: &str| {
            let line =
                told.iter().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {told:?}"));
            line.split_whitespace().next().expect("an address").to_owned()
        };
        Self { api: address("API"), dynamodb: address("DynamoDB"), process }
    }

    fn kill(&mut self) {
        assert!(self.process.try_wait().expect("its state").is_none(), "it has ended by itself");
        self.process.kill().expect("it is killed");
        self.process.wait().expect("it has ended");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Ended already, where all went well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where the process listens, and which one in order it is; none while it is down.
type At = (u64, Option<String>);

/// The process was killed before it had answered.
struct Cut;

/// A way to the process, whichever it is.
#[derive(Clone)]
struct Site {
    at: watch::Receiver<At>,
    http: reqwest::Client,
}

impl Site {
    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<(u16, Value), Cut> {
        let mut at = self.at.clone();
        let up = async { at.wait_for(|(_, url)| url.is_some()).await.expect("the test goes on").clone() };
        let (number, url) = timeout(PATIENCE, up).await.expect("it listens again");
        let url = url.expect("it listens");
        let mut request = self.http.request(method.parse().expect("a method"), format!("{url}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answered = async {
            let response = request.send().await?;
            let status = response.status().as_u16();
            Ok::<_, reqwest::Error>((status, response.bytes().await?))
        };
        match timeout(PATIENCE, answered).await.expect("an answer, or none") {
            Ok((status, body)) => Ok((status, serde_json::from_slice(&body).unwrap_or_default())),
            Err(error) => {
                let killed = timeout(Duration::from_secs(10), at.wait_for(|(now, _)| *now != number)).await;
                assert!(killed.is_ok(), "it was not killed, and does not answer: {error:?}");
                Err(Cut)
            }
        }
    }

    /// The answer of the shard-scaler, of whichever process gives one.
    async fn scaler(&self, event: &Value) -> Value {
        loop {
            if let Ok((status, answer)) = self.send("POST", SCALER, &[], Some(event)).await {
                assert_eq!(status, 200, "{answer}");
                return answer;
            }
        }
    }

    async fn widths(&self, key: &str) -> Widths {
        let shown = self.scaler(&json!({"action": "show", "partition_key": key})).await;
        let metadata = &shown["metadata"];
        let number = |name: &str| metadata[name].as_u64().unwrap_or_else(|| panic!("{name}: {shown}"));
        let drain = metadata["drain"].as_str().and_then(|drain| drain.split(' ').nth(1)).map(str::to_owned);
        let draining = metadata["draining"] == true;
        Widths { write: number("number_of_shards"), read: number("read_shards"), draining, step: drain }
    }
}

#[derive(Debug)]
struct Widths {
    write: u64,
    read: u64,
    draining: bool,
    step: Option<String>,
}

impl Widths {
    fn is_narrow(&self) -> bool {
        (self.write, self.read, self.draining) == (1, 1, false)
    }
}

#[derive(Debug, Default)]
struct Counts {
    acknowledged: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
    gets: AtomicU64,
    scans: AtomicU64,
    pages: AtomicU64,
    scanned_items: AtomicU64,
    unanswered_reads: AtomicU64,
}

fn one_more(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// The events of the log's first lines, by key and sort key.
type Log = BTreeMap<String, BTreeMap<String, Value>>;
/// What an item may be: absent, or the write with this number.
type Allowed = BTreeSet<Option<u64>>;

/// How often everything has to be stored, and how often a client has done it.
#[derive(Clone)]
struct Rounds {
    wanted: watch::Receiver<u32>,
    stored: Arc<Semaphore>,
}

struct Client {
    name: u64,
    site: Site,
    rng: StdRng,
    log: Arc<Log>,
    keys: Arc<Vec<String>>,
    /// Its own items; one that is missing here is absent.
    items: BTreeMap<(String, String), Allowed>,
    writes: u64,
    counts: Arc<Counts>,
}

impl Client {
    async fn run(mut self, rounds: Rounds, stop: Arc<AtomicBool>) -> BTreeMap<(String, String), Allowed> {
        let mut ticks = interval(PACE);
        let mut stored = 0;
        while !stop.load(Ordering::Relaxed) {
            let round = *rounds.wanted.borrow();
            if stored < round {
                self.store_all().await;
                stored = round;
                rounds.stored.add_permits(1);
            }
            ticks.tick().await;
            let key = self.keys[self.rng.random_range(0..self.keys.len())].clone();
            let sort_key = self.own_sort_key(&key);
            match self.rng.random_range(0..100) {
                0..25 => self.put(&key, &sort_key, "POST").await,
                25..40 => self.put(&key, &sort_key, "PUT").await,
                40..55 => self.delete(&key, &sort_key).await,
                55..70 => self.create(&key, &sort_key).await,
                70..92 => self.get(&key, &sort_key).await,
                92..98 => self.get_event(&key).await,
                _ => self.scan(&key).await,
            }
        }
        for key in Arc::clone(&self.keys).iter() {
            self.scan(key).await;
        }
        self.items
    }

    /// Every item of its own, on its home under the present width.
    async fn store_all(&mut self) {
        for key in Arc::clone(&self.keys).iter() {
            for number in 0..OWN {
                let sort_key = self.sort_key(key, number);
                self.put(key, &sort_key, "POST").await;
            }
        }
    }

    fn own_sort_key(&mut self, key: &str) -> String {
        let number = self.rng.random_range(0..OWN);
        self.sort_key(key, number)
    }

    /// Between the events of the log.
    fn sort_key(&self, key: &str, number: usize) -> String {
        let events = &self.log[key];
        let beside = events.keys().nth(events.len() * number / OWN).expect("a key has events");
        format!("{beside}+{number:02}+{}", self.name)
    }

    fn allowed(&mut self, key: &str, sort_key: &str) -> &mut Allowed {
        let own = self.items.entry((key.to_owned(), sort_key.to_owned()));
        own.or_insert_with(|| BTreeSet::from([None]))
    }

    fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes * 10 + self.name
    }

    /// What is there after a write of `what`, by its answer.
    fn learn(&mut self, (key, sort_key): (&str, &str), what: Option<u64>, answer: &Result<(u16, Value), Cut>) {
        let counts = Arc::clone(&self.counts);
        let allowed = self.allowed(key, sort_key);
        match answer {
            Ok((200 | 201 | 204, _)) => {
                one_more(&counts.acknowledged);
                *allowed = BTreeSet::from([what]);
            }
            Ok((503, problem)) if problem["code"] != "outcome_unknown" => one_more(&counts.refused),
            Ok((503, _)) | Err(Cut) => {
                one_more(&counts.unknown);
                allowed.insert(what);
            }
            Ok((status, problem)) => panic!("{key} {sort_key}: {status} {problem}"),
        }
    }

    async fn put(&mut self, key: &str, sort_key: &str, method: &str) {
        let number = self.next_write();
        let answer = if method == "PUT" {
            self.site.send(method, &of_item(key, sort_key), &[], Some(&json!({"attributes": {"n": number}}))).await
        } else {
            self.site.send(method, "/items", &[], Some(&body(key, sort_key, number))).await
        };
        self.learn((key, sort_key), Some(number), &answer);
    }

    async fn delete(&mut self, key: &str, sort_key: &str) {
        let answer = self.site.send("DELETE", &of_item(key, sort_key), &[], None).await;
        self.learn((key, sort_key), None, &answer);
    }

    /// Until it is known which: a create-only write knows its own earlier attempt.
    async fn create(&mut self, key: &str, sort_key: &str) {
        let number = self.next_write();
        let name = format!("{}-{number}", self.name);
        let headers = [("if-none-match", "*"), ("idempotency-key", name.as_str())];
        let before = self.allowed(key, sort_key).clone();
        loop {
            let answer = self.site.send("POST", "/items", &headers, Some(&body(key, sort_key, number))).await;
            match &answer {
                Ok((201, _)) => {
                    assert!(before.contains(&None), "{key} {sort_key}: created where {before:?} stands");
                    return self.learn((key, sort_key), Some(number), &answer);
                }
                Ok((412, _)) => {
                    one_more(&self.counts.refused);
                    let others: Allowed = before.iter().copied().filter(Option::is_some).collect();
                    assert!(!others.is_empty(), "{key} {sort_key}: told that it exists, and it does not");
                    *self.allowed(key, sort_key) = others;
                    return;
                }
                _ => self.learn((key, sort_key), Some(number), &answer),
            }
        }
    }

    async fn get(&mut self, key: &str, sort_key: &str) {
        let Some(found) = self.answered_get(key, sort_key).await else { return };
        let found = found.map(|item| number_of(&item));
        self.saw(key, sort_key, found);
    }

    async fn get_event(&mut self, key: &str) {
        let (log, place) = (Arc::clone(&self.log), self.rng.random_range(0..self.log[key].len()));
        let (sort_key, event) = log[key].iter().nth(place).expect("it is below the length");
        let Some(found) = self.answered_get(key, sort_key).await else { return };
        assert_eq!(found.map(|item| item["attributes"].clone()), Some(event.clone()), "{key} {sort_key}");
    }

    /// The item, or none; nothing where there was no answer.
    async fn answered_get(&self, key: &str, sort_key: &str) -> Option<Option<Value>> {
        let path = format!("{}&consistent=true", of_item(key, sort_key));
        match self.site.send("GET", &path, &[], None).await {
            Ok((200, item)) => {
                one_more(&self.counts.gets);
                Some(Some(item))
            }
            Ok((404, _)) => {
                one_more(&self.counts.gets);
                Some(None)
            }
            Ok((503, _)) | Err(Cut) => {
                one_more(&self.counts.unanswered_reads);
                None
            }
            Ok((status, problem)) => panic!("{key} {sort_key}: {status} {problem}"),
        }
    }

    fn saw(&mut self, key: &str, sort_key: &str, found: Option<u64>) {
        let allowed = self.allowed(key, sort_key);
        assert!(allowed.contains(&found), "{key} {sort_key} is {found:?}, and may be {allowed:?}");
        *allowed = BTreeSet::from([found]);
    }

    /// Every page of a key: the events of the log, this client's own items and nobody knows how many of others, each once and in order. A
    /// cursor from before a kill goes on after it.
    async fn scan(&mut self, key: &str) {
        let (limit, descending) = (self.rng.random_range(20..300), self.rng.random_bool(0.5));
        let order = if descending { "desc" } else { "asc" };
        let path = format!("/items?partition_key={}&consistent=true&limit={limit}&order={order}", encode(key));
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let place = cursor.as_ref().map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
            match self.site.send("GET", &format!("{path}{place}"), &[], None).await {
                Ok((200, page)) => {
                    one_more(&self.counts.pages);
                    items.extend(page["items"].as_array().expect("items").iter().cloned());
                    cursor = page["cursor"].as_str().map(str::to_owned);
                    if cursor.is_none() {
                        break;
                    }
                }
                Ok((503, _)) | Err(Cut) => one_more(&self.counts.unanswered_reads),
                Ok((status, problem)) => panic!("{key}: {status} {problem}"),
            }
        }
        one_more(&self.counts.scans);
        self.counts.scanned_items.fetch_add(items.len() as u64, Ordering::Relaxed);
        if descending {
            items.reverse();
        }
        let sort_keys: Vec<&str> = items.iter().map(sort_key_of).collect();
        assert!(sort_keys.is_sorted_by(|one, next| one < next), "{key}: twice or out of order: {sort_keys:?}");
        let (log, own) = (Arc::clone(&self.log), format!("+{}", self.name));
        let events = &log[key];
        let found = items.iter().filter(|item| !sort_key_of(item).contains('+'));
        let found: Vec<_> = found.map(|item| (sort_key_of(item), &item["attributes"])).collect();
        let wanted: Vec<_> = events.iter().map(|(sort_key, event)| (sort_key.as_str(), event)).collect();
        assert_eq!(found, wanted, "{key}");
        let own_items = items.iter().filter(|item| sort_key_of(item).ends_with(&own));
        let found: BTreeMap<String, u64> =
            own_items.map(|item| (sort_key_of(item).to_owned(), number_of(item))).collect();
        let known: Vec<String> =
            self.items.keys().filter(|(of, _)| of == key).map(|(_, sort_key)| sort_key.clone()).collect();
        assert!(found.keys().all(|sort_key| known.contains(sort_key)), "{key}: {found:?} were never written");
        for sort_key in known {
            self.saw(key, &sort_key, found.get(&sort_key).copied());
        }
    }
}

fn sort_key_of(item: &Value) -> &str {
    item["sort_key"].as_str().expect("a sort key")
}

fn number_of(item: &Value) -> u64 {
    item["attributes"]["n"].as_u64().unwrap_or_else(|| panic!("{item}"))
}

fn body(key: &str, sort_key: &str, number: u64) -> Value {
    json!({"partition_key": key, "sort_key": sort_key, "attributes": {"n": number}})
}

fn of_item(key: &str, sort_key: &str) -> String {
    format!("/item?partition_key={}&sort_key={}", encode(key), encode(sort_key))
}

fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The first lines of the hottest keys: as a file, and as they must be found again.
fn audit_log() -> (tempfile::NamedTempFile, Log) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/audit-log.jsonl.gz");
    let file = std::fs::File::open(path).expect("the audit log is here");
    let lines: Vec<String> =
        BufReader::new(GzDecoder::new(file)).lines().collect::<Result<_, _>>().expect("it is whole");
    let events: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let key = |event: &Value| event["path"].as_str().expect("a path").to_owned();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for event in &events {
        *counts.entry(key(event)).or_default() += 1;
    }
    let mut hottest: Vec<_> = counts.into_iter().collect();
    hottest.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    hottest.truncate(HOTTEST);
    let is_hot = |event: &Value| hottest.iter().any(|(hot, _)| *hot == key(event));
    let (mut part, mut log) = (tempfile::NamedTempFile::new().expect("a temporary file"), Log::new());
    for (line, event) in lines.iter().zip(events).filter(|(_, event)| is_hot(event)).take(LINES) {
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
    assert_eq!((summary.stored, summary.failed.as_slice()), (LINES as u64, &[][..]), "{summary}");
    summary
}

/// The keys with more than one shard, once no key is growing any more, with their widths.
async fn grown(site: &Site) -> BTreeMap<String, u64> {
    let began = Instant::now();
    'look: loop {
        assert!(began.elapsed() < PATIENCE, "keys go on growing");
        let (mut grown, mut after) = (BTreeMap::new(), Value::Null);
        loop {
            let event =
                if after.is_null() { json!({"action": "list"}) } else { json!({"action": "list", "after": after}) };
            let listed = site.scaler(&event).await;
            for key in listed["keys"].as_array().expect("keys") {
                let (write, read) = (key["number_of_shards"].as_u64(), key["read_shards"].as_u64());
                if write != read {
                    sleep(Duration::from_millis(100)).await;
                    continue 'look;
                }
                if write > Some(1) {
                    grown.insert(key["partition_key"].as_str().expect("a key").to_owned(), write.unwrap_or(1));
                }
            }
            after = listed["next"].clone();
            if after.is_null() {
                return grown;
            }
        }
    }
}

/// Every item as it is stored: the shard key, the logical key and the sort key.
async fn stored(dynamodb: &str) -> Vec<(String, String, String)> {
    let (http, mut start, mut found) = (reqwest::Client::new(), Value::Null, Vec::new());
    loop {
        let mut request = json!({"TableName": "items", "ConsistentRead": true});
        if !start.is_null() {
            request["ExclusiveStartKey"] = start;
        }
        let scan = http.post(dynamodb).header("x-amz-target", "DynamoDB_20120810.Scan").body(request.to_string());
        let response = scan.send().await.expect("it answers");
        let bytes = response.bytes().await.expect("the answer comes");
        let page: Value = serde_json::from_slice(&bytes).expect("JSON");
        for item in page["Items"].as_array().unwrap_or_else(|| panic!("{page}")) {
            let text = |name: &str| item[name]["S"].as_str().expect("a text").to_owned();
            found.push((text("partition_key"), text("_partition_key"), text("sort_key")));
        }
        start = page["LastEvaluatedKey"].clone();
        if start.is_null() {
            return found;
        }
    }
}

/// Has a key shrink, and looks after it until it has one shard; how many shrinks it took.
async fn narrow(site: Site, key: String) -> u32 {
    let (began, mut begun) = (Instant::now(), 0);
    loop {
        let widths = site.widths(&key).await;
        if widths.is_narrow() {
            return begun;
        }
        assert!(began.elapsed() < PATIENCE, "{key} does not shrink: {widths:?}");
        if widths.draining {
            // The process goes on with it.
        } else if widths.read > widths.write {
            // An expansion whose actor was killed.
            site.scaler(&json!({"action": "set", "partition_key": key, "number_of_shards": widths.read})).await;
        } else {
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

/// Ends only where a client has found a fault.
async fn none_ended<T: 'static>(clients: &mut JoinSet<T>) {
    if let Some(ended) = clients.join_next().await {
        ended.expect("a client found a fault");
        panic!("a client has ended");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grown_keys_of_the_audit_log_shrink_to_one_shard_while_the_process_is_killed_again_and_again() {
    let seed = std::env::var("KILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    println!("KILL_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let data = tempfile::tempdir().expect("a directory");
    let (file, log) = audit_log();
    let log = Arc::new(log);

    let mut served = Served::start(data.path(), &SMALL);
    let (told, at) = watch::channel((0, Some(served.api.clone())));
    let site = Site { at, http: reqwest::Client::new() };
    let widths = loop {
        print!("{}", store(file.path(), &served.api).await);
        let widths = grown(&site).await;
        println!("grown: {widths:?}");
        if widths.len() >= SEVERAL {
            break widths;
        }
    };
    let restart = async |served: &mut Served| {
        served.kill();
        told.send_modify(|(number, url)| (*number, *url) = (*number + 1, None));
        let data = data.path().to_owned();
        *served = tokio::task::spawn_blocking(move || Served::start(&data, &USUAL)).await.expect("it starts");
        told.send_modify(|(_, url)| *url = Some(served.api.clone()));
    };
    restart(&mut served).await;

    let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
    let keys = Arc::new(widths.keys().cloned().collect::<Vec<_>>());
    let (round, wanted) = watch::channel(0);
    let rounds_told = Rounds { wanted, stored: Arc::new(Semaphore::new(0)) };
    let mut clients = JoinSet::new();
    for name in 1..=CLIENTS {
        let (log, keys, counts) = (Arc::clone(&log), Arc::clone(&keys), Arc::clone(&counts));
        let rng = StdRng::seed_from_u64(seed * 100 + name);
        let client = Client { name, site: site.clone(), rng, log, keys, items: BTreeMap::new(), writes: 0, counts };
        clients.spawn(client.run(rounds_told.clone(), Arc::clone(&stop)));
    }

    let began = Instant::now();
    let (mut kills, mut rounds, mut begun) = (Vec::new(), 0u32, 0);
    let mut steps: BTreeMap<String, u32> = BTreeMap::new();
    while kills.len() < KILLS {
        if rounds > 0 {
            // Growing again, with a second copy of every event at its home among the shards.
            join_all(widths.iter().map(|(key, width)| widen(&site, key, (width + WIDER).min(16)))).await;
            print!("{}", store(file.path(), &served.api).await);
        }
        rounds += 1;
        round.send_replace(rounds);
        tokio::select! {
            stored = rounds_told.stored.acquire_many(CLIENTS as u32) => stored.expect("the clients go on").forget(),
            () = none_ended(&mut clients) => {}
        }
        let mut shrinking: JoinSet<u32> = keys.iter().map(|key| narrow(site.clone(), key.clone())).collect();
        while !shrinking.is_empty() {
            let gap = Duration::from_millis(rng.random_range(300..6_500));
            let due = sleep(if kills.len() < KILLS { gap } else { 2 * PATIENCE });
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
                    *steps.entry(widths.step.unwrap_or_else(|| narrow.to_owned())).or_default() += 1;
                }
            }
        }
    }
    let elapsed = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    let mut expected: BTreeSet<(String, String)> = BTreeSet::new();
    let events =
        log.iter().flat_map(|(key, events)| events.keys().map(move |sort_key| (key.clone(), sort_key.clone())));
    expected.extend(events);
    for own in clients.join_all().await {
        for (item, allowed) in own {
            assert_eq!(allowed.len(), 1, "the last scan has settled it");
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
    for (shard_key, key, sort_key) in &stored {
        assert_eq!(*shard_key, format!("{key}.1"), "{sort_key}");
    }
    let found: BTreeSet<(String, String)> =
        stored.iter().map(|(_, key, sort_key)| (key.clone(), sort_key.clone())).collect();
    assert_eq!(found.len(), stored.len(), "an item stands twice");
    let (lost, left) = (expected.difference(&found).next(), found.difference(&expected).next());
    assert_eq!((lost, left), (None, None));

    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!("{} kills within {:.0} s, at {} s", kills.len(), elapsed.as_secs_f64(), kills.join(", "));
    println!("what {} keys were at then: {steps:?}", keys.len());
    println!("shrinks that were begun {begun}, and ended {}, in {rounds} rounds", rounds as usize * keys.len());
    println!("items {}, all on shard 1, each once", stored.len());
    let (acknowledged, unknown, refused) =
        (count(&counts.acknowledged), count(&counts.unknown), count(&counts.refused));
    println!("writes acknowledged {acknowledged}, unknown {unknown}, refused {refused}");
    let (gets, scans, pages) = (count(&counts.gets), count(&counts.scans), count(&counts.pages));
    let (items, unanswered) = (count(&counts.scanned_items), count(&counts.unanswered_reads));
    println!(
        "reads checked: {gets} of one item, {scans} of all ({pages} pages, {items} items); {unanswered} requests to read unanswered"
    );
}
