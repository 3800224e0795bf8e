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

use std::sync::atomic::{AtomicU32, Ordering};

use local::ServeOptions;
use sharding::{SortKeyType, TableConfig};
use system_tests::{Response, TestEdition, config, count, partition_key, soon};

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

async fn set_shards(edition: &TestEdition, key: &str, to: u32) {
    edition.table().set_shards(&partition_key(key), count(to), soon()).await.expect("scaled");
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
