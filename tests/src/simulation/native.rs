//! Clients of endpoints. They send DynamoDB's own requests with conditions, updates and
//! `ReturnValues`, and every answer is checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::endpoint::Service;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::endpoint::ENDPOINTS;
use super::failure::Finding;
use super::key;
use super::linearizability::Kind;
use super::native_write::Write;
use super::reading::Scanned;
use super::registers::{Outcome, Sent};
use super::world::{Actor, World};
use super::writing::REGISTERS;

/// The first value of these clients. It is above every value that another client stores.
const FIRST_VALUE: u64 = 1 << 52;
/// The number of registers that only these clients use, and of sums, of each key.
const EACH: u32 = 5;
/// A query or a scan has so many small pages, and at most so many in all.
const SMALL_PAGES: usize = 10;
const MOST_PAGES: usize = 100;

/// A client of an endpoint, and the key of its request.
#[derive(Clone)]
pub(super) struct Client {
    service: Service,
    pub(super) world: Arc<World>,
    pub(super) which: usize,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Answer {
    Done(Value),
    /// The condition does not hold.
    Refused(Value),
    /// Nothing was stored.
    Failed,
    Unknown,
}

/// Runs several clients of one endpoint.
pub(super) async fn ask(index: usize, actor: Actor, service: Service, seed: u64) {
    let (mut rng, world) = (StdRng::seed_from_u64(seed), &actor.world);
    let (mut under_way, mut number) = (JoinSet::new(), 0u64);
    while actor.goes_on() {
        sleep(world.pause(&mut rng, 10..100)).await;
        number += 1;
        let (which, value) =
            (world.draw_key(&mut rng), FIRST_VALUE + number * ENDPOINTS as u64 + index as u64);
        let client = Client { service: service.clone(), world: Arc::clone(world), which };
        let seed = rng.random();
        under_way.spawn(async move { client.one_request(value, seed).await });
        while under_way.try_join_next().is_some() {}
    }
    actor.end(under_way).await;
}

/// The attributes of an item, or its key.
pub(super) fn stored(which: usize, sort_key: &str, value: Option<u64>) -> Value {
    let mut item = json!({
        "partition_key": { "S": key(which).as_str() },
        "sort_key": { "S": sort_key },
    });
    if let Some(value) = value {
        item["value"] = json!({ "N": value.to_string() });
    }
    item
}

/// The value of an item in a response; `None` if there is no item.
pub(super) fn value_in(attributes: &Value) -> Option<u64> {
    attributes["value"]["N"].as_str()?.parse().ok()
}

impl Client {
    async fn one_request(self, value: u64, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        match rng.random_range(0..100) {
            0..25 => self.put_plain(value).await,
            25..65 => {
                let name = self.register(&mut rng);
                let write = Write::draw(&mut rng, name, value);
                write.send(&self, &mut rng).await;
            }
            65..72 => self.add(&mut rng).await,
            72..76 => self.write_batch(value, &mut rng).await,
            76..82 => self.remove_nothing(&mut rng).await,
            82..92 => self.get(&mut rng).await,
            92..99 => self.page_through("Query", &mut rng).await,
            _ => self.page_through("Scan", &mut rng).await,
        }
    }

    fn register(&self, rng: &mut StdRng) -> String {
        match rng.random_range(0..4) {
            0 => self.world.register("register", rng.random_range(0..REGISTERS)),
            _ => format!("~native-{}", rng.random_range(0..EACH)),
        }
    }

    /// Sends a request about the simulated table.
    pub(super) async fn request(&self, operation: &str, mut body: Value) -> Answer {
        if !operation.contains("Batch") && !operation.contains("Transact") {
            body["TableName"] = json!("items");
        }
        let target = http::HeaderValue::try_from(format!("DynamoDB_20120810.{operation}"));
        let name = http::HeaderName::from_static("x-amz-target");
        let headers = http::HeaderMap::from_iter([(name, target.expect("a header"))]);
        let reply = self.service.respond(&headers, body.to_string().into()).await;
        let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        if reply.body.windows(5).any(|text| text == b"\"_sh:") {
            self.odd(&format!("{operation} shows the product's attributes: {answer}"));
        }
        if reply.status.is_success() {
            return Answer::Done(answer);
        }
        let kind = answer["__type"].as_str().unwrap_or_default();
        match kind.rsplit('#').next().unwrap_or_default() {
            _ if reply.status.is_server_error() => Answer::Unknown,
            "ConditionalCheckFailedException" => Answer::Refused(answer),
            "ProvisionedThroughputExceededException"
            | "ThrottlingException"
            | "TransactionConflictException" => Answer::Failed,
            _ => {
                self.odd(&format!("{operation} fails for good: {answer}, of {body}"));
                Answer::Failed
            }
        }
    }

    /// Records an answer that the simulation never causes.
    pub(super) fn odd(&self, what: &str) {
        self.world.check(self.which, Err(Finding::new(format!("I6: {what}"))));
    }

    /// A register's write ends.
    pub(super) fn ended(&self, sent: &Sent, outcome: Outcome) {
        self.world.registers(self.which).ended(sent, outcome);
        self.world.count(|totals| match outcome {
            Outcome::Done => totals.native_applied += 1,
            Outcome::Exists | Outcome::Differs => totals.native_refused += 1,
            Outcome::Unknown => totals.native_unknown += 1,
            Outcome::Refused => {}
        });
    }

    /// As [`ended`](Self::ended), with an answer that shows more than the request says.
    pub(super) fn showed(&self, sent: &Sent, kind: Kind) {
        self.world.registers(self.which).showed(sent, kind);
        let is_applied = matches!(kind, Kind::Swap(..));
        self.world.count(|totals| match is_applied {
            true => totals.native_applied += 1,
            false => totals.native_refused += 1,
        });
    }

    /// Stores an item that nobody else stores.
    async fn put_plain(&self, value: u64) {
        let (world, which) = (&self.world, self.which);
        let sort_key = format!("{:06}-{value}", world.age().as_millis());
        world.history(which).sent(&sort_key, value);
        let put = json!({ "Item": stored(which, &sort_key, Some(value)) });
        match self.request("PutItem", put).await {
            Answer::Done(_) => {
                world.history(which).acknowledged(&sort_key);
                world.count(|totals| totals.acknowledged += 1);
            }
            Answer::Failed | Answer::Unknown => {}
            Answer::Refused(_) => self.odd("a put without a condition is refused by it"),
        }
    }

    /// Adds one to a sum, and gets the new one.
    async fn add(&self, rng: &mut StdRng) {
        let name = format!("~sum-{}", rng.random_range(0..EACH));
        let sent = self.world.registers(self.which).sent(&name, Kind::Add(1), None);
        let update = json!({
            "Key": stored(self.which, &name, None),
            "UpdateExpression": "ADD #v :one",
            "ExpressionAttributeNames": { "#v": "value" },
            "ExpressionAttributeValues": { ":one": { "N": "1" } },
            "ReturnValues": "UPDATED_NEW",
            "ReturnConsumedCapacity": "TOTAL",
        });
        match self.request("UpdateItem", update).await {
            Answer::Done(answer) => match value_in(&answer["Attributes"]) {
                Some(sum @ 1..) => {
                    let before = Some(sum - 1).filter(|before| *before > 0);
                    self.showed(&sent, Kind::Swap(before, Some(sum)));
                }
                _ => self.odd(&format!("an addition returns {answer}")),
            },
            Answer::Failed => self.ended(&sent, Outcome::Refused),
            Answer::Unknown => self.ended(&sent, Outcome::Unknown),
            Answer::Refused(_) => self.odd("an addition without a condition is refused by it"),
        }
    }

    /// An update with neither `SET` nor `ADD`: it creates nothing, and changes nothing here.
    async fn remove_nothing(&self, rng: &mut StdRng) {
        let (name, tick) = (self.register(rng), self.world.registers(self.which).now());
        let update = json!({
            "Key": stored(self.which, &name, None),
            "UpdateExpression": "REMOVE another",
            "ReturnValues": "ALL_NEW",
            "ReturnConsumedCapacity": "TOTAL",
        });
        if let Answer::Done(answer) = self.request("UpdateItem", update).await {
            let seen = value_in(&answer["Attributes"]);
            self.world.registers(self.which).read(&name, seen, tick);
        }
    }

    /// Stores one register and deletes another.
    async fn write_batch(&self, value: u64, rng: &mut StdRng) {
        let (put, deleted) = (self.register(rng), self.register(rng));
        if put == deleted {
            return;
        }
        let writes = json!([
            { "PutRequest": { "Item": stored(self.which, &put, Some(value)) } },
            { "DeleteRequest": { "Key": stored(self.which, &deleted, None) } },
        ]);
        let sent = {
            let mut registers = self.world.registers(self.which);
            [(&put, Some(value)), (&deleted, None)]
                .map(|(name, left)| (name, registers.sent(name, Kind::Set(left), None)))
        };
        let answer =
            self.request("BatchWriteItem", json!({ "RequestItems": { "items": writes } })).await;
        for (name, sent) in sent {
            match &answer {
                Answer::Done(answer) => {
                    let left = answer["UnprocessedItems"]["items"].to_string();
                    let is_left = left.contains(&json!(name).to_string());
                    self.ended(&sent, if is_left { Outcome::Refused } else { Outcome::Done });
                }
                Answer::Failed => self.ended(&sent, Outcome::Refused),
                Answer::Unknown => self.unknown_plain(&sent),
                Answer::Refused(_) => self.odd("a batch is refused by a condition"),
            }
        }
    }

    /// The outcome of a write without a condition is unknown. The endpoint may have sent it several
    /// times.
    pub(super) fn unknown_plain(&self, sent: &Sent) {
        self.ended(sent, Outcome::Unknown);
        self.world.registers(self.which).several_attempts(sent);
    }

    /// Reads some registers, with one of three operations.
    async fn get(&self, rng: &mut StdRng) {
        let mut names = vec![self.register(rng), format!("~sum-{}", rng.random_range(0..EACH))];
        names.dedup();
        let keys: Vec<Value> = names.iter().map(|name| stored(self.which, name, None)).collect();
        let tick = self.world.registers(self.which).now();
        let found: Vec<Option<Value>> = match rng.random_range(0..3) {
            0 => {
                names.truncate(1);
                let get = json!({ "Key": keys[0], "ConsistentRead": true });
                let Answer::Done(answer) = self.request("GetItem", get).await else { return };
                vec![Some(answer["Item"].clone())]
            }
            1 => {
                let gets = json!({ "items": { "Keys": keys, "ConsistentRead": true } });
                let answer = self.request("BatchGetItem", json!({ "RequestItems": gets })).await;
                let Answer::Done(answer) = answer else { return };
                let left = answer["UnprocessedKeys"]["items"].to_string();
                let items = answer["Responses"]["items"].as_array().cloned().unwrap_or_default();
                let found = |name: &String| {
                    let is_left = left.contains(&json!(name).to_string());
                    let item = items.iter().find(|item| item["sort_key"]["S"] == name.as_str());
                    (!is_left).then(|| item.cloned().unwrap_or_default())
                };
                names.iter().map(found).collect()
            }
            _ => {
                let get = |key: &Value| json!({ "Get": { "TableName": "items", "Key": key } });
                let gets: Vec<Value> = keys.iter().map(get).collect();
                let answer =
                    self.request("TransactGetItems", json!({ "TransactItems": gets })).await;
                let Answer::Done(answer) = answer else { return };
                (0..names.len()).map(|at| Some(answer["Responses"][at]["Item"].clone())).collect()
            }
        };
        for (name, item) in names.iter().zip(found) {
            if let Some(item) = item {
                self.world.registers(self.which).read(name, value_in(&item), tick);
            }
        }
        self.world.count(|totals| totals.native_reads += 1);
    }

    /// Reads a whole key by pages, or the whole table.
    async fn page_through(&self, operation: &str, rng: &mut StdRng) {
        let is_query = operation == "Query";
        // A scan shows each item once unless items are moved.
        if !is_query && self.world.plan.shrinking {
            return;
        }
        let limit = [7, 60, 1_000][rng.random_range(0..3)];
        let mut body = json!({ "ConsistentRead": true, "Limit": limit });
        let is_descending = is_query && rng.random();
        let is_filtered = is_query && rng.random_range(0..3) == 0;
        let is_projected = rng.random_range(0..3) == 0;
        if is_projected {
            body["ProjectionExpression"] = json!("#v, sort_key, partition_key");
        }
        if is_filtered || is_projected {
            body["ExpressionAttributeNames"] = json!({ "#v": "value" });
        }
        if is_query {
            body["ScanIndexForward"] = json!(!is_descending);
            body["KeyConditionExpression"] = json!("partition_key = :key");
            body["ExpressionAttributeValues"] =
                json!({ ":key": { "S": key(self.which).as_str() } });
            if is_filtered {
                // It hides what clients of the crate have stored.
                body["FilterExpression"] = json!("#v >= :first");
                body["ExpressionAttributeValues"][":first"] =
                    json!({ "N": FIRST_VALUE.to_string() });
            }
        }
        let (began, mut seen) = (Instant::now(), BTreeMap::<usize, Vec<(String, u64)>>::new());
        let tick = self.world.registers(self.which).now();
        for number in 0..MOST_PAGES {
            if number == SMALL_PAGES {
                body["Limit"] = json!(1_000);
            }
            let Answer::Done(answer) = self.request(operation, body.clone()).await else { return };
            for item in answer["Items"].as_array().into_iter().flatten() {
                let of = (0..super::KEYS)
                    .find(|which| item["partition_key"]["S"] == key(*which).as_str());
                let Some(of) = of else {
                    self.odd(&format!("{operation} shows an item of no key: {item}"));
                    return;
                };
                let sort_key = item["sort_key"]["S"].as_str().unwrap_or_default().to_owned();
                seen.entry(of).or_default().push((sort_key, value_in(item).unwrap_or(u64::MAX)));
            }
            body["ExclusiveStartKey"] = answer["LastEvaluatedKey"].clone();
            if answer["LastEvaluatedKey"].is_null() {
                let scanned = Scanned {
                    descending: is_descending,
                    least: if is_filtered { FIRST_VALUE } else { 0 },
                    shows_all: is_query && !is_filtered,
                    ..Scanned::all(seen.remove(&self.which).unwrap_or_default(), began, tick)
                };
                return self.saw(scanned, is_query);
            }
        }
        self.odd(&format!("{operation} has more than {MOST_PAGES} pages"));
    }

    fn saw(&self, mut scanned: Scanned, is_query: bool) {
        if !is_query {
            scanned.seen.sort_unstable();
            // A write that arrives late at an old place, which the scan has passed, hides the item
            // there.
            scanned.began = self.world.began;
        }
        let during = if is_query { "a query of an endpoint" } else { "a scan of an endpoint" };
        let checked = scanned.check(&self.world, self.which);
        self.world.check(self.which, checked.map_err(|finding| finding.during(during)));
        self.world.count(|totals| totals.native_reads += 1);
    }
}
