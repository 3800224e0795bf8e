//! Converts a line to a write.

use sharding::internal::write_units;
use sharding::{MAX_ITEM_BYTES, PartitionKey, SortKey, SortKeyType};

use super::AdviseOptions;
use super::row::{Row, Scalar};
use super::shown::shortened;
use super::time::epoch_second;

pub(super) struct Roles {
    names: Vec<String>,
    partition_key: usize,
    sort_key: Vec<usize>,
    time: Option<usize>,
    size: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) partition_key: PartitionKey,
    pub(super) sort_key: Option<SortKey>,
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
        let sort_key = options.sort_key.iter().map(&mut place).collect();
        let time = options.time.as_ref().map(&mut place);
        let size = options.size.as_ref().map(&mut place);
        Self { names, partition_key, sort_key, time, size }
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
        let (sort_key, units) = (self.sort_key(row)?, write_units(bytes as usize));
        Ok(Write { partition_key, sort_key, second, units })
    }

    /// Creates the sort key as `load` does: a number in one field stays a number, and several
    /// fields are joined.
    fn sort_key(&self, row: &Row<'_>) -> Result<Option<SortKey>, String> {
        let values = self.sort_key.iter().map(|place| self.value(row, *place));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let key_type = match values.as_slice() {
            [] => return Ok(None),
            [(_, only)] if only.is_number => SortKeyType::Number,
            _ => SortKeyType::String,
        };
        let (names, texts): (Vec<&str>, Vec<&str>) =
            values.into_iter().map(|(name, value)| (name, &*value.text)).unzip();
        let text = texts.join("#");
        let parsed = SortKey::parse(key_type, &text).map(Some);
        parsed.map_err(|error| wrong(&names.join("#"), &text, &error.to_string()))
    }

    fn parsed<T>(
        &self,
        row: &Row<'_>,
        place: usize,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        let (name, value) = self.value(row, place)?;
        parse(&value.text).map_err(|why| wrong(name, &value.text, &why))
    }

    fn value<'r, 'v>(
        &self,
        row: &'r Row<'v>,
        place: usize,
    ) -> Result<(&str, &'r Scalar<'v>), String> {
        let name = self.names.get(place).map_or("", String::as_str);
        let value = row.values.get(place).map(|value| (name, value));
        value.ok_or_else(|| format!("it has no field {name:?}"))
    }
}

fn wrong(name: &str, value: &str, why: &str) -> String {
    format!("its field {name:?} is \"{}\": {why}", shortened(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(sort_key: &[&str]) -> Roles {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Roles::new(&AdviseOptions {
            sort_key: names(sort_key),
            time: Some("t".into()),
            size: Some("n".into()),
            ..AdviseOptions::of("f".into(), "k".into())
        })
    }

    fn row<'a>([key, time, size]: [&'a str; 3], is_number: bool) -> Row<'a> {
        let value = |text: &'a str, is_number| Scalar { text: text.into(), is_number };
        let values = vec![value(key, false), value(time, is_number), value(size, is_number)];
        Row { line: 1, values, bytes: 10 }
    }

    #[test]
    fn a_field_may_have_several_roles() {
        let roles = roles(&["t", "k"]);
        assert_eq!(roles.names(), ["k", "t", "n"]);
        let write = roles.write(&row(["a", "7", "2049"], true)).unwrap();
        assert_eq!(write.sort_key, Some(SortKey::String("7#a".into())));
        assert_eq!((write.partition_key.as_str(), write.second, write.units), ("a", Some(7), 3));
    }

    #[test]
    fn one_number_stays_a_number() {
        let sort_key =
            |is_number| roles(&["t"]).write(&row(["a", "7", "0"], is_number)).unwrap().sort_key;
        assert_eq!(sort_key(true), Some(SortKey::Number("7".parse().unwrap())));
        assert_eq!(sort_key(false), Some(SortKey::String("7".into())));
    }

    #[test]
    fn a_line_larger_than_an_item_is_refused_without_a_size_field() {
        let long = |bytes: u64| Row { bytes, ..row(["a", "7", "1"], true) };
        let by_line = Roles::new(&AdviseOptions::of("f".into(), "k".into()));
        assert_eq!(by_line.write(&long(409_600)).unwrap().units, 400);
        let error = by_line.write(&long(2_000_000)).unwrap_err();
        assert!(error.contains("it has 2000000 bytes") && error.contains("--size"), "{error}");
        assert_eq!(roles(&["t"]).write(&long(2_000_000)).unwrap().units, 1);
    }

    #[test]
    fn an_error_names_the_field_and_its_value() {
        let (long, half) = ("x".repeat(2_049), "x".repeat(1_024));
        let rows = [
            (["", "7", "1"], "its field \"k\" is \"\": it is empty; a key has at least one byte"),
            ([&long, "7", "1"], "at most 2048 are allowed"),
            (["a", "noon", "1"], "its field \"t\" is \"noon\": epoch seconds"),
            (["a", "7", "1.5"], "its field \"n\" is \"1.5\": whole bytes"),
            (["a", "7", "409601"], "0 to 409600"),
            ([&half, "7", "1"], "its field \"t#k\""),
            ([&half, "7", "1"], "at most 1024"),
        ];
        for (values, why) in rows {
            let error = roles(&["t", "k"]).write(&row(values, true)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
