//! The caller of a request. ARNs in its responses name its region, as those of DynamoDB do; the
//! database has a fixed region.

use dynoxide::streams::{LOCAL_ACCOUNT, LOCAL_REGION};
use serde_json::Value;

/// The region of a caller that does not sign its requests.
pub(crate) const UNSIGNED: &str = "local";
/// Parts of the names of the operations whose responses have ARNs.
const WITH_ARNS: [&str; 3] = ["Table", "Stream", "Records"];

#[derive(Debug, Clone)]
pub(crate) struct Caller {
    region: String,
}

impl Default for Caller {
    fn default() -> Self {
        Self { region: UNSIGNED.to_owned() }
    }
}

impl Caller {
    /// The sender of a request with this header, if the request is signed.
    pub(crate) fn of(authorization: Option<&str>) -> Self {
        Self { region: authorization.and_then(signed_region).unwrap_or(UNSIGNED).to_owned() }
    }

    /// The ARN of a table or an index.
    pub(crate) fn arn(&self, resource: &str) -> String {
        format!("arn:aws:dynamodb:{}:{LOCAL_ACCOUNT}:table/{resource}", self.region)
    }

    /// Replaces the caller's region in the one parameter that the database compares with its ARNs.
    pub(crate) fn take_region_from(&self, request: &mut Value) {
        if let Some(Value::String(arn)) = request.get_mut("ExclusiveStartStreamArn") {
            *arn = moved(arn, &self.region, LOCAL_REGION);
        }
    }

    /// Puts the caller's region into a response.
    pub(crate) fn put_region_into(&self, operation: &str, response: &mut Value) {
        if WITH_ARNS.iter().any(|part| operation.contains(part)) {
            self.put_region(response);
        }
    }

    /// A string at one of these names is no user's data: in DynamoDB's JSON, the name of a user's
    /// attribute has an object.
    fn put_region(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let Value::String(text) = value else {
                        self.put_region(value);
                        continue;
                    };
                    if name.ends_with("Arn") {
                        *text = moved(text, LOCAL_REGION, &self.region);
                    } else if name == "awsRegion" {
                        text.clone_from(&self.region);
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.put_region(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// An ARN of the region `from` with the region `to`. Another text stays as it is.
fn moved(arn: &str, from: &str, to: &str) -> String {
    arn.replacen(&format!(":{from}:"), &format!(":{to}:"), 1)
}

/// The region in the header of a signed request: `AWS4-HMAC-SHA256
/// Credential=KEY/20261124/eu-west-1/dynamodb/aws4_request, SignedHeaders=…`.
fn signed_region(authorization: &str) -> Option<&str> {
    let (_, credential) = authorization.split_once("Credential=")?;
    let scope: Vec<&str> = credential.split(',').next()?.split('/').collect();
    match scope[..] {
        [_, _, region, _, "aws4_request"] if !region.is_empty() => Some(region),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_that_of_the_signature() {
        let signed = |scope: &str| format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=h");
        let rows = [
            (signed("KEY/20261124/eu-west-1/dynamodb/aws4_request"), Some("eu-west-1")),
            (signed("KEY/20261124//dynamodb/aws4_request"), None),
            (signed("KEY/20261124/dynamodb/aws4_request"), None),
            ("Bearer token".to_owned(), None),
        ];
        for (authorization, region) in rows {
            assert_eq!(signed_region(&authorization), region, "{authorization}");
        }
    }
}
