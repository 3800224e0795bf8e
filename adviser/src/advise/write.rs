//! Converts a line to a write.

use std::borrow::Cow;

use sharding::internal::write_units;
use sharding::{MAX_ITEM_BYTES, PartitionKey};

use super::AdviseOptions;
use super::shown::shortened;
use super::time::epoch_second;

/// One line of a file, of either format.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) line: u64,
    /// The wanted fields, in the order in which they were requested.
    pub(super) values: Vec<Cow<'a, str>>,
    /// The length of the JSON text, or of all names and values of a CSV record.
    pub(super) bytes: u64,
}

pub(super) struct Roles {
    names: Vec<String>,
    partition_key: usize,
    time: Option<usize>,
    size: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) partition_key: PartitionKey,
    pub(super) second: Option<i64>,
    pub(super) units: u64,
}

impl Roles {
    pub(super) fn new(options: &AdviseOptions) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut place = |name: &String| {
            names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            })
        };
        let partition_key = place(&options.partition_key);
        let time = options.time.as_ref().map(&mut place);
        let size = options.size.as_ref().map(&mut place);
        Self { names, partition_key, time, size }
    }

    /// The names of the fields to read, each once.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Converts a row with the fields of [`names`](Self::names).
    pub(super) fn write(&self, row: &Row<'_>) -> Result<Write, String> {
        let partition_key = self.parsed(row, self.partition_key, |text| {
            PartitionKey::new(text).map_err(|error| error.to_string())
        })?;
        let second = self.time.map(|time| self.parsed(row, time, epoch_second)).transpose()?;
        let bytes = match self.size {
            None if row.bytes > MAX_ITEM_BYTES as u64 => {
                return Err(format!(
                    "it has {} bytes, and an item may have at most {MAX_ITEM_BYTES}; use --size if items are smaller \
                     than their lines",
                    row.bytes
                ));
            }
            None => row.bytes,
            Some(size) => self.parsed(row, size, |text| {
                let most = MAX_ITEM_BYTES as u64;
                text.parse::<u64>().ok().filter(|bytes| *bytes <= most).ok_or_else(|| {
                    format!("whole bytes from 0 to {most}, the maximum of an item, are allowed")
                })
            })?,
        };
        Ok(Write { partition_key, second, units: write_units(bytes as usize) })
    }

    fn parsed<T>(
        &self,
        row: &Row<'_>,
        place: usize,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        let name = self.names.get(place).map_or("", String::as_str);
        let value = row.values.get(place).ok_or_else(|| format!("it has no field {name:?}"))?;
        let wrong = |why: String| format!("its field {name:?} is \"{}\": {why}", shortened(value));
        parse(value).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(size: &str) -> Roles {
        let (time, size) = (Some("t".into()), Some(size.into()));
        Roles::new(&AdviseOptions { time, size, ..AdviseOptions::of("f".into(), "k".into()) })
    }

    fn row<'a>(values: &[&'a str]) -> Row<'a> {
        Row { line: 1, values: values.iter().map(|value| (*value).into()).collect(), bytes: 10 }
    }

    #[test]
    fn a_field_may_have_several_roles() {
        let roles = roles("t");
        assert_eq!(roles.names(), ["k", "t"]);
        let write = roles.write(&row(&["a", "2049"])).unwrap();
        let found = (write.partition_key.as_str(), write.second, write.units);
        assert_eq!(found, ("a", Some(2_049), 3));
    }

    #[test]
    fn a_line_larger_than_an_item_is_refused_without_a_size_field() {
        let long = |bytes: u64| Row { bytes, ..row(&["a", "7", "1"]) };
        let by_line = Roles::new(&AdviseOptions::of("f".into(), "k".into()));
        assert_eq!(by_line.write(&long(409_600)).unwrap().units, 400);
        let error = by_line.write(&long(2_000_000)).unwrap_err();
        assert!(error.contains("it has 2000000 bytes") && error.contains("--size"), "{error}");
        assert_eq!(roles("n").write(&long(2_000_000)).unwrap().units, 1);
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
        for (values, why) in rows {
            let error = roles("n").write(&row(&values)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
