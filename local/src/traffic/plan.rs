//! What load is generated.

use std::fmt::Display;
use std::ops::RangeInclusive;

use api::Problem;
use serde::Serialize;
use serde_json::{Map, Value};
use sharding::internal::PartitionKey;

/// The longest prefix of the keys, in bytes: shards and numbers of keys are added to it.
const MAX_PREFIX_BYTES: usize = 1_000;

/// Writes and reads of some keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LoadPlan {
    /// The key, or where there are several the beginning of each.
    pub(crate) partition_key: String,
    /// How many keys.
    pub(crate) keys: u32,
    /// Writes a second, of all keys together.
    pub(crate) writes: u32,
    /// Reads of a page a second.
    pub(crate) reads: u32,
    /// Bytes of an item, about.
    pub(crate) item_size: u32,
    /// 0 for keys that take the same; the exponent of Zipf's law above.
    pub(crate) skew: f64,
}

impl LoadPlan {
    /// Reads a JSON object with just these fields; only `partition_key` and `writes` are required.
    ///
    /// # Errors
    /// 400, naming the field.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let json = |error| Problem::bad("invalid_json", "body", format_args!("it is not a JSON object: {error}"));
        let fields: Map<String, Value> = serde_json::from_slice(body).map_err(json)?;
        const NAMES: [&str; 6] = ["partition_key", "keys", "writes", "reads", "item_size", "skew"];
        if let Some(unknown) = fields.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(wrong(unknown, format_args!("it is no field; allowed: {}", NAMES.join(", "))));
        }
        let partition_key = match fields.get("partition_key") {
            Some(Value::String(key)) if key.len() <= MAX_PREFIX_BYTES => key.clone(),
            other => return Err(wrong("partition_key", not_a_key(other))),
        };
        PartitionKey::new(&partition_key).map_err(|error| Problem::key("invalid_load", "partition_key", &error))?;
        let skew = match fields.get("skew").map(|skew| (skew, skew.as_f64())) {
            None => 0.0,
            Some((_, Some(skew))) if (0.0..=4.0).contains(&skew) => skew,
            Some((other, _)) => {
                return Err(wrong("skew", format_args!("it is {other}; allowed: a number from 0 to 4")));
            }
        };
        Ok(Self {
            partition_key,
            keys: whole(&fields, "keys", 1..=1_000, Some(1))?,
            writes: whole(&fields, "writes", 0..=10_000, None)?,
            reads: whole(&fields, "reads", 0..=1_000, Some(0))?,
            item_size: whole(&fields, "item_size", 1..=100_000, Some(1_000))?,
            skew,
        })
    }

    /// The keys, from the one that takes the most.
    pub(crate) fn partition_keys(&self) -> Vec<String> {
        match self.keys {
            1 => vec![self.partition_key.clone()],
            keys => (1..=keys).map(|number| format!("{}-{number}", self.partition_key)).collect(),
        }
    }
}

fn not_a_key(given: Option<&Value>) -> String {
    match given {
        None => format!("it is missing; allowed: a text of 1 to {MAX_PREFIX_BYTES} bytes"),
        Some(Value::String(text)) => format!("it has {} bytes; at most {MAX_PREFIX_BYTES} are allowed", text.len()),
        Some(other) => format!("it is {other}; allowed: a text"),
    }
}

fn whole(
    fields: &Map<String, Value>,
    name: &str,
    allowed: RangeInclusive<u32>,
    default: Option<u32>,
) -> Result<u32, Problem> {
    let (least, most) = (allowed.start(), allowed.end());
    match (fields.get(name), default) {
        (None, Some(default)) => Ok(default),
        (None, None) => Err(wrong(name, format_args!("it is missing; allowed: {least} to {most}"))),
        (Some(given), _) => {
            let number = given.as_u64().and_then(|number| u32::try_from(number).ok());
            number.filter(|number| allowed.contains(number)).ok_or_else(|| {
                wrong(name, format_args!("it is {given}; allowed: whole numbers from {least} to {most}"))
            })
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
    fn what_is_wrong_is_named() {
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
            assert!(problem.detail().starts_with(&format!("{field}: ")), "{body}: {}", problem.detail());
        }
    }

    #[test]
    fn one_key_is_itself_and_several_are_numbered() {
        let plan = |keys| LoadPlan::parse(format!(r#"{{"partition_key":"k","writes":1,"keys":{keys}}}"#).as_bytes());
        assert_eq!(plan(1).expect("a plan").partition_keys(), ["k"]);
        assert_eq!(plan(2).expect("a plan").partition_keys(), ["k-1", "k-2"]);
    }
}
