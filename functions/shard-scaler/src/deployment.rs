//! A custom resource of CloudFormation: a deployment over a table that exists already asks whether the table is there and has the configured keys.
//!
//! Why at deployment? Otherwise the first request would fail, and the deployment would look well. Why is every doubt an answer, and only an answer
//! that cannot be sent an error? CloudFormation waits an hour for a request that nobody answers.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{KeyType, TableDescription, TableStatus};
use aws_smithy_http_client::{Connector, tls};
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use http::Uri;
use http::uri::Scheme;
use serde_json::{Map, Value, json};
use sharding::{Deadline, SortKeyType};
use tokio::time::{sleep, timeout_at};

use crate::Scaler;
use crate::event::{EventError, wrong};
use crate::failure::failed;

/// What is kept of an invocation's time for sending the answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);
/// The longest that the table is looked at. The template lets CloudFormation wait for a minute.
const LONGEST_LOOK: Duration = Duration::from_secs(20);
/// Between two looks. A role that was made a moment ago may not be known everywhere yet.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// The answer may have 4,096 bytes, whatever DynamoDB has to say. [CloudFormation user guide, custom resource response objects]
const LONGEST_REASON: usize = 1_000;

/// A request of CloudFormation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomResource {
    kind: RequestKind,
    response_url: ResponseUrl,
    /// What the answer repeats.
    stack_id: String,
    request_id: String,
    logical_resource_id: String,
    physical_resource_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Create,
    Update,
    Delete,
}

impl RequestKind {
    const NAMES: [(&'static str, Self); 3] =
        [("Create", Self::Create), ("Update", Self::Update), ("Delete", Self::Delete)];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// Where the answer goes. Whoever has it may answer, so it is never shown.
#[derive(Clone, PartialEq, Eq)]
struct ResponseUrl(Uri);

impl fmt::Debug for ResponseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseUrl")
    }
}

impl CustomResource {
    /// Reads a request.
    pub(crate) fn parse(event: &Map<String, Value>) -> Result<Self, EventError> {
        let text = |field: &'static str| {
            let value = event.get(field).and_then(Value::as_str).map(str::to_owned);
            value.ok_or_else(|| wrong(field, "it must be a string".into()))
        };
        let asked = text("RequestType")?;
        let kind = RequestKind::NAMES.iter().find(|(name, _)| *name == asked).map(|(_, kind)| *kind);
        Ok(Self {
            kind: kind
                .ok_or_else(|| wrong("RequestType", format!("it is {asked:?}; allowed: Create, Update, Delete")))?,
            response_url: ResponseUrl::parse(&text("ResponseURL")?)?,
            stack_id: text("StackId")?,
            request_id: text("RequestId")?,
            logical_resource_id: text("LogicalResourceId")?,
            physical_resource_id: event.get("PhysicalResourceId").and_then(Value::as_str).map(str::to_owned),
        })
    }
}

impl ResponseUrl {
    fn parse(url: &str) -> Result<Self, EventError> {
        let uri = url.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
        let is_safe = |uri: &Uri| {
            uri.scheme() == Some(&Scheme::HTTPS) || (uri.scheme() == Some(&Scheme::HTTP) && is_loopback(uri))
        };
        let why = "allowed: an https URL, or an http URL of this machine (the value is a secret, and not shown)";
        uri.filter(is_safe).map(Self).ok_or_else(|| wrong("ResponseURL", why.into()))
    }
}

fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Scaler {
    /// Answers CloudFormation, and says what it was told.
    pub(crate) async fn deployment(&self, request: &CustomResource, deadline: Deadline) -> Value {
        let verdict = match request.kind {
            RequestKind::Create | RequestKind::Update => {
                self.check_table((deadline - ANSWER_TIME).min(Deadline::now() + LONGEST_LOOK)).await
            }
            // Nothing was made, so nothing is to be removed.
            RequestKind::Delete => Ok(()),
        };
        let (status, reason) = match verdict {
            Ok(()) => ("SUCCESS", String::new()),
            Err(why) => ("FAILED", why.chars().take(LONGEST_REASON).collect()),
        };
        let table = &self.table.config().table_name;
        let response = json!({
            "Status": status,
            "Reason": reason,
            // Another table is another resource.
            "PhysicalResourceId": match request.kind {
                RequestKind::Create | RequestKind::Update => table,
                RequestKind::Delete => request.physical_resource_id.as_ref().unwrap_or(table),
            },
            "StackId": request.stack_id,
            "RequestId": request.request_id,
            "LogicalResourceId": request.logical_resource_id,
            "NoEcho": false,
            "Data": {},
        });
        let answer = json!({
            "action": "deployment",
            "request": request.kind.name(),
            "table": table,
            "status": status,
            "reason": reason,
            "outcome": "handled",
        });
        match put(&request.response_url, &response, deadline).await {
            Ok(()) => answer,
            Err(why) => {
                tracing::error!(error = why, "CloudFormation did not take the answer");
                failed(answer, format!("ResponseURL: {why}"), true)
            }
        }
    }

    /// Whether the configured table can be used; the text says what it is, and what is needed.
    async fn check_table(&self, deadline: Deadline) -> Result<(), String> {
        let config = self.table.config();
        let name = &config.table_name;
        let describe = || timeout_at(deadline, self.clients.dynamodb.describe_table().table_name(name).send());
        let described = loop {
            let described = describe()
                .await
                .map_err(|_| format!("The table {name:?} could not be described: no answer in time."))?;
            let is_denied = described.as_ref().is_err_and(|error| error.code() == Some("AccessDeniedException"));
            if !is_denied || Deadline::now() + LOOK_AGAIN >= deadline {
                break described;
            }
            sleep(LOOK_AGAIN).await;
        };
        let table = described.map_err(|error| {
            if error.as_service_error().is_some_and(|error| error.is_resource_not_found_exception()) {
                return format!("The table {name:?} does not exist in this account and Region. Name one that does.");
            }
            let (code, message) = (error.code().unwrap_or("no answer"), error.message().unwrap_or("try again"));
            format!("The table {name:?} could not be described: {code}: {message}")
        })?;
        let table = table.table.ok_or_else(|| format!("The table {name:?} has no description."))?;
        let status = table.table_status().map_or("unknown", TableStatus::as_str);
        if !matches!(table.table_status(), Some(TableStatus::Active | TableStatus::Updating)) {
            return Err(format!("The table {name:?} is {status}; it must be ACTIVE or UPDATING."));
        }
        let sort_key_type = match config.sort_key_type {
            SortKeyType::String => "S",
            SortKeyType::Number => "N",
        };
        let needed = keys(Some((&config.partition_key_name, "S")), Some((&config.sort_key_name, sort_key_type)));
        let found = keys(key(&table, &KeyType::Hash), key(&table, &KeyType::Range));
        if found == needed {
            return Ok(());
        }
        Err(format!(
            "The table {name:?} has {found}; needed: {needed}. Name another table, or its own keys by PARTITION_KEY_NAME, SORT_KEY_NAME and SORT_KEY_TYPE."
        ))
    }
}

/// A key's attribute and its type.
fn key<'a>(table: &'a TableDescription, role: &KeyType) -> Option<(&'a str, &'a str)> {
    let name = table.key_schema().iter().find(|key| key.key_type() == role)?.attribute_name();
    let definition = table.attribute_definitions().iter().find(|definition| definition.attribute_name() == name);
    Some((name, definition.map_or("unknown", |definition| definition.attribute_type().as_str())))
}

fn keys(partition_key: Option<(&str, &str)>, sort_key: Option<(&str, &str)>) -> String {
    let told = |kind: &str, key: Option<(&str, &str)>| {
        key.map_or_else(|| format!("no {kind}"), |(name, of_type)| format!("the {kind} {name:?} of type {of_type}"))
    };
    format!("{} and {}", told("partition key", partition_key), told("sort key", sort_key))
}

/// Sends the answer. The text of an error does not have the URL.
async fn put(url: &ResponseUrl, response: &Value, deadline: Deadline) -> Result<(), String> {
    // The URL is signed without a content type, so the header must be empty.
    let request = http::Request::put(url.0.clone()).header(http::header::CONTENT_TYPE, "");
    let request = request.body(SdkBody::from(response.to_string())).map_err(|_| "no request can be made of it")?;
    let request = HttpRequest::try_from(request).map_err(|_| "no request can be made of it")?;
    // Made when it is needed: it reads the system's certificates, and a deployment is rare.
    let provider = tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring);
    let connector = Connector::builder().tls_provider(provider).build();
    match timeout_at(deadline, connector.call(request)).await {
        Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
        Ok(Ok(answer)) => Err(format!("status {}", answer.status().as_u16())),
        Ok(Err(_)) => Err("the connection failed".into()),
        Err(_) => Err("no answer in time".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(response_url: &str) -> Value {
        json!({
            "RequestType": "Create",
            "ResponseURL": response_url,
            "StackId": "stack",
            "RequestId": "request",
            "LogicalResourceId": "ExistingTable",
            "ResourceProperties": {},
        })
    }

    fn parse(event: &Value) -> Result<CustomResource, EventError> {
        CustomResource::parse(event.as_object().unwrap())
    }

    #[test]
    fn answers_go_only_to_https_or_to_this_machine_and_the_url_is_never_shown() {
        for url in [
            "https://bucket.s3.amazonaws.com/a%7Cb?signature=secret",
            "http://127.0.0.1:1/x",
            "http://[::1]:1/x",
            "http://localhost/x",
        ] {
            let parsed = parse(&request(url)).unwrap();
            assert!(!format!("{parsed:?}").contains(url), "{parsed:?}");
        }
        for url in [
            "http://bucket.s3.amazonaws.com/?secret",
            "http://127.0.0.1@evil.example/?secret",
            "ftp://127.0.0.1/?secret",
            "/?secret",
            "secret",
            "",
        ] {
            let error = parse(&request(url)).unwrap_err();
            assert_eq!(error.field, "ResponseURL", "{url}");
            assert!(!error.why.contains("secret?") && !error.why.contains("evil"), "{error}");
        }
    }

    #[test]
    fn a_damaged_request_is_told_by_its_field() {
        for field in ["RequestType", "StackId", "RequestId", "LogicalResourceId"] {
            let mut event = request("https://example.com/");
            event[field] = Value::Null;
            assert_eq!(parse(&event).unwrap_err().field, field);
        }
        let mut event = request("https://example.com/");
        event["RequestType"] = "Replace".into();
        let error = parse(&event).unwrap_err();
        assert!(error.why.contains("Replace") && error.why.contains("Create, Update, Delete"), "{error}");
    }
}
