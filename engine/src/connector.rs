//! An HTTP client for the SDK that calls the engine without a socket.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_runtime_api::client::behavior_version::BehaviorVersion;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_types::SdkConfig;
use aws_types::region::Region;

use crate::caller;
use crate::engine::Engine;

/// A placeholder: requests do not leave the process.
const ENDPOINT: &str = "http://embedded";

/// The configuration of the SDK's clients for a connection inside this process. The credentials are
/// placeholders.
pub fn sdk_config(http_client: SharedHttpClient) -> SdkConfig {
    let credentials = Credentials::new("local", "local", None, None, "embedded");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static(caller::UNSIGNED))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(ENDPOINT)
        .http_client(http_client)
        .build()
}

/// An HTTP client of the SDK that sends every request to this connector.
pub fn http_client(connector: impl HttpConnector + 'static) -> SharedHttpClient {
    let connector = SharedHttpConnector::new(connector);
    http_client_fn(move |_, _| connector.clone())
}

/// An HTTP client of the SDK that responds from an engine in this process.
///
/// ```
/// use std::time::Duration;
/// use embedded_dynamodb::{Engine, InProcess};
///
/// # fn main() -> Result<(), embedded_dynamodb::EngineError> {
/// let engine = Engine::in_memory()?;
/// let slow = InProcess::new(engine.clone()).with_service_time(Duration::from_millis(5));
/// let config = engine.sdk_config().into_builder().http_client(slow.into_shared()).build();
/// let client = aws_sdk_dynamodb::Client::new(&config);
/// # let _ = client;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct InProcess {
    engine: Engine,
    service_time: Duration,
}

impl InProcess {
    /// Creates a client that responds at once.
    #[must_use]
    pub const fn new(engine: Engine) -> Self {
        Self { engine, service_time: Duration::ZERO }
    }

    /// Delays each response by this time, as a service across a network would.
    #[must_use]
    pub const fn with_service_time(mut self, service_time: Duration) -> Self {
        self.service_time = service_time;
        self
    }

    /// Converts the client to the type that an SDK configuration takes.
    #[must_use]
    pub fn into_shared(self) -> SharedHttpClient {
        http_client(self)
    }
}

impl HttpConnector for InProcess {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (engine, service_time) = (self.engine.clone(), self.service_time);
        HttpConnectorFuture::new(async move {
            if !service_time.is_zero() {
                tokio::time::sleep(service_time).await;
            }
            let path = request.uri().split('?').next().unwrap_or_default();
            let body = request.body().bytes().unwrap_or_default();
            let response = engine.respond_over_http(path, |name| request.headers().get(name), body);
            HttpResponse::try_from(response.map(SdkBody::from))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}
