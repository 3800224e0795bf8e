//! The local edition's own promises: it keeps data, and reports what prevents its start.

use local::load::{LoadError, LoadOptions, load};
use local::{Edition, EditionError, ServeOptions};
use serde_json::json;
use system_tests::{TestEdition, config, count, partition_key, soon};

fn item(sort_key: &str) -> serde_json::Value {
    json!({"partition_key": "k", "sort_key": sort_key, "attributes": {"n": 1}})
}

fn load_options(file: &std::path::Path, url: String) -> LoadOptions {
    let partition_key = "path".to_owned();
    LoadOptions {
        file: file.to_owned(),
        partition_key,
        sort_key: vec!["time".into()],
        url,
        batch: 10,
        concurrency: 2,
        attempts: 3,
    }
}

#[tokio::test]
async fn a_data_directory_keeps_items_and_metadata() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = || ServeOptions {
        data_dir: Some(directory.path().join("data")),
        ..ServeOptions::default()
    };
    let first = TestEdition::start(options(), config()).await;
    assert_eq!(first.post("/items", &item("1")).await.status, 201);
    first.table().set_shards(&partition_key("k"), count(8), soon()).await.expect("scaled");
    first.stop().await;
    let second = TestEdition::start(options(), config()).await;
    assert_eq!(second.get("/shards?partition_key=k").await.body["number_of_shards"], 8);
    assert_eq!(second.read_all("k", "").await.0.len(), 1);
    second.stop().await;
}

#[tokio::test]
async fn a_port_in_use_and_an_unusable_directory_are_reported() {
    let running = TestEdition::start(ServeOptions::default(), config()).await;
    let port = running.url().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let taken = Edition::start(
        &ServeOptions { port, dynamodb_port: 0, endpoint_port: 0, ..ServeOptions::default() },
        config(),
    )
    .await;
    let error = taken.expect_err("the port is taken");
    assert!(matches!(error, EditionError::Port { option: "--port", .. }), "{error}");
    assert!(
        error.to_string().contains(&port.to_string()) && error.to_string().contains("--port"),
        "{error}"
    );
    running.stop().await;

    let file = tempfile::NamedTempFile::new().expect("a file");
    let options = ServeOptions {
        port: 0,
        dynamodb_port: 0,
        endpoint_port: 0,
        data_dir: Some(file.path().to_owned()),
        ..ServeOptions::default()
    };
    let error = Edition::start(&options, config()).await.expect_err("a file is no directory");
    assert!(
        matches!(error, EditionError::DataDir { .. }) && error.to_string().contains("--data-dir"),
        "{error}"
    );
}

#[tokio::test]
async fn a_load_with_errors_reports_them_and_stores_nothing() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let missing = load(&load_options("no/such/file".as_ref(), edition.url())).await;
    assert!(matches!(missing, Err(LoadError::File { .. })), "{missing:?}");

    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "{\"path\":\"a\",\"time\":\"1\"}\n{\"path\":\"a\"\n")
        .expect("written");
    let malformed =
        load(&load_options(file.path(), edition.url())).await.expect_err("line 2 is malformed");
    assert!(
        malformed.to_string().contains("line 2")
            && malformed.to_string().contains("nothing was stored"),
        "{malformed}"
    );
    assert_eq!(edition.engine().traffic("items").writes, 0);

    std::fs::write(file.path(), "{\"path\":\"a\",\"time\":\"1\"}\n").expect("written");
    let unreachable = load(&load_options(file.path(), "http://127.0.0.1:9".into()))
        .await
        .expect_err("no process listens there");
    assert!(matches!(unreachable, LoadError::Api { .. }), "{unreachable}");

    // A line that the API rejects is listed with its number, and the others are stored.
    std::fs::write(
        file.path(),
        "{\"path\":\"a\",\"time\":\"1\"}\n{\"path\":\"\",\"time\":\"2\"}\n",
    )
    .expect("written");
    let mut one_by_one = load_options(file.path(), edition.url());
    one_by_one.batch = 1;
    let summary = load(&one_by_one).await.expect("loaded");
    assert_eq!((summary.stored, summary.failed.len(), summary.failed[0].0), (1, 1, 2), "{summary}");
    edition.stop().await;
}
