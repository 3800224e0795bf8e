//! The parameters of a generated load.

use std::fmt::Display;

use api::Problem;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sharding::PartitionKey;

/// The maximum length of the keys' prefix, in bytes. The shard and the number of the key are
/// appended to it.
const MAX_PREFIX_BYTES: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LoadPlan {
    /// The key, or the prefix of several keys.
    pub(crate) partition_key: String,
    pub(crate) keys: u32,
    /// Writes per second, over all keys.
    pub(crate) writes: u32,
    /// Page reads per second.
    pub(crate) reads: u32,
    /// The approximate size of an item, in bytes.
    pub(crate) item_size: u32,
    /// 0 for an even load; otherwise the exponent of Zipf's law.
    pub(crate) skew: f64,
}

impl Default for LoadPlan {
    /// No load of one key, which has yet to be named.
    fn default() -> Self {
        let partition_key = String::new();
        Self { partition_key, keys: 1, writes: 0, reads: 0, item_size: 1_000, skew: 0.0 }
    }
}

impl LoadPlan {
    /// Reads a JSON object with these fields. Only `partition_key` is required.
    ///
    /// # Errors
    /// 400. The problem names the field.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let not_an_object = |error| {
            Problem::bad("invalid_json", "body", format_args!("it is not a JSON object: {error}"))
        };
        let fields: Map<String, Value> = serde_json::from_slice(body).map_err(not_an_object)?;
        let plan: Self = serde_path_to_error::deserialize(Value::Object(fields))
            .map_err(|error| wrong(&error.path().to_string(), error.inner()))?;
        PartitionKey::new(&plan.partition_key).map_err(|error| wrong("partition_key", error))?;
        let length = plan.partition_key.len();
        if length > MAX_PREFIX_BYTES {
            let why = format!("it has {length} bytes; at most {MAX_PREFIX_BYTES} are allowed");
            return Err(wrong("partition_key", why));
        }
        for (field, given, allowed) in [
            ("keys", f64::from(plan.keys), 1.0..=1_000.0),
            ("writes", f64::from(plan.writes), 0.0..=10_000.0),
            ("reads", f64::from(plan.reads), 0.0..=1_000.0),
            ("item_size", f64::from(plan.item_size), 1.0..=100_000.0),
            ("skew", plan.skew, 0.0..=4.0),
        ] {
            if !allowed.contains(&given) {
                let (least, most) = allowed.into_inner();
                return Err(wrong(field, format!("it is {given}; allowed: {least} to {most}")));
            }
        }
        Ok(plan)
    }

    /// The keys, hottest first.
    pub(crate) fn partition_keys(&self) -> Vec<String> {
        match self.keys {
            1 => vec![self.partition_key.clone()],
            keys => (1..=keys).map(|number| format!("{}-{number}", self.partition_key)).collect(),
        }
    }
}

fn wrong(field: &str, why: impl Display) -> Problem {
    Problem::bad("invalid_load", field, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field() {
        for (body, field) in [
            ("[]", "body"),
            ("{}", "partition_key"),
            (r#"{"partition_key":"","writes":1}"#, "partition_key"),
            (r#"{"partition_key":7,"writes":1}"#, "partition_key"),
            (r#"{"partition_key":"k","writes":-1}"#, "writes"),
            (r#"{"partition_key":"k","writes":1.5}"#, "writes"),
            (r#"{"partition_key":"k","writes":10001}"#, "writes"),
            (r#"{"partition_key":"k","writes":1,"keys":0}"#, "keys"),
            (r#"{"partition_key":"k","writes":1,"skew":"much"}"#, "skew"),
            (r#"{"partition_key":"k","writes":1,"rate":1}"#, "rate"),
        ] {
            let problem = LoadPlan::parse(body.as_bytes()).expect_err(body);
            assert!(problem.detail().starts_with(&format!("{field}: ")), "{body}: {problem:?}");
        }
    }

    #[test]
    fn one_key_is_itself_and_several_are_numbered() {
        for (keys, names) in [(1, vec!["k"]), (2, vec!["k-1", "k-2"])] {
            let plan = LoadPlan { partition_key: "k".into(), keys, ..LoadPlan::default() };
            assert_eq!(plan.partition_keys(), names);
        }
    }
}
