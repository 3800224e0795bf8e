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
use serde_json::Value;
use sharding::{SortKeyType, TableConfig};
use system_tests::{Response, TestEdition, config, count, partition_key, soon};

const JSON: (&str, &str) = ("content-type", "application/json");
const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");
const CREATE_ONLY: (&str, &str) = ("if-none-match", "*");
/// The path of an item of the key `k`.
const ITEM: &str = "/item?partition_key=k&sort_key=s";

static TABLES: AtomicU32 = AtomicU32::new(0);

/// An edition over the server under test, with its own tables.
async fn start(config: TableConfig) -> TestEdition {
    let endpoint_url = std::env::var("DYNAMODB_ENDPOINT").ok();
    let number = || TABLES.fetch_add(1, Ordering::Relaxed);
    let name = match &endpoint_url {
        None => config.table_name.clone(),
        Some(_) => format!("contract-{}-{}", std::process::id(), number()),
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
    edition.table().until(soon()).grow(&partition_key(key), count(to)).await.expect("scaled");
}

fn json_body(value: &Value) -> Option<Vec<u8>> {
    Some(value.to_string().into_bytes())
}

#[track_caller]
fn assert_problem(response: &Response, status: u16, code: &str, field: Option<&str>, about: &str) {
    let body = &response.body;
    let found = (response.status, body["code"].as_str(), body["field"].as_str());
    assert_eq!(found, (status, Some(code), field), "{about}: {body}");
    assert_eq!(response.headers["content-type"], "application/problem+json", "{about}");
    assert_eq!(body["status"], status, "{about}");
    assert!(body["title"].is_string() && body["type"].is_string(), "{about}: {body}");
    let detail = body["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with(field.unwrap_or_default()), "{about}: {body}");
}
