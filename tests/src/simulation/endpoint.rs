//! Endpoints: processes that speak DynamoDB's own protocol. A broken build changes the requests
//! that they send to the item's home.

use std::sync::Arc;

use ::endpoint::{Service, Upstream};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use embedded_dynamodb::Engine;
use serde_json::{Value, json};

use super::failure::Failure;
use super::network::Connection;
use super::world::Actor;

/// The number of endpoints of a run.
pub(super) const ENDPOINTS: usize = 3;

/// How the endpoints of a run are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointBuild {
    /// As they are.
    AsBuilt,
    /// A write accepts an item of any era at its home as the newest copy.
    WithoutEra,
    /// A pull replaces whatever is at the item's home.
    PullsOverAnything,
}

pub(super) async fn start(
    engine: &Engine,
    actor: &Actor,
    build: EndpointBuild,
) -> Result<Service, Failure> {
    let connection = Connection(Arc::clone(&actor.instance));
    let connector = SharedHttpConnector::new(Changing { connection, build });
    let upstream = Upstream::over(&engine.sdk_config(), connector).await;
    Ok(Service::of_table(actor.table.clone(), upstream.map_err(Failure::harness)?))
}

/// The connection of an endpoint, with the faults of its build.
#[derive(Debug, Clone)]
struct Changing {
    connection: Connection,
    build: EndpointBuild,
}

impl HttpConnector for Changing {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let body = request.body().bytes().unwrap_or_default();
        let changed = match self.build {
            EndpointBuild::AsBuilt => None,
            EndpointBuild::WithoutEra => without_era(body),
            EndpointBuild::PullsOverAnything => over_anything(body),
        };
        if let Some(changed) = changed {
            *request.body_mut() = SdkBody::from(changed.to_string());
        }
        self.connection.call(request)
    }
}

/// A write whose version may be of any era. Only the protocol's part of a condition has `>=`.
fn without_era(body: &[u8]) -> Option<Value> {
    let mut request: Value = serde_json::from_slice(body).ok()?;
    let (_, after) = request["ConditionExpression"].as_str()?.split_once(" >= ")?;
    let first_of_era = after.split_whitespace().next()?.to_owned();
    request["ExpressionAttributeValues"][first_of_era] = json!({ "N": "0" });
    Some(request)
}

/// A pull without a condition. Only a pull does not ask for the consumed capacity: all clients do
/// whose requests reach the table as they are.
fn over_anything(body: &[u8]) -> Option<Value> {
    let mut request: Value = serde_json::from_slice(body).ok()?;
    let members = request.as_object_mut()?;
    if !members.contains_key("Item") || members.contains_key("ReturnConsumedCapacity") {
        return None;
    }
    members.retain(|name, _| name == "TableName" || name == "Item");
    Some(request)
}
