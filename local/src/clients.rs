//! The SDK's clients: over the embedded engine, or over another server.

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider, SharedHttpClient};
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
    let credentials = placeholder_credentials();
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

/// Clients of another server that speaks DynamoDB's protocol. A server on this machine takes any credentials, so where the environment
/// has none, these are placeholders; they are sent nowhere else.
pub(crate) async fn remote_clients(endpoint_url: &str) -> Clients {
    let mut shared = api::aws_configuration().await.into_builder().endpoint_url(endpoint_url);
    if is_on_this_machine(endpoint_url) && std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
        shared = shared.region(REGION).credentials_provider(SharedCredentialsProvider::new(placeholder_credentials()));
    }
    let shared = shared.build();
    Clients { dynamodb: aws_sdk_dynamodb::Client::new(&shared), cloudwatch: aws_sdk_cloudwatch::Client::new(&shared) }
}

fn placeholder_credentials() -> Credentials {
    Credentials::new("local", "local", None, None, "local")
}

fn is_on_this_machine(endpoint_url: &str) -> bool {
    let host = endpoint_url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_on_this_machine;

    #[test]
    fn only_loopback_addresses_are_on_this_machine() {
        for local in ["http://localhost:8000", "http://127.0.0.1:4566/", "http://[::1]:8000"] {
            assert!(is_on_this_machine(local), "{local}");
        }
        for remote in [
            "https://dynamodb.eu-west-1.amazonaws.com",
            "http://localhost.example.com",
            "http://10.0.0.1:8000",
            "",
            "127.0.0.1 ",
        ] {
            assert!(!is_on_this_machine(remote), "{remote}");
        }
    }
}
