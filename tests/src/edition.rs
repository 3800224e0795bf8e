//! The local edition on ports that the system assigns. It stops at the end of the test.

use std::net::SocketAddr;

use embedded_dynamodb::Engine;
use local::{Edition, ServeOptions};
use serde_json::Value;
use sharding::TableConfig;
use sharding::internal::TableEngine;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The configuration of the tests, which is the local edition's own.
pub fn config() -> TableConfig {
    TableConfig::new("items", "items-metadata")
}

/// A running edition.
#[derive(Debug)]
pub struct TestEdition {
    api: SocketAddr,
    dynamodb: Option<SocketAddr>,
    engine: Option<Engine>,
    table: TableEngine,
    http: reqwest::Client,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), local::EditionError>>,
}

/// A response of the API.
#[derive(Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: reqwest::header::HeaderMap,
    /// The body as JSON; null if it is not JSON.
    pub body: Value,
}

impl TestEdition {
    /// Starts an edition with these options, on ports that the system assigns.
    pub async fn start(options: ServeOptions, config: TableConfig) -> Self {
        let options = ServeOptions { port: 0, dynamodb_port: 0, endpoint_port: 0, ..options };
        let edition = Edition::start(&options, config).await.expect("the edition starts");
        let (api, dynamodb, _) = edition.addresses().expect("the ports are known");
        let (engine, table) = (edition.engine().cloned(), edition.table().engine().clone());
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(edition.serve(async {
            // A dropped sender also stops the server.
            let _ = stopped.await;
        }));
        Self { api, dynamodb, engine, table, http: reqwest::Client::new(), stop, server }
    }

    /// The API's URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.api)
    }

    /// The URL of the DynamoDB-compatible port.
    pub fn dynamodb_url(&self) -> String {
        format!("http://{}", self.dynamodb.expect("the engine is embedded"))
    }

    /// The embedded engine.
    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the engine is embedded")
    }

    /// The table behind the API.
    pub const fn table(&self) -> &TableEngine {
        &self.table
    }

    /// Sends a request such as `GET /items?…`, with an optional body.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Response {
        let method = method.parse().expect("a method");
        let mut request = self.http.request(method, format!("{}{path}", self.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await.expect("the server responds");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.expect("the body comes");
        Response { status, headers, body: serde_json::from_slice(&bytes).unwrap_or_default() }
    }

    /// Sends a GET and returns the raw body.
    pub async fn text(&self, path: &str) -> String {
        let sent = self.http.get(format!("{}{path}", self.url())).send().await;
        let response = sent.expect("the server responds");
        assert_eq!(response.status(), 200, "{path}");
        response.text().await.expect("the body comes")
    }

    /// Sends a GET.
    pub async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], None).await
    }

    /// Sends a POST of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Response {
        let headers = [("content-type", "application/json")];
        self.send("POST", path, &headers, Some(body.to_string().into_bytes())).await
    }

    /// Reads every page of a key. Returns the items and the number of pages.
    pub async fn read_all(&self, key: &str, parameters: &str) -> (Vec<Value>, usize) {
        let (mut items, mut pages, mut cursor) = (Vec::new(), 0, None::<String>);
        let key: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
        loop {
            let place = cursor.map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
            let page = self.get(&format!("/items?partition_key={key}{parameters}{place}")).await;
            assert_eq!(page.status, 200, "{:?}", page.body);
            items.extend(page.body["items"].as_array().expect("items is an array").iter().cloned());
            pages += 1;
            match page.body["cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return (items, pages),
            }
        }
    }

    /// Stops the server and waits until it has ended.
    pub async fn stop(self) {
        drop(self.stop);
        drop(self.http);
        self.server.await.expect("the server task ends").expect("the server ends well");
    }
}
