//! What a running endpoint has observed, for the command `status`.

use std::net::SocketAddr;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use tokio::time::timeout;

use crate::observed::HotKey;
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

/// The response to `GET /observed`.
#[derive(Deserialize)]
struct Answer {
    keys: Vec<HotKey>,
}

/// The observed keys. `None` if no endpoint listens there, but perhaps another server.
async fn ask(address: SocketAddr) -> Option<Vec<HotKey>> {
    let mut request = HttpRequest::empty();
    request.set_uri(format!("http://{address}{OBSERVED_PATH}")).ok()?;
    let response = connector().call(request).await.ok()?.try_into_http1x().ok()?;
    let body = Limited::new(response.into_body(), MAX_BYTES).collect().await.ok()?;
    let answer: Answer = serde_json::from_slice(&body.to_bytes()).ok()?;
    Some(answer.keys)
}

fn lines(address: SocketAddr, keys: Vec<HotKey>) -> String {
    if keys.is_empty() {
        return format!("not armed: no key was throttled in the last hour, says {address}\n");
    }
    let mut text = format!("not armed, and throttled in the last hour, says {address}:\n");
    for HotKey { table, key, write_units, shards, refused, .. } in keys {
        text +=
            &format!("  {table} {key:?}: {write_units:.0} write units a second, {shards} shards");
        if !refused.is_empty() {
            let refused: Vec<String> = refused.into_iter().collect();
            text += &format!("; refused once it is armed: {}", refused.join(", "));
        }
        text.push('\n');
    }
    text
}
