//! The table's stream, decoded, while a key grows, shrinks and is drained under the writes of several clients: each acknowledged change comes
//! once, and nothing that the product does for itself comes at all.
//!
//! The engine's own stream records every write. Its records have the machine's time, so the recorder gives each one the virtual time
//! at which it was made. The consumer reads each stored key's records in order and on their own, late and repeatedly, as Lambda reads the
//! shards of a stream; or as from Kinesis, repeated and out of order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use embedded_dynamodb::{Engine, InProcess};
use local::{clients_over, create_tables, in_process_clients};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value as Json, json};
use sharding::internal::{
    Attributes, Clock, Deadline, Drained, Environment, Item, PartitionKey, TableConfig, TableEngine, Value,
    WriteErrorKind,
};
use sharding::stream::{
    Change, ChangeKind, ChangeTracker, Decoded, KeyWidths, Reading, StreamDecoder, StreamError, Tracked,
};
use system_tests::{TestClock, config, count, large_or, soon, sort_key};
use tokio::time::{Instant, sleep};

/// Clients, each with items of its own, and items that all of them write.
const CLIENTS: u64 = 3;
const ITEMS_OF_A_CLIENT: u64 = 8;
const SHARED_ITEMS: u64 = 3;
/// How long clients write.
const TRAFFIC: Duration = Duration::from_secs(80 * 60);
/// The longest that the consumer is behind: less than half of what a drain waits for requests.
const MOST_LAG: Duration = Duration::from_secs(400);

fn key() -> PartitionKey {
    PartitionKey::new("2014-07-09").expect("a key")
}

/// A record with when it was made.
#[derive(Debug, Clone)]
struct Made {
    stored_key: String,
    at: Duration,
    json: Json,
}

/// The engine's stream, with the time of the test.
#[derive(Debug)]
struct Stream {
    engine: Engine,
    clock: TestClock,
    iterator: Mutex<Json>,
    records: Mutex<Vec<Arc<Made>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// Turns the stream on.
    fn new(engine: Engine, clock: TestClock) -> Self {
        let view = json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"});
        let table = json!({"TableName": "items", "StreamSpecification": view});
        let arn = ask(&engine, "DynamoDB_20120810.UpdateTable", &table)["TableDescription"]["LatestStreamArn"].clone();
        let stream = ask(&engine, "DynamoDBStreams_20120810.DescribeStream", &json!({"StreamArn": arn}));
        let shard = &stream["StreamDescription"]["Shards"][0]["ShardId"];
        let begin = json!({"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"});
        let iterator = ask(&engine, "DynamoDBStreams_20120810.GetShardIterator", &begin)["ShardIterator"].clone();
        Self { engine, clock, iterator: Mutex::new(iterator), records: Mutex::default() }
    }

    /// Takes in what was recorded since: now.
    fn take_in(&self, by_time_to_live: bool) {
        let at = self.clock.now().wall;
        let mut iterator = lock(&self.iterator);
        let answer = ask(&self.engine, "DynamoDBStreams_20120810.GetRecords", &json!({"ShardIterator": *iterator}));
        *iterator = answer["NextShardIterator"].clone();
        for record in answer["Records"].as_array().expect("records") {
            let mut json = record.clone();
            json["dynamodb"]["ApproximateCreationDateTime"] = json!(at.as_secs());
            if by_time_to_live {
                json["userIdentity"] = json!({"type": "Service", "principalId": "dynamodb.amazonaws.com"});
            }
            let stored_key = json["dynamodb"]["Keys"]["partition_key"]["S"].as_str().expect("a key").to_owned();
            lock(&self.records).push(Arc::new(Made { stored_key, at, json }));
        }
    }

    fn records(&self) -> Vec<Arc<Made>> {
        lock(&self.records).clone()
    }

    /// Removes what has expired, as DynamoDB does.
    fn expire(&self) {
        let now = self.clock.now().wall.as_secs();
        for item in ask(&self.engine, "DynamoDB_20120810.Scan", &json!({"TableName": "items"}))["Items"]
            .as_array()
            .expect("items")
        {
            let ends = item["expires"]["N"].as_str().and_then(|text| text.parse::<u64>().ok());
            if ends.is_some_and(|ends| ends <= now) {
                let key = json!({"partition_key": item["partition_key"], "sort_key": item["sort_key"]});
                ask(&self.engine, "DynamoDB_20120810.DeleteItem", &json!({"TableName": "items", "Key": key}));
                self.take_in(true);
            }
        }
    }
}

fn ask(engine: &Engine, target: &str, body: &Json) -> Json {
    let answer = engine.respond("/", Some(target), body.to_string().as_bytes());
    let json = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(answer.status, 200, "{target}: {json}");
    json
}

/// An instance's connection: it records, and loses some of the responses.
#[derive(Debug, Clone)]
struct Connection {
    inner: InProcess,
    stream: Arc<Stream>,
    faults: Arc<Mutex<(StdRng, f64)>>,
}

impl HttpClient for Connection {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Connection {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let writes = target.ends_with(".PutItem") || target.ends_with(".DeleteItem");
        let this = self.clone();
        HttpConnectorFuture::new(async move {
            let delay = lock(&this.faults).0.random_range(1..30);
            sleep(Duration::from_millis(delay)).await;
            // Nothing comes between the two: the engine answers at once.
            let answer = this.inner.call(request).await;
            if writes {
                this.stream.take_in(false);
                let (rng, share) = &mut *lock(&this.faults);
                if rng.random_bool(*share) {
                    return Err(ConnectorError::io("the connection broke".into()));
                }
            }
            answer
        })
    }
}

/// What a client asked for, and what it knows of the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Put(u64),
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Acknowledged,
    Unknown,
}

/// Everything that clients asked for, by sort key, in order for those of one client.
type Log = BTreeMap<String, Vec<(Asked, Heard)>>;

/// A change that the consumer took, without what the product adds.
type Taken = BTreeMap<String, Vec<(String, ChangeKind, Option<u64>)>>;

struct Run {
    seed: u64,
    stream: Arc<Stream>,
    config: TableConfig,
    log: Arc<Mutex<Log>>,
}

impl Run {
    async fn new(seed: u64) -> Self {
        let engine = Engine::in_memory().expect("an engine");
        create_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &config()).await.expect("tables");
        let mut of_table = config();
        of_table.ttl_attribute = Some("expires".to_owned());
        of_table.let_expire = Duration::from_secs(300);
        of_table.drain.units_per_second = 20_000;
        let stream = Arc::new(Stream::new(engine, TestClock::default()));
        Self { seed, stream, config: of_table, log: Arc::default() }
    }

    /// An instance that loses this share of the responses to its writes.
    fn instance(&self, number: u64, lost: f64) -> TableEngine {
        let seed = self.seed * 100 + number;
        let faults = Arc::new(Mutex::new((StdRng::seed_from_u64(seed), lost)));
        let inner = InProcess::new(self.stream.engine.clone());
        let connection = Connection { inner, stream: Arc::clone(&self.stream), faults };
        let client = clients_over(SharedHttpClient::new(connection)).dynamodb;
        TableEngine::with_environment(
            &client,
            self.config.clone(),
            Environment::seeded(self.stream.clock.clone(), seed),
        )
    }

    fn decoder(&self) -> StreamDecoder {
        StreamDecoder::new(self.config.clone())
    }
}

/// Writes to the items of one client, one after another.
async fn write(table: TableEngine, log: Arc<Mutex<Log>>, clock: TestClock, client: u64, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed * 1_000 + client);
    let until = Instant::now() + TRAFFIC;
    let mut number = client * 1_000_000;
    while Instant::now() < until {
        number += 1;
        let own = rng.random_range(0..ITEMS_OF_A_CLIENT + SHARED_ITEMS);
        let is_fleeting = rng.random_bool(0.1);
        let text = match own.checked_sub(ITEMS_OF_A_CLIENT) {
            _ if is_fleeting => format!("fleeting-{number}"),
            Some(shared) => format!("shared-{shared}"),
            None => format!("client-{client}-{own}"),
        };
        let asked = if !is_fleeting && rng.random_bool(0.4) { Asked::Delete } else { Asked::Put(number) };
        let soon = || Deadline::now() + Duration::from_secs(10);
        let ended = match asked {
            Asked::Delete => table.delete(&key(), &sort_key(&text), soon()).await,
            Asked::Put(number) => {
                let mut attributes = Attributes::from([("value".to_owned(), Value::N(number.to_string()))]);
                if is_fleeting {
                    let ends = clock.now().wall.as_secs() + rng.random_range(60..1_800);
                    attributes.insert("expires".to_owned(), Value::N(ends.to_string()));
                }
                let item = Item { partition_key: key(), sort_key: sort_key(&text), attributes };
                if rng.random_bool(0.2) {
                    table.create(&item, None, soon()).await
                } else {
                    table.put(&item, soon()).await
                }
            }
        };
        let heard = match ended.map_err(|error| error.kind) {
            Ok(_) => Some(Heard::Acknowledged),
            Err(WriteErrorKind::Unknown(_)) => Some(Heard::Unknown),
            // Nothing was changed.
            Err(WriteErrorKind::Exists | WriteErrorKind::Contended | WriteErrorKind::Capacity(_)) => None,
            Err(error) => panic!("{text}: {error}"),
        };
        if let Some(heard) = heard {
            lock(&log).entry(text).or_default().push((asked, heard));
        }
        sleep(Duration::from_secs(rng.random_range(5..60))).await;
    }
}

/// Grows, settles and shrinks the key, with drains that are cut off by the next change.
async fn rescale(tables: [TableEngine; 2], until: Instant, seed: u64) -> u32 {
    let mut rng = StdRng::seed_from_u64(seed ^ 0xD7A1);
    let mut drains = 0;
    while Instant::now() < until {
        let table = &tables[rng.random_range(0..2usize)];
        let now = table.shards(&key(), soon()).await.expect("metadata").map_or(1, |known| known.number_of_shards.get());
        // What is refused is refused: another change is under way.
        match rng.random_range(0..4) {
            0 if now > 1 => drop(table.begin_shrink(&key(), count(rng.random_range(1..now)), soon()).await),
            1 | 2 => drop(table.begin_settle(&key(), soon()).await),
            _ => drop(table.set_shards(&key(), count((now + rng.random_range(1..5)).min(12)), soon()).await),
        }
        // Most drains end; some are cut off by the next change.
        let rest = if rng.random_bool(0.7) { 45 * 60 } else { rng.random_range(60..1_500) };
        let next = Instant::now() + Duration::from_secs(rest);
        while Instant::now() < next {
            let drained =
                tables[rng.random_range(0..2usize)].drain(&key(), Deadline::now() + Duration::from_secs(4)).await;
            match drained.expect("the tables answer") {
                Drained::Done { .. } => {
                    drains += 1;
                    break;
                }
                Drained::Nothing => break,
                Drained::Waiting { .. } | Drained::Working { .. } => sleep(Duration::from_secs(30)).await,
            }
        }
        sleep(Duration::from_secs(rng.random_range(30..400))).await;
    }
    drains
}

/// Reads the stream as Lambda does, and takes each change once.
struct Consumer {
    table: TableEngine,
    decoder: StreamDecoder,
    stream: Arc<Stream>,
    widths: Option<KeyWidths>,
    tracker: ChangeTracker,
    rng: StdRng,
    is_kinesis: bool,
    /// How many records of each stored key were delivered.
    delivered: HashMap<String, usize>,
    /// What was decided of each record, by its number in the stream.
    decided: BTreeMap<String, Decoded>,
    taken: Taken,
    repeated: u64,
    late: u64,
    ambiguous: u64,
}

impl Consumer {
    fn new(run: &Run) -> Self {
        Self {
            table: run.instance(90, 0.0),
            decoder: run.decoder(),
            stream: Arc::clone(&run.stream),
            widths: None,
            tracker: ChangeTracker::new(NonZeroUsize::new(100_000).expect("it is not 0")),
            rng: StdRng::seed_from_u64(run.seed ^ 0xC0),
            is_kinesis: run.seed % 2 == 1,
            delivered: HashMap::new(),
            decided: BTreeMap::new(),
            taken: Taken::new(),
            repeated: 0,
            late: 0,
            ambiguous: 0,
        }
    }

    async fn consume(mut self, ended: Arc<AtomicBool>) -> Self {
        loop {
            let is_last = ended.load(Ordering::Acquire);
            self.deliver_some(is_last).await;
            if is_last {
                return self;
            }
            sleep(Duration::from_secs(self.rng.random_range(5..60))).await;
        }
    }

    /// Some records of some stored keys; all of those that are too old to wait, and of the last delivery all.
    async fn deliver_some(&mut self, all: bool) {
        let now = self.stream.clock.now().wall;
        let mut of_keys: BTreeMap<String, Vec<Arc<Made>>> = BTreeMap::new();
        for made in self.stream.records() {
            of_keys.entry(made.stored_key.clone()).or_default().push(made);
        }
        let mut order: Vec<String> = of_keys.keys().cloned().collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.rng.random_range(0..=at));
        }
        for stored_key in order {
            let records = &of_keys[&stored_key];
            let done = self.delivered.get(&stored_key).copied().unwrap_or(0);
            let must = records.iter().take_while(|made| all || made.at + MOST_LAG < now).count();
            let may = if self.rng.random_bool(0.5) { self.rng.random_range(done..=records.len()) } else { done };
            let upto = must.max(may);
            // A batch that failed comes again, from the middle.
            let recent = records[..done].iter().rev().take_while(|made| made.at + MOST_LAG > now).count();
            let again = if self.rng.random_bool(0.3) { self.rng.random_range(0..6).min(recent) } else { 0 };
            let mut batch: Vec<Arc<Made>> = records[done - again..upto].to_vec();
            if self.is_kinesis {
                for at in (1..batch.len()).rev() {
                    batch.swap(at, self.rng.random_range(0..=at));
                }
            }
            for made in &batch {
                self.take(made).await;
            }
            self.delivered.insert(stored_key, upto);
        }
    }

    async fn take(&mut self, made: &Made) {
        let record = if self.is_kinesis { as_kinesis(made) } else { made.json.clone() };
        let decoded = loop {
            let Reading::Item(record) = self.decoder.read(&record).unwrap_or_else(|error| panic!("{error}: {record}"))
            else {
                return;
            };
            let widths = match self.widths.clone() {
                Some(widths) => widths,
                None => {
                    let read_at = self.stream.clock.now().wall.as_secs();
                    let metadata = self.table.shards(&key(), soon()).await.expect("metadata");
                    KeyWidths::of(metadata.as_ref(), self.table.config(), read_at)
                }
            };
            match self.decoder.decode(record, self.widths.insert(widths)) {
                Ok(decoded) => break decoded,
                Err(StreamError::WidthsTooOld { .. }) => self.widths = None,
                Err(error) => panic!("{error}: {made:?}"),
            }
        };
        self.decided.insert(identity(made), decoded.clone());
        let change = match decoded {
            Decoded::Internal(_) => return,
            Decoded::Change(change) => change,
            Decoded::Ambiguous(change, _) => {
                self.ambiguous += 1;
                let stands = self.table.get(&key(), &change.sort_key, true, soon()).await.expect("an answer");
                if stands.is_some() == change.new.is_none() {
                    return;
                }
                change
            }
        };
        match self.tracker.see(&change) {
            Tracked::Duplicate => self.repeated += 1,
            tracked @ (Tracked::InOrder | Tracked::Late) => {
                self.late += u64::from(tracked == Tracked::Late);
                note(&mut self.taken, &change);
            }
        }
    }
}

fn note(taken: &mut Taken, change: &Change) {
    let number = |item: &Item| match item.attributes.get("value") {
        Some(Value::N(text)) => text.parse().ok(),
        other => panic!("{other:?}"),
    };
    let value = change.new.as_ref().and_then(number);
    let one = (change.position.to_string(), change.kind, value);
    taken.entry(change.sort_key.to_string()).or_default().push(one);
}

fn identity(made: &Made) -> String {
    made.json["dynamodb"]["SequenceNumber"].as_str().expect("a number").to_owned()
}

/// As a Kinesis data stream carries it; without the number by which DynamoDB Streams orders.
fn as_kinesis(made: &Made) -> Json {
    let mut inner = made.json.clone();
    let dynamodb = inner["dynamodb"].as_object_mut().expect("an object");
    dynamodb.remove("SequenceNumber");
    dynamodb.remove("StreamViewType");
    dynamodb.insert("ApproximateCreationDateTime".into(), json!(u64::try_from(made.at.as_micros()).expect("it fits")));
    dynamodb.insert("ApproximateCreationDateTimePrecision".into(), json!("MICROSECOND"));
    inner["tableName"] = json!("items");
    let data = aws_smithy_types::base64::encode(inner.to_string());
    json!({"eventSource": "aws:kinesis", "kinesis": {"data": data, "sequenceNumber": identity(made)}})
}

/// What is wrong with the changes that were taken, by the log of what clients asked for.
fn compare(log: &Log, taken: &Taken) -> Vec<String> {
    let mut wrong = Vec::new();
    for text in log.keys().chain(taken.keys()).collect::<BTreeSet<_>>() {
        let asked = log.get(text).map_or(&[][..], Vec::as_slice);
        let mut changes = taken.get(text).cloned().unwrap_or_default();
        changes.sort_by(|one, other| one.0.cmp(&other.0));
        let mut puts = BTreeMap::<u64, u32>::new();
        for (_, _, value) in &changes {
            value.iter().for_each(|value| *puts.entry(*value).or_default() += 1);
        }
        wrong.extend(
            puts.iter().filter(|(_, times)| **times > 1).map(|(put, n)| format!("{text}: {put} came {n} times")),
        );
        for (one, heard) in asked {
            if let (Asked::Put(put), Heard::Acknowledged) = (one, heard)
                && !puts.contains_key(put)
            {
                wrong.push(format!("{text}: {put} is missing"));
            }
        }
        for put in puts.keys() {
            if !asked.iter().any(|(one, _)| *one == Asked::Put(*put)) {
                wrong.push(format!("{text}: {put} was never asked for"));
            }
        }
        let ends = changes.iter().filter(|(_, kind, _)| *kind != ChangeKind::Put).count();
        if text.starts_with("fleeting") {
            // Each is put once, and expires: nobody deletes it.
            let is_whole = puts.len() == ends && changes.last().is_none_or(|(_, kind, _)| *kind == ChangeKind::Expiry);
            if !is_whole {
                wrong.push(format!("{text}: {changes:?}"));
            }
        } else if text.starts_with("shared") {
            let deletions = asked.iter().filter(|(one, _)| *one == Asked::Delete).count();
            if ends > deletions {
                wrong.push(format!("{text}: {ends} deletions of {deletions}"));
            }
        } else if let Some(problem) = out_of_order(asked, &changes) {
            wrong.push(format!("{text}: {problem}: {asked:?} and {changes:?}"));
        }
    }
    wrong
}

/// One client has written the item: its changes come in the order in which it asked for them. What it did not hear of may be missing, and
/// a deletion of what was not there.
fn out_of_order(asked: &[(Asked, Heard)], changes: &[(String, ChangeKind, Option<u64>)]) -> Option<String> {
    let mut steps = Vec::new();
    // Whether the item exists before each step; `None` where it is not known.
    let mut exists = Some(false);
    for (one, heard) in asked {
        let is_needed = *heard == Heard::Acknowledged && (matches!(one, Asked::Put(_)) || exists == Some(true));
        steps.push((*one, is_needed));
        exists = if *heard == Heard::Unknown { None } else { Some(matches!(one, Asked::Put(_))) };
    }
    let mut steps = steps.into_iter();
    for (_, kind, value) in changes {
        let this = match (kind, value) {
            (ChangeKind::Put, Some(put)) => Asked::Put(*put),
            (ChangeKind::Put, None) => return Some("a put without a value".into()),
            (ChangeKind::Delete | ChangeKind::Expiry, _) => Asked::Delete,
        };
        loop {
            match steps.next() {
                Some((one, _)) if one == this => break,
                Some((one, true)) => return Some(format!("{one:?} is missing before {this:?}")),
                Some((_, false)) => {}
                None => return Some(format!("nobody asked for {this:?}")),
            }
        }
    }
    steps.find(|(_, is_needed)| *is_needed).map(|(one, _)| format!("{one:?} is missing at the end"))
}

#[tokio::test(start_paused = true)]
async fn each_change_of_a_user_comes_once_and_no_move_of_a_drain() {
    let (mut drains, mut moves, mut repeated, mut late, mut ambiguous) = (0, 0, 0, 0, 0);
    let (mut found_without_widths, mut found_without_a_tracker, mut tombstones) = (0u64, 0u64, 0);
    let seeds = large_or(100, 20);
    for seed in 0..seeds {
        let run = Run::new(seed).await;
        let ended = Arc::new(AtomicBool::new(false));
        let consumer = tokio::spawn(Consumer::new(&run).consume(Arc::clone(&ended)));
        let stream = Arc::clone(&run.stream);
        let sweeper = tokio::spawn(async move {
            loop {
                sleep(Duration::from_secs(240)).await;
                stream.expire();
            }
        });
        let until = Instant::now() + TRAFFIC;
        let scaler = tokio::spawn(rescale([run.instance(50, 0.05), run.instance(51, 0.0)], until, seed));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let table = run.instance(client, if client == 0 { 0.1 } else { 0.0 });
                tokio::spawn(write(table, Arc::clone(&run.log), run.stream.clock.clone(), client, seed))
            })
            .collect();
        for client in clients {
            client.await.expect("a client");
        }
        drains += scaler.await.expect("the scaler");
        // Everything that expires has expired.
        sleep(Duration::from_secs(2_400)).await;
        ended.store(true, Ordering::Release);
        let consumer = consumer.await.expect("the consumer");
        sweeper.abort();

        let log = lock(&run.log).clone();
        let wrong = compare(&log, &consumer.taken);
        if let Some(first) = wrong.first() {
            let text = first.split(':').next().unwrap_or_default();
            let history = table_of(&run, text, &consumer);
            let metadata = consumer.table.shards(&key(), soon()).await;
            panic!("seed {seed}: {} wrong, first: {first}\n{history}\n{metadata:?}", wrong.len());
        }
        moves += consumer.decided.values().filter(|decoded| matches!(decoded, Decoded::Internal(_))).count();
        tombstones += consumer
            .decided
            .values()
            .filter(|one| matches!(one, Decoded::Change(change) if change.kind == ChangeKind::Delete && change.old.is_none()))
            .count();
        (repeated, late) = (repeated + consumer.repeated, late + consumer.late);
        ambiguous += consumer.ambiguous;

        is_never_wrong_behind(&run, &consumer).await;
        found_without_widths += u64::from(!compare(&log, &without_widths(&run)).is_empty());
        found_without_a_tracker += u64::from(!compare(&log, &twice(&run, &consumer)).is_empty());
    }
    // What the test must have met, and what it must notice.
    let met = format!(
        "{drains} drains, {moves} moves, {tombstones} tombstones, {repeated} repeated, {late} late, {ambiguous} ambiguous, \
         {found_without_widths} and {found_without_a_tracker} weakened seeds found"
    );
    assert!(drains > 20 && moves > 200 && tombstones > 50 && repeated > 500 && late > 0, "{met}");
    assert!(found_without_widths > seeds * 3 / 4 && found_without_a_tracker == seeds, "{met}");
    println!("{met}");
}

/// Every record of an item, and what was decided of it.
fn table_of(run: &Run, text: &str, consumer: &Consumer) -> String {
    let mut lines = String::new();
    for made in run.stream.records() {
        let dynamodb = &made.json["dynamodb"];
        if dynamodb["Keys"]["sort_key"]["S"] != text {
            continue;
        }
        let decided = match consumer.decided.get(&identity(&made)) {
            Some(Decoded::Change(change)) => change.kind.as_str().to_owned(),
            other => format!("{other:?}"),
        };
        let image = |name: &str| {
            let image = &dynamodb[name];
            format!("{} {} {}", image["_version"]["N"], image["_deleted"]["BOOL"], image["value"]["N"])
        };
        let (old, new) = (image("OldImage"), image("NewImage"));
        let (at, stored, event) = (made.at.as_secs(), &made.stored_key, &made.json["eventName"]);
        lines += &format!("{at} {stored} {event} old {old}, new {new}: {decided}\n");
    }
    lines
}

/// A consumer that is hours behind decides as one that is not, or says that it cannot.
async fn is_never_wrong_behind(run: &Run, consumer: &Consumer) {
    let (decoder, table) = (run.decoder(), run.instance(91, 0.0));
    let metadata = table.shards(&key(), soon()).await.expect("metadata");
    let widths = KeyWidths::of(metadata.as_ref(), table.config(), run.stream.clock.now().wall.as_secs());
    for made in run.stream.records() {
        let record = if consumer.is_kinesis { as_kinesis(&made) } else { made.json.clone() };
        let Ok(Reading::Item(record)) = decoder.read(&record) else { continue };
        let now = decoder.decode(record, &widths).expect("widths of now");
        let then = &consumer.decided[&identity(&made)];
        let same = match (&now, then) {
            (Decoded::Ambiguous(..), _) => true,
            (Decoded::Internal(now), Decoded::Internal(then)) => now == then,
            (Decoded::Change(now), Decoded::Change(then)) => now.kind == then.kind && now.version == then.version,
            (Decoded::Internal(_) | Decoded::Change(_), _) => false,
        };
        assert!(same, "{now:?} was {then:?}: {made:?}");
    }
}

/// What a consumer takes that believes that the key never grew: the moves, too.
fn without_widths(run: &Run) -> Taken {
    let (decoder, mut taken) = (run.decoder(), Taken::new());
    let never = KeyWidths::never_grown(&run.config, u64::MAX);
    for made in run.stream.records() {
        let Ok(Reading::Item(record)) = decoder.read(&made.json) else { continue };
        if let Ok(Decoded::Change(change)) = decoder.decode(record, &never) {
            note(&mut taken, &change);
        }
    }
    taken
}

/// What a consumer takes that does not notice that a batch comes again.
fn twice(run: &Run, consumer: &Consumer) -> Taken {
    let mut taken = Taken::new();
    for made in run.stream.records() {
        if let Some(Decoded::Change(change)) = consumer.decided.get(&identity(&made)) {
            note(&mut taken, change);
            note(&mut taken, change);
        }
    }
    taken
}
