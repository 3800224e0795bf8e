//! What the endpoint adds to a request: the same load without it and through it, in turns.
//!
//! ```sh
//! cargo bench -p system-tests --bench hop
//! ```
//!
//! The engine, the endpoint and the client share this machine's processors.

#![expect(clippy::print_stdout, reason = "the table is the product of a benchmark")]

use std::time::Duration;

use endpoint::{Server, Upstream, open};
use futures_util::future::join_all;
use local::ServeOptions;
use serde_json::json;
use sharding::TableConfig;
use system_tests::{TestEdition, UNLIMITED, config};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// The turns of each side, and the requests of a turn, one after the other.
const TURNS: usize = 20;
const REQUESTS: usize = 500;
/// The connections of the second load, and the requests of a turn on each.
const CONNECTIONS: usize = 32;
const REQUESTS_EACH: usize = 100;
/// Stands for a number in a request, so that connections do not write the same item.
const SORT_KEY: &str = "NUMBER";
const PLAIN: &str = "plain";

#[derive(Default)]
struct Side {
    took: Vec<Duration>,
    rates: Vec<f64>,
}

fn main() {
    let servers = runtime(2);
    let (direct, through) = servers.block_on(start());
    let client = runtime(1);
    println!(
        "| request | median | with the endpoint | 99th percentile | with | requests a second | with |"
    );
    println!("|---|---|---|---|---|---|---|");
    let rows = [("PutItem", PLAIN), ("GetItem", PLAIN), ("PutItem", "items"), ("GetItem", "items")];
    for (operation, table) in rows {
        let sides = [(&direct, body(operation, PLAIN)), (&through, body(operation, table))];
        let [without, with] = client.block_on(measure(operation, sides));
        let about = if table == PLAIN { "not armed" } else { "armed" };
        println!(
            "| `{operation}`, {about} | {:.0} us | {:+.0} us | {:.0} us | {:+.0} us | {:.0} | {:.0} |",
            without.quantile(0.5),
            with.quantile(0.5) - without.quantile(0.5),
            without.quantile(0.99),
            with.quantile(0.99) - without.quantile(0.99),
            without.rate(),
            with.rate(),
        );
    }
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.expect("a runtime")
}

/// Starts an engine and an endpoint over it. Returns their URLs.
async fn start() -> (String, String) {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    edition.engine().create_table(PLAIN, "partition_key", Some("sort_key")).expect("a table");
    edition.engine().set_limits([PLAIN, "items"].map(|table| (table.to_owned(), UNLIMITED)));
    let url = edition.dynamodb_url();
    let aws = edition.engine().sdk_config().to_builder().endpoint_url(&url).build();
    let upstream = Upstream::new(&aws).await.expect("an upstream");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let through = format!("http://{}", listener.local_addr().expect("an address"));
    let unarmed = TableConfig::new(PLAIN, "plain-metadata");
    let plain = open(&aws, upstream.clone(), vec![unarmed], true).await;
    drop(plain.expect("the plain table is claimed"));
    let tables = vec![config(), TableConfig::new(PLAIN, "plain-metadata")];
    let service = open(&aws, upstream, tables, false).await.expect("the tables are served");
    tokio::spawn(async move {
        let server = Server::new(service, &[]).serve(listener, std::future::pending());
        server.await.expect("the endpoint serves");
        edition.stop().await;
    });
    (url, through)
}

/// A request for an item of a table.
fn body(operation: &str, table: &str) -> String {
    let key = json!({ "partition_key": { "S": "k" }, "sort_key": { "S": SORT_KEY } });
    if operation == "GetItem" {
        return json!({ "TableName": table, "Key": key }).to_string();
    }
    let mut item = key;
    item["text"] = json!({ "S": "x".repeat(400) });
    json!({ "TableName": table, "Item": item }).to_string()
}

async fn measure(operation: &str, of_sides: [(&String, String); 2]) -> [Side; 2] {
    let mut sides = [Side::default(), Side::default()];
    let http = reqwest::Client::builder().tcp_nodelay(true).build().expect("a client");
    for turn in 0..=TURNS {
        for (side, (url, body)) in sides.iter_mut().zip(&of_sides) {
            let sent = |count: usize, number: usize| {
                send(&http, url, operation, body.replace(SORT_KEY, &number.to_string()), count)
            };
            let took = sent(REQUESTS, 0).await;
            let began = Instant::now();
            join_all((0..CONNECTIONS).map(|number| sent(REQUESTS_EACH, number))).await;
            let rate = (CONNECTIONS * REQUESTS_EACH) as f64 / began.elapsed().as_secs_f64();
            // The first turn opens connections.
            if turn > 0 {
                side.took.extend(took);
                side.rates.push(rate);
            }
        }
    }
    sides
}

async fn send(
    http: &reqwest::Client,
    url: &str,
    operation: &str,
    body: String,
    count: usize,
) -> Vec<Duration> {
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let request = http
            .post(url)
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=local/20260101/local/dynamodb/aws4_request, \
                 SignedHeaders=host, Signature=0",
            )
            .body(body.clone());
        let began = Instant::now();
        let response = request.send().await.expect("a response");
        let status = response.status();
        let answer = response.text().await.expect("a body");
        took.push(began.elapsed());
        assert!(status.is_success(), "{answer}");
    }
    took
}

impl Side {
    /// A latency, in microseconds.
    fn quantile(&self, quantile: f64) -> f64 {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = (took.len() - 1) as f64 * quantile;
        took[at as usize].as_secs_f64() * 1e6
    }

    /// The median of the turns.
    fn rate(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    }
}
