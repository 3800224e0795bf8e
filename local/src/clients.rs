//! The SDK's clients: over the embedded engine, or over another server.

use aws_sdk_dynamodb::config::{BehaviorVersion, SharedHttpClient};
use cli::endpoint::{LOCAL_REGION, configuration_for, placeholder_credentials};
use embedded_dynamodb::InProcess;

/// What the functions call.
#[derive(Debug, Clone)]
pub struct Clients {
    /// Tables.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// Reports of throttled keys.
    pub cloudwatch: aws_sdk_cloudwatch::Client,
}

/// Nothing leaves the process, so any host will do.
const HOST: &str = "http://embedded";

/// Clients that call the engine in this process.
#[must_use]
pub fn in_process_clients(connector: &InProcess) -> Clients {
    clients_over(connector.clone().into_shared())
}

/// Clients over any connection that stays in this process.
#[must_use]
pub fn clients_over(http: SharedHttpClient) -> Clients {
    let credentials = placeholder_credentials();
    let dynamodb = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(LOCAL_REGION)
        .credentials_provider(credentials.clone())
        .endpoint_url(HOST)
        .http_client(http.clone())
        .build();
    let cloudwatch = aws_sdk_cloudwatch::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(LOCAL_REGION)
        .credentials_provider(credentials)
        .endpoint_url(HOST)
        .http_client(http)
        .build();
    Clients {
        dynamodb: aws_sdk_dynamodb::Client::from_conf(dynamodb),
        cloudwatch: aws_sdk_cloudwatch::Client::from_conf(cloudwatch),
    }
}

/// Clients of another server that speaks DynamoDB's protocol.
pub(crate) async fn remote_clients(endpoint_url: &str) -> Clients {
    let aws = configuration_for(endpoint_url).await;
    Clients { dynamodb: aws_sdk_dynamodb::Client::new(&aws), cloudwatch: aws_sdk_cloudwatch::Client::new(&aws) }
}
