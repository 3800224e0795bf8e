//! The parameters of a generated load.

use std::fmt::Display;
use std::ops::RangeInclusive;

use api::Problem;
use serde::Serialize;
use serde_json::{Map, Value};
use sharding::PartitionKey;

/// The maximum length of the keys' prefix, in bytes. The shard and the number of the key are
/// appended to it.
const MAX_PREFIX_BYTES: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Serialize)]
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

impl LoadPlan {
    /// Reads a JSON object with these fields. Only `partition_key` and `writes` are required.
    ///
    /// # Errors
    /// 400. The problem names the field.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let json = |error| {
            Problem::bad("invalid_json", "body", format_args!("it is not a JSON object: {error}"))
        };
        let fields: Map<String, Value> = serde_json::from_slice(body).map_err(json)?;
        const NAMES: [&str; 6] = ["partition_key", "keys", "writes", "reads", "item_size", "skew"];
        if let Some(unknown) = fields.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(wrong(unknown, format!("it is not known; allowed: {}", NAMES.join(", "))));
        }
        let partition_key = match fields.get("partition_key") {
            Some(Value::String(key)) if key.len() <= MAX_PREFIX_BYTES => key.clone(),
            other => return Err(wrong("partition_key", not_a_key(other))),
        };
        PartitionKey::new(&partition_key).map_err(|error| wrong("partition_key", error))?;
        let skew = fields.get("skew").map_or(Ok(0.0), |given| {
            let skew = given.as_f64().filter(|skew| (0.0..=4.0).contains(skew));
            let why = format!("it is {given}; allowed: a number from 0 to 4");
            skew.ok_or_else(|| wrong("skew", why))
        })?;
        Ok(Self {
            partition_key,
            keys: whole(&fields, "keys", 1..=1_000, Some(1))?,
            writes: whole(&fields, "writes", 0..=10_000, None)?,
            reads: whole(&fields, "reads", 0..=1_000, Some(0))?,
            item_size: whole(&fields, "item_size", 1..=100_000, Some(1_000))?,
            skew,
        })
    }

    /// The keys, hottest first.
    pub(crate) fn partition_keys(&self) -> Vec<String> {
        match self.keys {
            1 => vec![self.partition_key.clone()],
            keys => (1..=keys).map(|number| format!("{}-{number}", self.partition_key)).collect(),
        }
    }
}

fn not_a_key(given: Option<&Value>) -> String {
    match given {
        None => format!("it is missing; allowed: a string of 1 to {MAX_PREFIX_BYTES} bytes"),
        Some(Value::String(text)) => {
            format!("it has {} bytes; at most {MAX_PREFIX_BYTES} are allowed", text.len())
        }
        Some(other) => format!("it is {other}; allowed: a string"),
    }
}

fn whole(
    fields: &Map<String, Value>,
    name: &str,
    allowed: RangeInclusive<u32>,
    default: Option<u32>,
) -> Result<u32, Problem> {
    let (least, most) = (allowed.start(), allowed.end());
    let Some(given) = fields.get(name) else {
        let missing = || wrong(name, format!("it is missing; allowed: {least} to {most}"));
        return default.ok_or_else(missing);
    };
    let number = given.as_u64().and_then(|number| u32::try_from(number).ok());
    number.filter(|number| allowed.contains(number)).ok_or_else(|| {
        wrong(name, format!("it is {given}; allowed: a whole number from {least} to {most}"))
    })
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
            (r#"{"partition_key":"k"}"#, "writes"),
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
            let body = format!(r#"{{"partition_key":"k","writes":1,"keys":{keys}}}"#);
            let plan = LoadPlan::parse(body.as_bytes()).expect("a plan");
            assert_eq!(plan.partition_keys(), names);
        }
    }
}
