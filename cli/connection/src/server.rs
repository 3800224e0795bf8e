//! A DynamoDB server other than AWS.

use std::time::Duration;

use api::aws_configuration;
use aws_config::{Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};

/// The region of a server on this machine. Any value works; the SDK needs one.
const LOCAL_REGION: Region = Region::from_static("local");

/// How long a process relies on the patterns of armed keys of tables on this machine.
pub const LOCAL_PATTERN_LEASE: Duration = Duration::from_secs(4);

/// Loads the SDK's configuration from the `AWS_*` variables, with this endpoint.
///
/// A server on this machine accepts any credentials. Without `AWS_ACCESS_KEY_ID`, credentials and
/// region are placeholders, which are never sent to another machine.
pub async fn configuration_for(endpoint_url: &str) -> SdkConfig {
    let config = aws_configuration().await.into_builder().endpoint_url(endpoint_url);
    if is_on_this_machine(endpoint_url) && std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
        let placeholders = Credentials::new("local", "local", None, None, "local");
        let credentials = SharedCredentialsProvider::new(placeholders);
        return config.region(LOCAL_REGION).credentials_provider(credentials).build();
    }
    config.build()
}

/// Whether a URL names a loopback address.
pub fn is_on_this_machine(endpoint_url: &str) -> bool {
    let uri = endpoint_url.parse::<http::Uri>().unwrap_or_default();
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
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
