//! Converts a line to a write.

use cli::records::{field, object};
use serde_json::{Map, Value};
use sharding::internal::write_units;
use sharding::{MAX_ITEM_BYTES, PartitionKey};

use super::WriteOptions;
use super::shown::shortened;
use super::time::epoch_second;

#[derive(Debug)]
pub(super) struct Write {
    pub(super) partition_key: PartitionKey,
    pub(super) second: Option<i64>,
    pub(super) units: u64,
}

impl Write {
    /// Reads the fields that the options name from a line.
    pub(super) fn of(line: &str, options: &WriteOptions) -> Result<Self, String> {
        let object = object(line)?;
        let partition_key = parsed(&object, &options.partition_key, |text| {
            PartitionKey::new(text).map_err(|error| error.to_string())
        })?;
        let time = options.time.as_ref();
        let second = time.map(|time| parsed(&object, time, epoch_second)).transpose()?;
        let bytes = match &options.size {
            None if line.len() > MAX_ITEM_BYTES => {
                return Err(format!(
                    "it has {} bytes, and an item may have at most {MAX_ITEM_BYTES}; use --size if items are smaller \
                     than their lines",
                    line.len()
                ));
            }
            None => line.len(),
            Some(size) => parsed(&object, size, |text| {
                text.parse::<usize>().ok().filter(|bytes| *bytes <= MAX_ITEM_BYTES).ok_or_else(|| {
                    format!(
                        "whole bytes from 0 to {MAX_ITEM_BYTES}, the maximum of an item, are allowed"
                    )
                })
            })?,
        };
        Ok(Self { partition_key, second, units: write_units(bytes) })
    }
}

fn parsed<T>(
    object: &Map<String, Value>,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    let value = field(object, name)?;
    parse(&value).map_err(|why| format!("its field {name:?} is \"{}\": {why}", shortened(&value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(size: &str) -> WriteOptions {
        let (time, size) = (Some("t".into()), Some(size.into()));
        WriteOptions { time, size, ..WriteOptions::of("k") }
    }

    #[test]
    fn a_field_may_have_several_roles() {
        let write = Write::of(r#"{"k":"a","t":2049}"#, &options("t")).unwrap();
        let found = (write.partition_key.as_str(), write.second, write.units);
        assert_eq!(found, ("a", Some(2_049), 3));
    }

    #[test]
    fn a_line_larger_than_an_item_is_refused_without_a_size_field() {
        let long = |bytes: usize| {
            let line = r#"{"k":"a","t":7,"n":1,"x":""}"#;
            line.replace(r#""""#, &format!("\"{}\"", "x".repeat(bytes - line.len())))
        };
        let by_line = WriteOptions::of("k");
        assert_eq!(Write::of(&long(409_600), &by_line).unwrap().units, 400);
        let error = Write::of(&long(2_000_000), &by_line).unwrap_err();
        assert!(error.contains("it has 2000000 bytes") && error.contains("--size"), "{error}");
        assert_eq!(Write::of(&long(2_000_000), &options("n")).unwrap().units, 1);
    }

    #[test]
    fn an_error_names_the_field_and_its_value() {
        let long = "x".repeat(2_049);
        let rows = [
            (["", "7", "1"], "its field \"k\" is \"\": it is empty; a key has at least one byte"),
            ([&long, "7", "1"], "at most 2048 are allowed"),
            (["a", "noon", "1"], "its field \"t\" is \"noon\": epoch seconds"),
            (["a", "7", "1.5"], "its field \"n\" is \"1.5\": whole bytes"),
            (["a", "7", "409601"], "0 to 409600"),
        ];
        for ([key, time, size], why) in rows {
            let line = format!("{{\"k\":\"{key}\",\"t\":\"{time}\",\"n\":\"{size}\"}}");
            let error = Write::of(&line, &options("n")).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
