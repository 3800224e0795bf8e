//! The configuration of a table: the defaults, or the environment of a function.

pub(crate) mod setting;
pub(crate) mod variables;
pub(crate) mod width_history;

use std::time::Duration;

use crate::policy::capacity::CapacityScope;
use crate::policy::rules::ScalingPolicy;
use crate::protocol::armed::{ARMING_WAIT, CLOCK_MARGIN, PATTERN_LEASE};
use crate::protocol::drain::Waits;
use crate::protocol::names::RESERVED_PREFIX;
use crate::protocol::view::{APPEND_LEASE, LONGEST_READ, MAX_LEASE, SIGNATURE_VALIDITY};
use crate::values::key::{
    IntoKey, KeyError, PartitionKey, Separator, ShardCount, ShardKeys, ShardNumber, SortKeyType,
};
use crate::values::placement::Placement;

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
    pub const fn includes_writer(self) -> bool {
        matches!(self, Self::Writer | Self::Both)
    }
}

const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a throttled write is repeated. An instance of Lambda serves one request at a time, so a
/// write that waits for a full partition delays others.
const THROTTLED_RETRY_TIMEOUT: Duration = Duration::from_secs(2);

/// The settings of one sharded table. All its processes use the same, except for
/// [`timeout`](Self::timeout) and [`throttled_for`](Self::throttled_for).
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
    /// `TABLE_NAME`: the main table, by name or ARN. It has a string partition key and a sort key.
    pub table_name: String,
    /// `METADATA_TABLE_NAME`: the table with the state of each key that has grown. It has a string
    /// partition key and no sort key.
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
    /// How long a write is repeated after its first throttle, before it fails without effect.
    /// Default 2 s.
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
    /// How long writes of an append-only table, and moves of a drain there, may use a view; at most
    /// [`APPEND_LEASE`]. Set a lower value only together with a shorter [`drain`](Self::drain), and
    /// in every process that writes to the table: no function reads it from a variable.
    pub append_lease: Duration,
    /// `WRITES`. Default `items`.
    pub writes: Writes,
    /// `REGISTER_KEYS`: the first write of a key creates its metadata item. Not needed: a key
    /// without one has never grown.
    pub register_keys: bool,
    /// `SCALING`. Default `both`.
    #[doc(hidden)]
    pub scaling: ScalingActors,
    /// `READ_REPLICAS`: indexes with the table's own keys and all attributes, for eventually
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
    /// them. Needs a time-to-live attribute.
    pub let_expire: Duration,
    #[doc(hidden)]
    /// How long a process relies on the patterns of armed keys; at most [`PATTERN_LEASE`].
    pub pattern_lease: Duration,
    #[doc(hidden)]
    /// `ADOPT_SHARDS`, if not 0: the number of shards of a key without metadata, for tables that
    /// had a fixed number before. Otherwise one.
    pub adopt_shards: ShardCount,
}

/// The pace and the waits of a drain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrainPace {
    /// How long a request may be applied after it was sent: the validity of a signature, and a
    /// margin for clocks. Set it lower only if no request can be in flight for so long.
    pub wait_for_requests: Duration,
    /// The longest time for a read, and a margin.
    pub wait_for_reads: Duration,
    /// Write units a second that a drain may take of each shard. A move takes one unit for each KB
    /// to copy an item, and one to delete the original.
    pub units_per_second: u32,
}

impl Default for DrainPace {
    fn default() -> Self {
        Self {
            wait_for_requests: SIGNATURE_VALIDITY + CLOCK_MARGIN,
            wait_for_reads: LONGEST_READ + CLOCK_MARGIN,
            units_per_second: 300,
        }
    }
}

/// The writes that a table accepts. All processes must agree; the first write checks that.
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

/// A missing or wrong setting. The process must not start. The text also has what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The variable is not set, and has no default.
    #[error("{setting} is not set; allowed: {allowed}")]
    Missing {
        /// The variable, or the method of [`TableConfig`].
        setting: &'static str,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The value is not allowed.
    #[error("{setting} is {value:?}; allowed: {allowed}")]
    Wrong {
        /// The variable, or the method of [`TableConfig`].
        setting: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
}

/// By how much leases and reads end before a drain stops waiting, if the wait was set.
const DRAIN_MARGIN: Duration = Duration::from_secs(1);
const MIN_DRAIN_WAIT: Duration = Duration::from_secs(5);
const MAX_SHARDS_LIMIT: u32 = 10_000;
const COUNTS: &str = "a whole number from 1 to 10000";
const SEPARATORS: &str = "1 to 16 bytes without a digit, and only in a table with ADOPT_SHARDS";

impl TableConfig {
    /// A configuration of defaults. The names are not checked: if a table does not exist, the first
    /// request fails.
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

    /// Changes some fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A partition key of this table: its longest shard key fits, too.
    ///
    /// # Errors
    /// [`KeyError`] if it is empty, too long or reserved, or could be another key's shard.
    pub fn partition_key(&self, key: impl IntoKey) -> Result<PartitionKey, KeyError> {
        let key = key.into_key()?;
        self.shard_keys.check(&key, self.policy.max_shards.get())?;
        Ok(key)
    }

    /// The partition key and the shard of a stored key, as a stream, a contributor report or a scan
    /// shows it. `None` if it is not a shard key.
    ///
    /// ```
    /// use dynamodb_write_sharding::TableConfig;
    ///
    /// let config = TableConfig::new("items", "items-metadata");
    /// let (key, shard) = config.parse_shard_key("2014-07-09\u{1f}s3").expect("a shard key");
    /// assert_eq!((key.as_str(), shard.get()), ("2014-07-09", 3));
    /// ```
    pub fn parse_shard_key(&self, stored: &str) -> Option<(PartitionKey, ShardNumber)> {
        self.shard_keys.parse(stored)
    }

    /// Whether an attribute of this name belongs to the keys or to the product. Items do not have
    /// it.
    pub fn is_reserved(&self, attribute: &str) -> bool {
        attribute == self.partition_key_name
            || attribute == self.sort_key_name
            || attribute.starts_with(RESERVED_PREFIX)
    }

    /// The largest number of shards of a key: 1 to 10,000, by default 200. Keys that have more keep
    /// them.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] if it is out of range.
    pub fn max_shards(mut self, shards: u32) -> Result<Self, ConfigError> {
        self.policy.max_shards = count("max_shards", shards)?;
        Ok(self)
    }

    /// How long a key keeps its number of shards before it may grow again, in whole seconds.
    #[must_use]
    pub const fn cooldown(mut self, cooldown: Duration) -> Self {
        self.policy.cooldown_seconds = cooldown.as_secs();
        self
    }

    /// How long a drain waits for requests and reads that may still be under way: by default a
    /// quarter of an hour, which is how long DynamoDB may apply a signed request. It may be
    /// shorter, 5 s or more, only against a server on this machine with all readers and writers in
    /// one process. Leases and reads then end earlier, too.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] below 5 s.
    pub fn drain_wait(mut self, wait: Duration) -> Result<Self, ConfigError> {
        if wait < MIN_DRAIN_WAIT {
            let (value, allowed) = (format!("{wait:?}"), "5 seconds or more");
            return Err(ConfigError::Wrong { setting: "drain_wait", value, allowed });
        }
        // All use one clock, and no request outlives their process. So only leases and reads have
        // to end, and any margin is enough.
        let bound = wait.saturating_sub(DRAIN_MARGIN);
        self.append_lease = self.append_lease.min(bound);
        self.pattern_lease = self.pattern_lease.min(bound);
        (self.drain.wait_for_requests, self.drain.wait_for_reads) = (wait, wait);
        Ok(self)
    }

    /// For a table that another program has sharded by a fixed number: the number of shards of a
    /// key without metadata, 1 to 10,000, and the text between partition key and shard number in
    /// the stored keys, 1 to 16 bytes without a digit. Every shard then has such a suffix, the
    /// first one, too.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] if one of them is not allowed.
    ///
    /// ```
    /// use dynamodb_write_sharding::{Placement, TableConfig};
    ///
    /// let adopted = TableConfig::new("orders", "orders-metadata")
    ///     .with(|config| config.placement = Placement::ModuloSha256);
    /// assert!(adopted.clone().adopt_shards(10, ".").is_ok());
    /// assert!(adopted.adopt_shards(10, "-1-").is_err());
    /// ```
    pub fn adopt_shards(mut self, shards: u32, separator: &str) -> Result<Self, ConfigError> {
        self.adopt_shards = count("adopt_shards", shards)?;
        let Some(text) = Separator::new(separator) else {
            let value = separator.to_owned();
            return Err(ConfigError::Wrong { setting: "separator", value, allowed: SEPARATORS });
        };
        self.shard_keys = ShardKeys::Suffixed(text);
        Ok(self)
    }

    /// Fails unless items of a key with one shard stay under the key itself: only the jump hash
    /// keeps them there, or moves them to new shards.
    pub(crate) fn check_placement(&self, setting: &'static str) -> Result<(), ConfigError> {
        let is_good = self.placement.keeps_homes()
            || self.writes() == Writes::Appends
            || self.shard_keys != ShardKeys::KeyFirst;
        if is_good {
            return Ok(());
        }
        let name = Placement::NAMES.iter().find(|(_, placement)| *placement == self.placement);
        let value = name.map_or("", |(name, _)| *name).to_owned();
        let allowed = "calculated or random; all others with ADOPT_SHARDS or WRITES=appends";
        Err(ConfigError::Wrong { setting, value, allowed })
    }

    /// The writes that the table accepts: with random placement, appends only.
    pub fn writes(&self) -> Writes {
        if self.placement.is_append_only() { Writes::Appends } else { self.writes }
    }

    /// How long reads may use a view.
    pub(crate) fn lease(&self) -> Duration {
        self.lease.min(MAX_LEASE)
    }

    pub(crate) fn write_lease(&self) -> Duration {
        match self.writes() {
            Writes::Items => self.lease(),
            Writes::Appends => self.append_lease.min(APPEND_LEASE),
        }
    }

    pub(crate) fn waits(&self) -> Waits {
        let DrainPace { wait_for_reads: reads, wait_for_requests: signatures, .. } = self.drain;
        Waits { lease: self.write_lease(), reads, signatures }
    }

    /// How long after it was stored a pattern begins to count.
    pub(crate) fn arming_wait(&self) -> Duration {
        let wait = self.drain.wait_for_requests;
        if wait < DrainPace::default().wait_for_requests { wait } else { ARMING_WAIT }
    }

    /// It ends before a drain stops waiting for reads.
    #[doc(hidden)]
    pub fn longest_read(&self) -> Duration {
        self.drain.wait_for_reads.saturating_sub(DRAIN_MARGIN).min(LONGEST_READ)
    }

    /// Whether more shards of a key help against this limit. They help hot partitions of read
    /// replicas, too, which have the table's own keys.
    pub(crate) fn is_cured_by_shards(&self, scope: CapacityScope) -> bool {
        scope.is_cured_by_shards()
            || (scope == CapacityScope::IndexKeyRange && !self.read_replicas.is_empty())
    }
}

fn count(setting: &'static str, shards: u32) -> Result<ShardCount, ConfigError> {
    let wrong = || ConfigError::Wrong { setting, value: shards.to_string(), allowed: COUNTS };
    ShardCount::new(shards).filter(|_| shards <= MAX_SHARDS_LIMIT).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_partition_of_a_replica_is_cured_by_shards() {
        let plain = TableConfig::new("items", "metadata");
        let replicated = plain.clone().with(|config| config.read_replicas = vec!["replica".into()]);
        let index = CapacityScope::IndexKeyRange;
        assert!(replicated.is_cured_by_shards(index) && !plain.is_cured_by_shards(index));
        assert!(!replicated.is_cured_by_shards(CapacityScope::Table));
    }

    #[test]
    fn leases_and_reads_end_before_a_drain_stops_waiting() {
        let usual = TableConfig::new("items", "items-metadata");
        for seconds in [5, 60, 61, 3_600] {
            let wait = Duration::from_secs(seconds);
            let config = usual.clone().drain_wait(wait).unwrap();
            let (append, read) = (config.append_lease, config.longest_read());
            assert!(append < wait && read < wait, "{config:?}");
            assert!(append <= usual.append_lease && read <= usual.longest_read(), "{config:?}");
            assert_eq!((config.drain.wait_for_requests, config.drain.wait_for_reads), (wait, wait));
        }
    }

    #[test]
    fn a_wrong_setting_is_named_as_its_caller_wrote_it() {
        let config = || TableConfig::new("items", "items-metadata");
        let rows = [
            (
                config().max_shards(0),
                "max_shards is \"0\"; allowed: a whole number from 1 to 10000",
            ),
            (
                config().adopt_shards(2, "-1-"),
                "separator is \"-1-\"; allowed: 1 to 16 bytes without a digit, and only in a table \
                 with ADOPT_SHARDS",
            ),
            (
                config().drain_wait(Duration::from_secs(4)),
                "drain_wait is \"4s\"; allowed: 5 seconds or more",
            ),
        ];
        for (wrong, expected) in rows {
            assert_eq!(wrong.unwrap_err().to_string(), expected);
        }
    }
}
