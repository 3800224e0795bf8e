//! The HTTP contract over real HTTP: every route, its errors and their form. A request with a 4xx
//! response stores nothing.
//!
//! The tests use the embedded engine, or the server that `DYNAMODB_ENDPOINT` names:
//! `checks/servers` runs them over two servers of other vendors.

mod conditions;
mod items;
mod pages;
mod point_writes;
mod projection;
mod unavailable;
mod updates;
mod wrong_input;

use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use local::ServeOptions;
use sharding::{SortKeyType, TableConfig};
use system_tests::{Response, TestEdition, config};

const JSON: (&str, &str) = ("content-type", "application/json");

static TABLES: AtomicU32 = AtomicU32::new(0);

/// An edition over the server under test, with its own tables.
async fn start(config: TableConfig) -> TestEdition {
    let endpoint_url = std::env::var("DYNAMODB_ENDPOINT").ok();
    let name = match &endpoint_url {
        None => config.table_name.clone(),
        Some(_) => {
            format!("contract-{}-{}", std::process::id(), TABLES.fetch_add(1, Ordering::Relaxed))
        }
    };
    let config = config.with(|config| {
        config.metadata_table_name = format!("{name}-metadata");
        config.table_name = name;
    });
    TestEdition::start(ServeOptions { endpoint_url, ..ServeOptions::default() }, config).await
}

fn number_table() -> TableConfig {
    config().with(|config| config.sort_key_type = SortKeyType::Number)
}

/// Runs all of them concurrently, and waits for all.
async fn at_once<F: Future>(requests: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut requests: Vec<_> = requests.map(|request| (Box::pin(request), None)).collect();
    poll_fn(|context| {
        for (request, done) in requests.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(response) = request.as_mut().poll(context) {
                *done = Some(response);
            }
        }
        if requests.iter().all(|(_, done)| done.is_some()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    requests.into_iter().filter_map(|(_, done)| done).collect()
}

async fn set_shards(edition: &TestEdition, key: &str, count: u32) {
    let key = sharding::PartitionKey::new(key).expect("a key");
    let count = sharding::ShardCount::new(count).expect("a count");
    let soon = sharding::internal::Deadline::now() + std::time::Duration::from_secs(20);
    edition.table().set_shards(&key, count, soon).await.expect("scaled");
}

#[track_caller]
fn assert_problem(response: &Response, status: u16, code: &str, field: Option<&str>, about: &str) {
    assert_eq!(
        (response.status, response.body["code"].as_str()),
        (status, Some(code)),
        "{about}: {}",
        response.body
    );
    assert_eq!(response.headers["content-type"], "application/problem+json", "{about}");
    assert_eq!(response.body["status"], status, "{about}");
    assert!(
        response.body["title"].is_string() && response.body["type"].is_string(),
        "{about}: {}",
        response.body
    );
    assert_eq!(response.body["field"].as_str(), field, "{about}: {}", response.body);
    if let Some(field) = field {
        assert!(
            response.body["detail"].as_str().is_some_and(|detail| detail.starts_with(field)),
            "{about}: {}",
            response.body
        );
    }
}
