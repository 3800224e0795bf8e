//! The SDK's clients: over the embedded engine, or over another server.

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, SharedHttpClient};
use embedded_dynamodb::InProcess;

/// What the functions call.
#[derive(Debug, Clone)]
pub struct Clients {
    /// Tables.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// Reports of throttled keys.
    pub cloudwatch: aws_sdk_cloudwatch::Client,
}

/// Nothing leaves the process, so the region, the credentials and the host only have to be there.
const REGION: Region = Region::from_static("local");
const HOST: &str = "http://embedded";

/// Clients that call the engine in this process.
#[must_use]
pub fn in_process_clients(connector: &InProcess) -> Clients {
    clients_over(connector.clone().into_shared())
}

/// Clients over any connection that stays in this process.
#[must_use]
pub fn clients_over(http: SharedHttpClient) -> Clients {
    let credentials = Credentials::new("local", "local", None, None, "local");
    let dynamodb = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(REGION)
        .credentials_provider(credentials.clone())
        .endpoint_url(HOST)
        .http_client(http.clone())
        .build();
    let cloudwatch = aws_sdk_cloudwatch::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(REGION)
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
    let shared = api::aws_configuration().await.into_builder().endpoint_url(endpoint_url).build();
    Clients { dynamodb: aws_sdk_dynamodb::Client::new(&shared), cloudwatch: aws_sdk_cloudwatch::Client::new(&shared) }
}
