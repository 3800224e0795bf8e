//! Of any number of create-only POSTs of one item, exactly one stores it, even while the number of
//! shards changes.

use std::collections::BTreeMap;
use std::time::Duration;

use local::ServeOptions;
use serde_json::json;
use sharding::internal::Deadline;
use sharding::{PartitionKey, ShardCount};
use system_tests::{TestEdition, config};
use tokio::task::JoinSet;

const CLIENTS: usize = 64;
const WIDTHS: [u32; 4] = [2, 5, 16, 40];

/// Sends one POST, and repeats it while the outcome is unknown, as a client with an idempotency key
/// does. Returns the final status.
async fn create(http: reqwest::Client, url: String, sort_key: String, client: usize) -> u16 {
    let body =
        json!({"partition_key": "hot", "sort_key": sort_key, "attributes": {"client": client}})
            .to_string();
    loop {
        let request = http
            .post(format!("{url}/items"))
            .header("content-type", "application/json")
            .header("if-none-match", "*")
            .header("idempotency-key", format!("{sort_key}/{client}"))
            .body(body.clone());
        match request.send().await.expect("the server responds").status().as_u16() {
            503 => {}
            status => return status,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_creations_during_a_scale_out_exactly_one_succeeds() {
    // Three writers with separate caches, over one database and its real port.
    let first = TestEdition::start(ServeOptions::default(), config()).await;
    let other =
        || ServeOptions { endpoint_url: Some(first.dynamodb_url()), ..ServeOptions::default() };
    let editions =
        [TestEdition::start(other(), config()).await, TestEdition::start(other(), config()).await];
    let urls: Vec<String> =
        [&first, &editions[0], &editions[1]].into_iter().map(TestEdition::url).collect();
    let table = first.table().clone();
    let key = PartitionKey::new("hot").expect("a key");
    let growth = tokio::spawn(async move {
        for width in WIDTHS {
            let count = ShardCount::new(width).expect("a count");
            table
                .set_shards(&key, count, Deadline::now() + Duration::from_secs(30))
                .await
                .expect("scaled");
        }
    });
    let http = reqwest::Client::new();
    let (mut rounds, mut after) = (0, 0);
    // The rounds continue until the last width is in use, and for a few rounds more.
    while after < 3 {
        after += u32::from(growth.is_finished());
        rounds += 1;
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (http, url) = (http.clone(), urls[client % urls.len()].clone());
            clients.spawn(create(http, url, format!("{rounds:05}"), client));
        }
        let mut statuses = BTreeMap::<u16, usize>::new();
        for status in clients.join_all().await {
            *statuses.entry(status).or_default() += 1;
        }
        assert_eq!(statuses, BTreeMap::from([(201, 1), (412, CLIENTS - 1)]), "round {rounds}");
    }
    growth.await.expect("the key grew");
    let (items, _) = first.read_all("hot", "&consistent=true&limit=1000").await;
    println!(
        "{rounds} rounds of {CLIENTS} creations over {} widths: one 201 and {} times 412 each",
        WIDTHS.len(),
        CLIENTS - 1
    );
    assert_eq!(items.len(), rounds);
    let shards = first.get("/shards?partition_key=hot").await;
    assert_eq!(shards.body["number_of_shards"], WIDTHS[WIDTHS.len() - 1]);
    for edition in editions {
        edition.stop().await;
    }
    first.stop().await;
}
