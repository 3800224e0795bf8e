//! An HTTP client for the SDK that calls the engine without a socket.

use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use http::StatusCode;

use crate::engine::Engine;

/// An HTTP client of the SDK that sends every request to this connector.
#[must_use]
pub fn http_client(connector: impl HttpConnector + 'static) -> SharedHttpClient {
    let connector = SharedHttpConnector::new(connector);
    http_client_fn(move |_, _| connector.clone())
}

/// An HTTP client of the SDK that responds from an engine in this process.
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
            let headers = request.headers();
            let engine_response = engine.for_caller(|name| headers.get(name)).respond(
                path,
                headers.get("x-amz-target"),
                body,
            );
            let status = StatusCode::from_u16(engine_response.status)
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response =
                HttpResponse::new(status.into(), SdkBody::from(engine_response.body));
            response.headers_mut().insert("content-type", engine_response.content_type);
            if engine_response.content_type == "application/cbor" {
                response.headers_mut().insert("smithy-protocol", "rpc-v2-cbor");
            }
            Ok::<_, ConnectorError>(response)
        })
    }
}
