//! The variables of a table's configuration.

use std::sync::LazyLock;

use crate::config::setting::{Setting, number, read};
use crate::config::{
    COUNTS, ConfigError, MAX_SHARDS_LIMIT, SEPARATORS, ScalingActors, TableConfig, Writes,
};
use crate::protocol::names::{ENTRY_PREFIX, METADATA_ATTRIBUTES, RESERVED_PREFIX};
use crate::values::key::{Separator, ShardCount, ShardKeys, SortKeyType};
use crate::values::placement::Placement;

/// The largest number of global secondary indexes of a table. (DynamoDB developer guide, "Quotas in
/// Amazon DynamoDB".)
const MAX_INDEXES: usize = 20;
const TABLE_NAMES: &str =
    "a table name of 3 to 255 letters, digits, '_', '-' and '.', or a table ARN";
const KEY_NAMES: &str = "an attribute name of 1 to 255 bytes that differs from the other key's and from the metadata's own attributes, and does not begin with _sh: or key:";
const TTL_NAMES: &str =
    "an attribute name of 1 to 255 bytes that is none of the keys' and none of the product's own";
const INDEXES: &str = "up to 20 different index names of 3 to 255 letters, digits, '_', '-' and '.', separated by commas";

const SORT_KEY_TYPES: [(&str, SortKeyType); 2] =
    [("S", SortKeyType::String), ("N", SortKeyType::Number)];

/// The variables that all functions read.
pub static TABLE: LazyLock<[Setting<TableConfig>; 17]> = LazyLock::new(|| {
    type Row = Setting<TableConfig>;
    let text = |name, allowed, field, parse: fn(&str) -> Option<String>| {
        Row::parsed(name, allowed, field, parse, String::clone)
    };
    [
        text("TABLE_NAME", TABLE_NAMES, |c| &mut c.table_name, table_name).required(),
        text("METADATA_TABLE_NAME", TABLE_NAMES, |c| &mut c.metadata_table_name, table_name)
            .required(),
        text("PARTITION_KEY_NAME", KEY_NAMES, |c| &mut c.partition_key_name, key_name),
        text("SORT_KEY_NAME", KEY_NAMES, |c| &mut c.sort_key_name, key_name),
        Row::one_of("SORT_KEY_TYPE", &SORT_KEY_TYPES, |c| &mut c.sort_key_type),
        Row::one_of("SHARD_PLACEMENT", &Placement::NAMES, |c| &mut c.placement),
        Row::parsed("MAX_SHARDS", COUNTS, |c| &mut c.policy.max_shards, shards, |n| n.to_string()),
        Row::number("COOLDOWN_SECONDS", 0..=86_400, |c| &mut c.policy.cooldown_seconds),
        Row::duration("LEASE_MS", 1, 1..=1_000, |c| &mut c.lease),
        Row::one_of("WRITES", &Writes::NAMES, |c| &mut c.writes),
        Row::flag("REGISTER_KEYS", |c| &mut c.register_keys),
        Row::one_of("SCALING", &ScalingActors::NAMES, |c| &mut c.scaling),
        Row::parsed("READ_REPLICAS", INDEXES, |c| &mut c.read_replicas, indexes, |n| n.join(",")),
        Row::parsed(
            "TTL_ATTRIBUTE",
            TTL_NAMES,
            |c| &mut c.ttl_attribute,
            |name| attribute_name(name).map(Some),
            |name| name.clone().unwrap_or_default(),
        ),
        Row::duration("LET_EXPIRE_SECONDS", 1_000, 0..=31_536_000, |c| &mut c.let_expire),
        Row::new(
            "ADOPT_SHARDS",
            "a whole number from 0 to 10000",
            |c| match c.shard_keys {
                ShardKeys::KeyFirst => "0".to_owned(),
                ShardKeys::Suffixed(_) => c.adopt_shards.to_string(),
            },
            |c, value| {
                if value != "0" {
                    c.adopt_shards = shards(value)?;
                    c.shard_keys = ShardKeys::Suffixed(Separator::default());
                }
                Some(())
            },
        ),
        Row::new(
            "SHARD_SEPARATOR",
            SEPARATORS,
            |_| Separator::default().as_str().to_owned(),
            |c, text| {
                let suffixed = ShardKeys::Suffixed(Separator::new(text)?);
                (c.shard_keys != ShardKeys::KeyFirst).then(|| c.shard_keys = suffixed)
            },
        ),
    ]
});

impl TableConfig {
    /// Reads the variables from `lookup`, such as `|name| std::env::var(name).ok()`. An empty value
    /// counts as not set.
    ///
    /// # Errors
    /// [`ConfigError`] names the first variable that is missing or wrong.
    pub fn from_variables(
        lookup: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let config = read(&*TABLE, Self::new("", ""), lookup)?;
        config.check_names()?;
        config.check_placement("SHARD_PLACEMENT")?;
        Ok(config)
    }

    fn check_names(&self) -> Result<(), ConfigError> {
        let (partition, sort) = (&self.partition_key_name, &self.sort_key_name);
        let wrong = |setting, value: &str, allowed| {
            Err(ConfigError::Wrong { setting, value: value.to_owned(), allowed })
        };
        match &self.ttl_attribute {
            _ if sort == partition => wrong("SORT_KEY_NAME", sort, KEY_NAMES),
            Some(ttl) if ttl == partition || ttl == sort => wrong("TTL_ATTRIBUTE", ttl, TTL_NAMES),
            Some(_) | None => Ok(()),
        }
    }
}

fn table_name(name: &str) -> Option<String> {
    let is_arn = name.starts_with("arn:") && name.contains(":table/") && name.len() <= 1_024;
    (is_plain(name) || is_arn).then(|| name.to_owned())
}

fn indexes(list: &str) -> Option<Vec<String>> {
    let names: Vec<String> = list.split(',').map(|name| name.trim().to_owned()).collect();
    let is_good =
        |name: &String| is_plain(name) && names.iter().filter(|other| *other == name).count() == 1;
    (names.iter().all(is_good) && names.len() <= MAX_INDEXES).then_some(names)
}

fn is_plain(name: &str) -> bool {
    (3..=255).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn attribute_name(name: &str) -> Option<String> {
    ((1..=255).contains(&name.len()) && !name.starts_with(RESERVED_PREFIX)).then(|| name.to_owned())
}

fn key_name(name: &str) -> Option<String> {
    attribute_name(name)
        .filter(|_| !METADATA_ATTRIBUTES.contains(&name) && !name.starts_with(ENTRY_PREFIX))
}

fn shards(value: &str) -> Option<ShardCount> {
    let number = number(value, &(1..=MAX_SHARDS_LIMIT.into()))?;
    ShardCount::new(u32::try_from(number).ok()?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn with(name: &'static str, value: &str) -> Result<TableConfig, ConfigError> {
        TableConfig::from_variables(|variable| match variable {
            _ if variable == name => Some(value.to_owned()),
            "TABLE_NAME" => Some("items".into()),
            "METADATA_TABLE_NAME" => Some("items-metadata".into()),
            _ => None,
        })
    }

    #[test]
    fn every_variable_set_wrong_is_named_with_its_value() {
        let rows: [(&'static str, &[&str]); 16] = [
            ("TABLE_NAME", &["x", "with space"]),
            ("METADATA_TABLE_NAME", &["ä-table"]),
            ("PARTITION_KEY_NAME", &["_sh:v", "shard_history", "copies", "key:"]),
            ("SORT_KEY_NAME", &["partition_key", "key:orders"]),
            ("SORT_KEY_TYPE", &["B"]),
            ("SHARD_PLACEMENT", &["modulo", "modulo-md5"]),
            ("ADOPT_SHARDS", &["-1", "10001"]),
            ("SHARD_SEPARATOR", &["-1-", "#"]),
            ("MAX_SHARDS", &["0", "10001"]),
            ("COOLDOWN_SECONDS", &["-1"]),
            ("LEASE_MS", &["1001", "0"]),
            ("WRITES", &["yes"]),
            ("REGISTER_KEYS", &["yes"]),
            ("SCALING", &["none"]),
            ("READ_REPLICAS", &["a,b", "replica-1,replica-1", "replica 1"]),
            ("TTL_ATTRIBUTE", &["_sh:w", "sort_key"]),
        ];
        for (variable, values) in rows {
            for value in values {
                let error = with(variable, value).unwrap_err();
                let start = format!("{variable} is {value:?}; allowed: ");
                assert!(error.to_string().starts_with(&start), "{error}");
            }
        }
        let error = |variable, value| with(variable, value).unwrap_err().to_string();
        assert!(error("TABLE_NAME", "").starts_with("TABLE_NAME is not set; allowed: a table"));
        assert_eq!(error("WRITES", "x"), r#"WRITES is "x"; allowed: items or appends"#);
        assert_eq!(error("SCALING", "x"), r#"SCALING is "x"; allowed: writer, alarm or both"#);
    }

    #[test]
    fn every_default_is_allowed() {
        let mut defaults = TableConfig::new("", "");
        // The separator needs ADOPT_SHARDS.
        for setting in TABLE.iter().filter(|setting| setting.name != "SHARD_SEPARATOR") {
            let Some(default) = setting.value_in(&mut defaults) else { continue };
            let mut config = with(setting.name, &default).unwrap();
            assert_eq!(setting.value_in(&mut config), Some(default));
        }
    }

    #[test]
    fn every_variable_set_right_is_taken() {
        assert_eq!(with("ADOPT_SHARDS", "1").unwrap().shard_keys.parse("a"), None);
        assert_eq!(with("MAX_SHARDS", "7").unwrap().policy.max_shards.get(), 7);
        assert_eq!(with("LEASE_MS", "250").unwrap().lease, Duration::from_millis(250));
        assert_eq!(with("READ_REPLICAS", "one, two").unwrap().read_replicas, ["one", "two"]);
        assert_eq!(with("WRITES", "appends").unwrap().writes, Writes::Appends);
        assert!(with("REGISTER_KEYS", "true").unwrap().register_keys);
        assert!(!with("SCALING", "alarm").unwrap().scaling.includes_writer());
        assert_eq!(with("SORT_KEY_TYPE", "N").unwrap().sort_key_type, SortKeyType::Number);
        assert!(with("TABLE_NAME", "arn:aws:dynamodb:eu-west-1:123456789012:table/items").is_ok());
    }
}
