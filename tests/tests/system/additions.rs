//! Fifty clients add to one item and repeat their requests, while their processes are killed and
//! the key grows. Each acknowledged addition is in the sum once, and none is in it twice.
//!
//! The processes run this program: local editions that use the DynamoDB port of another edition.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use local::ServeOptions;
use serde_json::{Value, json};
use system_tests::{TestEdition, config, count, large_or, soon};
use tokio::time::sleep;

use crate::child::{self, Running};

const THIS: &str = "additions::the_sum_is_what_was_acknowledged_and_part_of_the_unknown";
const ITEM: &str = "/item?partition_key=hot&sort_key=counter";
const ADD: &str = "application/vnd.dynamodb-write-sharding.add+json";
const PROCESSES: usize = 2;
const CLIENTS: u64 = 50;
/// The number of times that a client sends one addition until it knows the outcome.
const REQUESTS: u32 = 40;

/// The addresses of the processes, and the outcomes for the clients.
#[derive(Default)]
struct Outcomes {
    addresses: Mutex<[String; PROCESSES]>,
    acknowledged: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
    repeated: AtomicU64,
    has_ended: AtomicBool,
}

impl Outcomes {
    fn address(&self, of: usize) -> String {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)[of % PROCESSES].clone()
    }

    fn set_address(&self, of: usize, address: &str) {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)[of] = address.to_owned();
    }

    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds one, `additions` times. Each request is repeated until its outcome is known, and every
/// third once more.
async fn add(client: u64, additions: u64, outcomes: Arc<Outcomes>) {
    let http = reqwest::Client::new();
    for addition in 0..additions {
        let (mut is_unknown, mut is_acknowledged, mut again) = (false, false, addition % 3 == 0);
        // One client in five gives up at once.
        let requests = if client.is_multiple_of(5) { 1 } else { REQUESTS };
        for request in 0..requests {
            let address = outcomes.address((client + addition) as usize + request as usize);
            let sent = http
                .patch(format!("{address}{ITEM}"))
                .header("content-type", ADD)
                .header("idempotency-key", format!("{client}-{addition}"))
                .body(r#"{"add":{"sum":1}}"#)
                .timeout(Duration::from_secs(12))
                .send();
            if request > 0 {
                Outcomes::count(&outcomes.repeated);
            }
            let (status, body) = match sent.await {
                Ok(response) => {
                    (response.status().as_u16(), response.json::<Value>().await.unwrap_or_default())
                }
                Err(_) => (0, Value::Null),
            };
            match (status, body["code"].as_str()) {
                (200, _) => {
                    is_acknowledged = true;
                    if !std::mem::take(&mut again) {
                        break;
                    }
                }
                (503, Some("no_capacity" | "contended")) => {}
                // The process was killed, or the outcome is unknown.
                (0, _) | (503, Some("outcome_unknown")) => is_unknown = true,
                other => panic!("{other:?}: {body}"),
            }
            sleep(Duration::from_millis(50 + 13 * (client % 7))).await;
        }
        let ended = match (is_acknowledged, is_unknown) {
            (true, _) => &outcomes.acknowledged,
            (false, true) => &outcomes.unknown,
            (false, false) => &outcomes.refused,
        };
        Outcomes::count(ended);
    }
}

/// Kills the processes in turn, and replaces each by a new one.
async fn kill(server: String, outcomes: Arc<Outcomes>, mut processes: Vec<Running>) -> u64 {
    let mut kills = 0;
    while !outcomes.has_ended.load(Ordering::Relaxed) {
        let which = kills as usize % PROCESSES;
        sleep(Duration::from_millis(700)).await;
        let killed = &mut processes[which].process;
        killed.start_kill().expect("it is killed");
        assert_eq!(killed.wait().await.expect("its status").signal(), Some(9));
        processes[which] = child::start(THIS, &server).await;
        outcomes.set_address(which, &processes[which].api);
        kills += 1;
    }
    kills
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sum_is_what_was_acknowledged_and_part_of_the_unknown() {
    if child::is_served().await {
        return;
    }
    let additions = large_or(20, 4);
    let database = TestEdition::start(ServeOptions::default(), config()).await;
    let body = json!({"attributes": {"sum": 0}}).to_string().into_bytes();
    let stored =
        database.send("PUT", ITEM, &[("content-type", "application/json")], Some(body)).await;
    assert_eq!(stored.status, 200);
    let (server, outcomes) = (database.dynamodb_url(), Arc::new(Outcomes::default()));
    let mut processes = Vec::new();
    for which in 0..PROCESSES {
        processes.push(child::start(THIS, &server).await);
        outcomes.set_address(which, &processes[which].api);
    }
    let killer = tokio::spawn(kill(server, Arc::clone(&outcomes), processes));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| tokio::spawn(add(client, additions, Arc::clone(&outcomes))))
        .collect();
    let key = sharding::PartitionKey::new("hot").expect("a key");
    let mut width = 1;
    while clients.iter().any(|client| !client.is_finished()) {
        sleep(Duration::from_millis(1_500)).await;
        width += 1;
        database.table().set_shards(&key, count(width), soon()).await.expect("scaled");
    }
    for client in clients {
        client.await.expect("it has asked to the end");
    }
    outcomes.has_ended.store(true, Ordering::Relaxed);
    let kills = killer.await.expect("it has killed");
    let item = database.get(&format!("{ITEM}&consistent=true")).await;
    let sum = item.body["attributes"]["sum"].as_u64().expect("a sum");
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (acknowledged, unknown) = (of(&outcomes.acknowledged), of(&outcomes.unknown));
    println!(
        "{CLIENTS} clients, {kills} kills, {} changes of the width: {acknowledged} acknowledged, \
         {unknown} unknown, {} rejected, {} requests repeated; the sum is {sum}",
        width - 1,
        of(&outcomes.refused),
        of(&outcomes.repeated)
    );
    assert!((acknowledged..=acknowledged + unknown).contains(&sum));
    assert!(
        kills > 0
            && width > 2
            && acknowledged > CLIENTS * additions / 2
            && of(&outcomes.repeated) > 0
    );
    database.stop().await;
}
