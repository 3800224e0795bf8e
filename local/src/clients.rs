//! The SDK's clients, for the embedded engine or for another server.

use api::SdkConfig;
use aws_sdk_dynamodb::config::SharedHttpClient;
use connection::server::configuration_for;
use embedded_dynamodb::InProcess;
use shard_scaler::Clients;

/// Clients that call the engine in this process.
#[must_use]
pub fn in_process_clients(connector: &InProcess) -> Clients {
    clients_over(connector.clone().into_shared())
}

/// Clients over any connection inside this process.
#[must_use]
pub fn clients_over(http: SharedHttpClient) -> Clients {
    clients(&embedded_dynamodb::sdk_config(http))
}

/// Clients of another server that uses DynamoDB's protocol.
pub(crate) async fn remote_clients(endpoint_url: &str) -> Clients {
    clients(&configuration_for(endpoint_url).await)
}

fn clients(aws: &SdkConfig) -> Clients {
    Clients {
        dynamodb: aws_sdk_dynamodb::Client::new(aws),
        cloudwatch: aws_sdk_cloudwatch::Client::new(aws),
    }
}
