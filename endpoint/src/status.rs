//! What a running endpoint has observed, for the command `status`.

use std::net::SocketAddr;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::time::timeout;

use crate::server::OBSERVED_PATH;
use crate::upstream::connector;

/// The longest that the endpoint may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Far more than the answer has.
const MAX_BYTES: usize = 4 * 1_024 * 1_024;

/// The keys that are not armed and were throttled in the last hour, as an endpoint saw them, in
/// lines of text.
pub async fn observations(address: SocketAddr) -> String {
    match timeout(TIMEOUT, ask(address)).await {
        Ok(Some(keys)) => lines(address, keys),
        Ok(None) | Err(_) => {
            let why = "nothing is known of keys that are not armed";
            format!("no endpoint answers at {address}: {why}\n")
        }
    }
}

/// The observed keys. `None` if no endpoint listens there, but perhaps another server.
async fn ask(address: SocketAddr) -> Option<Vec<Value>> {
    let mut request = HttpRequest::empty();
    request.set_uri(format!("http://{address}{OBSERVED_PATH}")).ok()?;
    let response = connector().call(request).await.ok()?.try_into_http1x().ok()?;
    let body = Limited::new(response.into_body(), MAX_BYTES).collect().await.ok()?;
    let answer: Value = serde_json::from_slice(&body.to_bytes()).ok()?;
    answer.get("keys")?.as_array().cloned()
}

fn lines(address: SocketAddr, keys: Vec<Value>) -> String {
    if keys.is_empty() {
        return format!("not armed: no key was throttled in the last hour, says {address}\n");
    }
    let mut text = format!("not armed, and throttled in the last hour, says {address}:\n");
    for key in keys {
        let word = |name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| key.get(name).and_then(Value::as_f64).unwrap_or_default();
        let refused = key.get("refused").and_then(Value::as_array);
        let refused: Vec<&str> = refused.into_iter().flatten().filter_map(Value::as_str).collect();
        text += &format!(
            "  {} {:?}: {:.0} write units a second, {} shards",
            word("table"),
            word("key"),
            number("write_units"),
            number("shards"),
        );
        if !refused.is_empty() {
            text += &format!("; refused once it is armed: {}", refused.join(", "));
        }
        text.push('\n');
    }
    text
}
