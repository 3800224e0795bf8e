//! Endpoints: processes that speak DynamoDB's own protocol. A broken build changes the requests
//! that they send to the item's home.

use std::sync::Arc;

use ::endpoint::{Service, Upstream};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};

use super::network::Process;
use super::world::Actor;

/// The number of endpoints of a run.
pub(super) const ENDPOINTS: usize = 3;

pub(super) async fn start(actor: &Actor) -> Service {
    let (process, world) = (Process(Arc::clone(&actor.instance)), &actor.world);
    let connector = if world.plan.without_eras {
        SharedHttpConnector::new(WithoutEras(process))
    } else {
        SharedHttpConnector::new(process)
    };
    let upstream = Upstream::over(&world.engine.sdk_config(), connector).await;
    Service::of_table(actor.table.clone(), upstream.expect("an upstream"))
}

/// The connection of an endpoint of a broken build.
#[derive(Debug)]
struct WithoutEras(Process);

impl HttpConnector for WithoutEras {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        if let Some(changed) = without_era(request.body().bytes().unwrap_or_default()) {
            *request.body_mut() = SdkBody::from(changed.to_string());
        }
        self.0.call(request)
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
