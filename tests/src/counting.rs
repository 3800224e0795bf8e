//! A connection that counts conditional updates of metadata, both of keys and of pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpClient};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use embedded_dynamodb::{InProcess, http_client};

/// The beginning of the keys of evidence items, which instances share. They are no part of the
/// protocol, and are not counted.
const EVIDENCE: &[u8] = b"_sharding:evidence:";

/// Counts the updates on this connection: attempted and successful.
#[derive(Debug, Clone)]
pub struct CountingMetadata {
    inner: InProcess,
    tried: Arc<AtomicU64>,
    made: Arc<AtomicU64>,
}

impl CountingMetadata {
    /// A counter in front of this connection.
    #[must_use]
    pub fn new(inner: InProcess) -> Self {
        Self { inner, tried: Arc::default(), made: Arc::default() }
    }

    /// The numbers of attempted and of successful updates.
    #[must_use]
    pub fn updates(&self) -> (u64, u64) {
        (self.tried.load(Ordering::Relaxed), self.made.load(Ordering::Relaxed))
    }

    /// As an HTTP client for an SDK configuration.
    #[must_use]
    pub fn into_shared(self) -> SharedHttpClient {
        http_client(self)
    }
}

impl HttpConnector for CountingMetadata {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let is_update = request
            .headers()
            .get("x-amz-target")
            .is_some_and(|target| target.ends_with("UpdateItem"));
        let body = request.body().bytes().unwrap_or_default();
        let is_update = is_update && !body.windows(EVIDENCE.len()).any(|part| part == EVIDENCE);
        let (tried, made) = (Arc::clone(&self.tried), Arc::clone(&self.made));
        let response = self.inner.call(request);
        HttpConnectorFuture::new(async move {
            let response = response.await?;
            if is_update {
                tried.fetch_add(1, Ordering::Relaxed);
                made.fetch_add(u64::from(response.status().is_success()), Ordering::Relaxed);
            }
            Ok(response)
        })
    }
}
