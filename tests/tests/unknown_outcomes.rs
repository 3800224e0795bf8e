//! A write whose answer was lost is never told as "not stored".

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use embedded_dynamodb::{Engine, InProcess};
use local::{clients_over, create_tables, in_process_clients};
use sharding::{Attributes, Deadline, Item, PartitionKey, ShardedTable, SortKey, SortKeyType, WriteError};
use system_tests::config;

/// The first put of an item is applied and its answer lost; every further one is throttled.
#[derive(Debug, Clone)]
struct LostThenThrottled {
    inner: InProcess,
    puts: Arc<AtomicU32>,
}

impl HttpClient for LostThenThrottled {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for LostThenThrottled {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let to_items = String::from_utf8_lossy(request.body().bytes().unwrap_or_default()).contains("\"items\"");
        let is_put =
            to_items && request.headers().get("x-amz-target").is_some_and(|target| target.ends_with("PutItem"));
        if !is_put {
            return self.inner.call(request);
        }
        let first = self.puts.fetch_add(1, Ordering::Relaxed) == 0;
        let applied = first.then(|| self.inner.call(request));
        HttpConnectorFuture::new(async move {
            if let Some(applied) = applied {
                drop(applied.await?);
                return Err(ConnectorError::io("the connection broke".into()));
            }
            let body = br#"{"__type":"x#ThrottlingException","message":"full","throttlingReasons":[]}"#;
            Ok(HttpResponse::new(400.try_into().expect("a status"), SdkBody::from(&body[..])))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_after_a_lost_answer_does_not_make_the_item_unstored() {
    let inner = InProcess::new(Engine::in_memory().expect("an engine"));
    create_tables(&in_process_clients(&inner).dynamodb, &config()).await.expect("tables");
    let connection = LostThenThrottled { inner: inner.clone(), puts: Arc::default() };
    let client = clients_over(SharedHttpClient::new(connection.clone())).dynamodb;
    let table = ShardedTable::new(&client, config());
    let partition_key = PartitionKey::new("k").expect("a key");
    let sort_key = SortKey::parse(SortKeyType::String, "s").expect("a sort key");
    let item = Item { partition_key: partition_key.clone(), sort_key: sort_key.clone(), attributes: Attributes::new() };
    let soon = || Deadline::now() + Duration::from_secs(2);
    let result = table.append(&item, soon()).await;
    assert!(connection.puts.load(Ordering::Relaxed) > 1, "it was repeated");
    assert!(matches!(result, Err(WriteError::Unknown(_))), "{result:?}");
    let other = ShardedTable::new(&in_process_clients(&inner).dynamodb, config());
    assert!(
        other.get(&partition_key, &sort_key, true, soon()).await.expect("read").is_some(),
        "it was stored after all"
    );
}
