//! HTTP responses of the engine.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::json;

/// An HTTP response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The content type.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type: "application/x-amz-json-1.0", body: body.into() }
    }

    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        let body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": message});
        Self::json(status, body.to_string())
    }

    /// The response with the headers of its protocol.
    pub(crate) fn into_http(self) -> http::Response<Vec<u8>> {
        let mut response = http::Response::new(self.body);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if self.content_type == "application/cbor" {
            headers.insert("smithy-protocol", HeaderValue::from_static("rpc-v2-cbor"));
        }
        response
    }
}
