//! The configuration of a table: the defaults, or the environment of a function.

mod pace;
mod settings;
pub(crate) mod width_history;

use std::sync::LazyLock;
use std::time::Duration;

use crate::policy::capacity::CapacityScope;
use crate::policy::rules::ScalingPolicy;
use crate::protocol::armed::{ARMING_WAIT, PATTERN_LEASE};
use crate::protocol::drain::Waits;
use crate::protocol::names::{ENTRY_PREFIX, METADATA_ATTRIBUTES, RESERVED_PREFIX};
use crate::protocol::view::{APPEND_LEASE, LONGEST_READ, MAX_LEASE};
use crate::values::key::{Separator, ShardCount, ShardKeys, SortKeyType};
use crate::values::placement::Placement;

pub use pace::DrainPace;

/// The functions that raise the number of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ScalingActors {
    /// Writers do, when they are throttled.
    Writer,
    /// The shard-scaler does, when the alarm wakes it.
    Alarm,
    /// Both do.
    #[default]
    Both,
}

impl ScalingActors {
    const NAMES: [(&'static str, Self); 3] =
        [("writer", Self::Writer), ("alarm", Self::Alarm), ("both", Self::Both)];

    /// Whether a throttled writer scales its key.
    #[must_use]
    pub const fn includes_writer(self) -> bool {
        matches!(self, Self::Writer | Self::Both)
    }
}

/// The timeout of a request that sets none.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a throttled write is repeated. An instance of Lambda serves one request at a time, so
/// a write that waits for a full partition keeps others from partitions with room.
const THROTTLED_RETRY_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest allowed value of `MAX_SHARDS`.
pub(crate) const MAX_SHARDS_LIMIT: u64 = 10_000;

/// The settings of one sharded table. All processes of a table use the same values, except for
/// [`timeout`](Self::timeout).
///
/// The names in capitals are the variables that [`from_variables`](Self::from_variables) reads.
///
/// ```
/// use std::time::Duration;
/// use dynamodb_write_sharding::TableConfig;
///
/// let config = TableConfig::new("orders", "orders-metadata").max_shards(500)?.with(|config| {
///     config.partition_key_name = "day".to_owned();
///     config.sort_key_name = "order".to_owned();
///     config.timeout = Duration::from_secs(2);
/// });
/// # let _ = config;
/// # Ok::<(), dynamodb_write_sharding::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TableConfig {
    /// `TABLE_NAME`: the main table, by name or ARN. Its partition key is a string, and it has a
    /// sort key.
    pub table_name: String,
    /// `METADATA_TABLE_NAME`: the table with the state of each key that has grown. Its partition
    /// key is a string, and it has no sort key.
    pub metadata_table_name: String,
    /// `PARTITION_KEY_NAME`: the partition-key attribute of both tables. Default `partition_key`.
    pub partition_key_name: String,
    /// `SORT_KEY_NAME`: the sort-key attribute of the main table. Default `sort_key`.
    pub sort_key_name: String,
    /// `SORT_KEY_TYPE`: `S` or `N`. Default `S`.
    pub sort_key_type: SortKeyType,
    /// `SHARD_PLACEMENT`. Default `calculated`.
    pub placement: Placement,
    /// The timeout of a request that sets no timeout or deadline. Default 5 s.
    pub timeout: Duration,
    /// How long a write is repeated after its first throttle. Then it fails as throttled, and had
    /// no effect. Default 2 s.
    pub throttled_for: Duration,
    /// `SHARD_SEPARATOR`, for a table with `ADOPT_SHARDS`.
    #[doc(hidden)]
    pub shard_keys: ShardKeys,
    /// `MAX_SHARDS` and `COOLDOWN_SECONDS`.
    #[doc(hidden)]
    pub policy: ScalingPolicy,
    #[doc(hidden)]
    /// `LEASE_MS`: how long reads, writes and moves may use a view; at most [`MAX_LEASE`].
    pub lease: Duration,
    #[doc(hidden)]
    /// How long writes of an append-only table, and moves of a drain there, may use a view. A value
    /// above [`APPEND_LEASE`] counts as that. Set a lower value only together with a shorter
    /// [`drain`](Self::drain), and in every process that writes to the table: no function reads it
    /// from a variable.
    pub append_lease: Duration,
    #[doc(hidden)]
    /// The longest time for one read. A value above [`LONGEST_READ`] counts as that. For lower
    /// values, see `append_lease`.
    pub longest_read: Duration,
    /// `WRITES`: the writes that the table accepts. All functions of a table must agree.
    pub writes: Writes,
    /// `REGISTER_KEYS`: the first write of a key creates its metadata item. The product does not
    /// need it: a key without one has never grown.
    pub register_keys: bool,
    /// `SCALING`: the functions that raise the number of shards. By default both writers and the
    /// shard-scaler.
    #[doc(hidden)]
    pub scaling: ScalingActors,
    /// `READ_REPLICAS`: indexes with the table's own keys and all attributes. They share eventually
    /// consistent page queries.
    pub read_replicas: Vec<String>,
    /// The pace and the waits of shrinking and settling.
    #[doc(hidden)]
    pub drain: DrainPace,
    /// `TTL_ATTRIBUTE`: the table's time-to-live attribute, in epoch seconds. A drain does not move
    /// expired items.
    pub ttl_attribute: Option<String>,
    #[doc(hidden)]
    /// `LET_EXPIRE_SECONDS`: a drain waits for items that expire within this time instead of moving
    /// them. It has no effect without a time-to-live attribute.
    pub let_expire: Duration,
    #[doc(hidden)]
    /// How long a process relies on the patterns of armed keys; at most [`PATTERN_LEASE`].
    pub pattern_lease: Duration,
    #[doc(hidden)]
    /// `ADOPT_SHARDS`, not 0: the number of shards of a key without metadata, for tables that had a
    /// fixed number before. Then every shard has a suffix. Otherwise one.
    pub adopt_shards: ShardCount,
}

/// The writes that a table accepts. All processes must agree; the first write checks that.
///
/// ```
/// use dynamodb_write_sharding::{TableConfig, Writes};
///
/// let log =
///     TableConfig::new("log", "log-metadata").with(|config| config.writes = Writes::Appends);
/// # let _ = log;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Writes {
    /// Items can be stored, replaced, created and deleted. Of two writes of an item, the one that
    /// is acknowledged later wins.
    #[default]
    Items,
    /// Appends only: a write needs no view and never waits. Of two writes of one sort key, the
    /// later one by its writer's clock wins. Random placement implies this.
    Appends,
}

impl Writes {
    /// Every value with its name in the configuration.
    #[doc(hidden)]
    pub const NAMES: [(&'static str, Self); 2] =
        [("items", Self::Items), ("appends", Self::Appends)];
}

/// A missing or wrong setting. The process must not start. The text names the setting, its value
/// and what is allowed.
///
/// ```
/// use dynamodb_write_sharding::TableConfig;
///
/// let error = TableConfig::from_variables(|_| None).unwrap_err();
/// assert!(error.to_string().starts_with("TABLE_NAME is not set"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The variable is not set, and has no default.
    #[error("{setting} is not set; allowed: {allowed}")]
    Missing {
        /// The setting as its caller wrote it: a variable, or a method of [`TableConfig`].
        setting: &'static str,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The value is not allowed.
    #[error("{setting} is {value:?}; allowed: {allowed}")]
    Wrong {
        /// The setting as its caller wrote it: a variable, or a method of [`TableConfig`].
        setting: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
}

/// The largest number of global secondary indexes of a table. (DynamoDB developer guide, "Quotas in
/// Amazon DynamoDB".)
const MAX_INDEXES: usize = 20;
/// What is allowed of a separator.
pub(crate) const SEPARATORS: &str =
    "1 to 16 bytes without a digit, and only in a table with ADOPT_SHARDS";
const TABLE: &str = "a table name of 3 to 255 letters, digits, '_', '-' and '.', or a table ARN";
const ATTRIBUTE: &str = "an attribute name of 1 to 255 bytes that differs from the other key's and from the metadata's own attributes, and does not begin with _sh: or key:";
// What is allowed, from the names themselves.
static PLACEMENTS: LazyLock<String> = LazyLock::new(|| listed(&Placement::NAMES));
static WRITES: LazyLock<String> = LazyLock::new(|| listed(&Writes::NAMES));
static SCALING_ACTORS: LazyLock<String> = LazyLock::new(|| listed(&ScalingActors::NAMES));

impl TableConfig {
    /// A configuration with the default of every optional setting. The names are not checked: if a
    /// table does not exist, the first request fails.
    ///
    /// ```
    /// use dynamodb_write_sharding::TableConfig;
    ///
    /// assert_eq!(TableConfig::new("orders", "orders-metadata").sort_key_name, "sort_key");
    /// ```
    #[must_use]
    pub fn new(table_name: &str, metadata_table_name: &str) -> Self {
        Self {
            table_name: table_name.to_owned(),
            metadata_table_name: metadata_table_name.to_owned(),
            partition_key_name: "partition_key".to_owned(),
            sort_key_name: "sort_key".to_owned(),
            sort_key_type: SortKeyType::String,
            placement: Placement::default(),
            timeout: TIMEOUT,
            throttled_for: THROTTLED_RETRY_TIMEOUT,
            shard_keys: ShardKeys::default(),
            policy: ScalingPolicy::default(),
            lease: MAX_LEASE,
            append_lease: APPEND_LEASE,
            longest_read: LONGEST_READ,
            writes: Writes::default(),
            register_keys: false,
            scaling: ScalingActors::default(),
            read_replicas: Vec::new(),
            drain: DrainPace::default(),
            ttl_attribute: None,
            let_expire: Duration::from_secs(3600),
            pattern_lease: PATTERN_LEASE,
            adopt_shards: ShardCount::ONE,
        }
    }

    /// The writes that the table accepts. With random placement, appends only.
    ///
    /// ```
    /// use dynamodb_write_sharding::{TableConfig, Writes};
    ///
    /// assert_eq!(TableConfig::new("orders", "orders-metadata").writes(), Writes::Items);
    /// ```
    #[must_use]
    pub fn writes(&self) -> Writes {
        if self.placement.is_append_only() { Writes::Appends } else { self.writes }
    }

    /// How long reads may use a view.
    pub(crate) fn lease(&self) -> Duration {
        self.lease.min(MAX_LEASE)
    }

    /// How long writes may use a view.
    pub(crate) fn write_lease(&self) -> Duration {
        match self.writes() {
            Writes::Items => self.lease(),
            Writes::Appends => self.append_lease.min(APPEND_LEASE),
        }
    }

    /// The waits of a drain.
    pub(crate) fn waits(&self) -> Waits {
        let pace = self.drain;
        Waits {
            lease: self.write_lease(),
            reads: pace.wait_for_reads,
            signatures: pace.wait_for_requests,
        }
    }

    /// How long after it was stored a pattern begins to count.
    pub(crate) fn arming_wait(&self) -> Duration {
        let usual = DrainPace::default().wait_for_requests;
        if self.drain.wait_for_requests < usual {
            self.drain.wait_for_requests
        } else {
            ARMING_WAIT
        }
    }

    /// The longest waits of any drain.
    pub(crate) fn longest_read(&self) -> Duration {
        self.longest_read.min(LONGEST_READ)
    }

    /// Whether more shards of a key help against this limit. Read replicas have the table's own
    /// keys, so more shards help their hot partitions, too.
    #[doc(hidden)]
    #[must_use]
    pub fn is_cured_by_shards(&self, scope: CapacityScope) -> bool {
        scope.is_cured_by_shards()
            || (scope == CapacityScope::IndexKeyRange && !self.read_replicas.is_empty())
    }

    /// Reads the variables from `lookup`. An empty value counts as not set.
    ///
    /// ```
    /// use dynamodb_write_sharding::{ConfigError, TableConfig};
    /// let error = TableConfig::from_variables(|name| match name {
    ///     "TABLE_NAME" => Some("items".into()),
    ///     "METADATA_TABLE_NAME" => Some("items-metadata".into()),
    ///     "LEASE_MS" => Some("5000".into()),
    ///     _ => None,
    /// });
    /// assert_eq!(
    ///     error.unwrap_err().to_string(),
    ///     r#"LEASE_MS is "5000"; allowed: a whole number from 1 to 1000"#,
    /// );
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] names the first variable that is missing or wrong, its value and what is
    /// allowed.
    pub fn from_variables(
        lookup: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let read = Variables::new(lookup);
        let mut config = Self::new(
            &read.required("TABLE_NAME", TABLE, table_name)?,
            &read.required("METADATA_TABLE_NAME", TABLE, table_name)?,
        );
        read.set(&mut config.partition_key_name, "PARTITION_KEY_NAME", ATTRIBUTE, key_name)?;
        read.set(&mut config.sort_key_name, "SORT_KEY_NAME", ATTRIBUTE, |name| {
            key_name(name).filter(|name| *name != config.partition_key_name)
        })?;
        read.set(&mut config.sort_key_type, "SORT_KEY_TYPE", "S or N", |value| match value {
            "S" => Some(SortKeyType::String),
            "N" => Some(SortKeyType::Number),
            _ => None,
        })?;
        read.set(&mut config.placement, "SHARD_PLACEMENT", &PLACEMENTS, |value| {
            named(&Placement::NAMES, value)
        })?;
        let counts = "a whole number from 1 to 10000";
        read.set(&mut config.policy.max_shards, "MAX_SHARDS", counts, |value| {
            shards(value, 10_000)
        })?;
        let seconds = "a whole number from 0 to 86400";
        read.set(&mut config.policy.cooldown_seconds, "COOLDOWN_SECONDS", seconds, |v| {
            number(v, 0, 86_400)
        })?;
        let lease = |value: &str| number(value, 1, 1_000).map(Duration::from_millis);
        read.set(&mut config.lease, "LEASE_MS", "a whole number from 1 to 1000", lease)?;
        read.set(&mut config.writes, "WRITES", &WRITES, |value| named(&Writes::NAMES, value))?;
        read.set(&mut config.register_keys, "REGISTER_KEYS", "true or false", |value| {
            value.parse().ok()
        })?;
        read.set(&mut config.scaling, "SCALING", &SCALING_ACTORS, |v| {
            named(&ScalingActors::NAMES, v)
        })?;
        let indexes = "up to 20 different index names of 3 to 255 letters, digits, '_', '-' and '.', separated by commas";
        read.set(&mut config.read_replicas, "READ_REPLICAS", indexes, index_names)?;
        let ttl = "an attribute name of 1 to 255 bytes that is none of the keys' and none of the product's own";
        read.set(&mut config.ttl_attribute, "TTL_ATTRIBUTE", ttl, |name| {
            let is_key = name == config.partition_key_name || name == config.sort_key_name;
            attribute_name(name).filter(|_| !is_key).map(Some)
        })?;
        let expiry = |value: &str| number(value, 0, 31_536_000).map(Duration::from_secs);
        read.set(
            &mut config.let_expire,
            "LET_EXPIRE_SECONDS",
            "a whole number from 0 to 31536000",
            expiry,
        )?;
        let (mut adopted, allowed) = (None, "a whole number from 0 to 10000");
        read.set(&mut adopted, "ADOPT_SHARDS", allowed, |value| match value {
            "0" => Some(None),
            value => shards(value, 10_000).map(Some),
        })?;
        let mut separator = None;
        read.set(&mut separator, "SHARD_SEPARATOR", SEPARATORS, |text| {
            adopted.and(Separator::new(text)).map(Some)
        })?;
        if let Some(adopted) = adopted {
            config.adopt_shards = adopted;
            config.shard_keys = ShardKeys::Suffixed(separator.unwrap_or_default());
        }
        config.check_placement("SHARD_PLACEMENT")?;
        Ok(config)
    }
}

/// Reads variables one by one. An empty value counts as not set.
#[derive(Debug)]
pub struct Variables<F> {
    lookup: F,
}

impl<F: Fn(&'static str) -> Option<String>> Variables<F> {
    /// Reads variables from `lookup`.
    pub const fn new(lookup: F) -> Self {
        Self { lookup }
    }

    fn value(&self, variable: &'static str) -> Option<String> {
        (self.lookup)(variable).filter(|value| !value.is_empty())
    }

    fn required<T>(
        &self,
        variable: &'static str,
        allowed: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let value =
            self.value(variable).ok_or(ConfigError::Missing { setting: variable, allowed })?;
        parse(&value).ok_or(ConfigError::Wrong { setting: variable, value, allowed })
    }

    /// Sets `target` to a variable's value, if it has one.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] if `parse` rejects the value.
    pub fn set<T>(
        &self,
        target: &mut T,
        variable: &'static str,
        allowed: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<(), ConfigError> {
        if let Some(value) = self.value(variable) {
            *target =
                parse(&value).ok_or(ConfigError::Wrong { setting: variable, value, allowed })?;
        }
        Ok(())
    }
}

fn table_name(name: &str) -> Option<String> {
    let is_arn = name.starts_with("arn:") && name.contains(":table/") && name.len() <= 1_024;
    (is_plain(name) || is_arn).then(|| name.to_owned())
}

fn index_names(list: &str) -> Option<Vec<String>> {
    let names: Vec<String> = list.split(',').map(|name| name.trim().to_owned()).collect();
    let is_good =
        |name: &String| is_plain(name) && names.iter().filter(|other| *other == name).count() == 1;
    (names.iter().all(is_good) && names.len() <= MAX_INDEXES).then_some(names)
}

/// Whether the text is a valid name of a table or an index.
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

fn shards(value: &str, highest: u64) -> Option<ShardCount> {
    number(value, 1, highest).and_then(|n| ShardCount::new(u32::try_from(n).ok()?))
}

/// A whole number within these bounds, inclusive.
#[must_use]
pub fn number(value: &str, lowest: u64, highest: u64) -> Option<u64> {
    value.parse().ok().filter(|n| (lowest..=highest).contains(n))
}

fn named<T: Copy>(names: &[(&'static str, T)], value: &str) -> Option<T> {
    names.iter().find(|(name, _)| *name == value).map(|(_, named)| *named)
}

/// Lists names for people: `a, b or c`.
fn listed<T>(names: &[(&'static str, T)]) -> String {
    let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
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
        assert!(matches!(
            with("TABLE_NAME", ""),
            Err(ConfigError::Missing { setting: "TABLE_NAME", .. })
        ));
        let error = |variable| with(variable, "x").unwrap_err().to_string();
        assert_eq!(error("WRITES"), r#"WRITES is "x"; allowed: items or appends"#);
        assert_eq!(error("SCALING"), r#"SCALING is "x"; allowed: writer, alarm or both"#);
    }

    #[test]
    fn a_hot_partition_of_a_replica_is_cured_by_shards() {
        let replicated = TableConfig {
            read_replicas: vec!["replica".into()],
            ..TableConfig::new("items", "metadata")
        };
        assert!(replicated.is_cured_by_shards(CapacityScope::IndexKeyRange));
        assert!(
            !TableConfig::new("items", "metadata").is_cured_by_shards(CapacityScope::IndexKeyRange)
        );
        assert!(!replicated.is_cured_by_shards(CapacityScope::Table));
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
