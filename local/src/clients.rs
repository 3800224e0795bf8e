//! The SDK's clients, for the embedded engine or for another server.

use aws_sdk_dynamodb::config::{BehaviorVersion, SharedHttpClient};
use connection::endpoint::{LOCAL_REGION, configuration_for, placeholder_credentials};
use embedded_dynamodb::InProcess;

/// The clients that the functions use.
#[derive(Debug, Clone)]
pub struct Clients {
    /// The client for the tables.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// The client for reports of throttled keys.
    pub cloudwatch: aws_sdk_cloudwatch::Client,
}

/// A placeholder: requests do not leave the process.
const HOST: &str = "http://embedded";

/// Clients that call the engine in this process.
#[must_use]
pub fn in_process_clients(connector: &InProcess) -> Clients {
    clients_over(connector.clone().into_shared())
}

/// Clients over any connection inside this process.
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

/// Clients of another server that uses DynamoDB's protocol.
pub(crate) async fn remote_clients(endpoint_url: &str) -> Clients {
    let aws = configuration_for(endpoint_url).await;
    Clients {
        dynamodb: aws_sdk_dynamodb::Client::new(&aws),
        cloudwatch: aws_sdk_cloudwatch::Client::new(&aws),
    }
}
