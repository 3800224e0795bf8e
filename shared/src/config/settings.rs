//! Settings that can be invalid, and how a program sets them.

use std::time::Duration;

use crate::config::{COUNTS, ConfigError, SEPARATORS, TableConfig, Writes, variables};
use crate::protocol::names::RESERVED_PREFIX;
use crate::values::key::{KeyError, PartitionKey, Separator, ShardCount, ShardKeys, ShardNumber};
use crate::values::placement::Placement;

const MIN_DRAIN_WAIT: Duration = Duration::from_secs(5);
/// By how much leases and reads end before a drain stops waiting, if the wait was set.
const DRAIN_MARGIN: Duration = Duration::from_secs(1);

impl TableConfig {
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
    pub fn partition_key(
        &self,
        key: impl TryInto<PartitionKey, Error: Into<KeyError>>,
    ) -> Result<PartitionKey, KeyError> {
        let key = key.try_into().map_err(Into::into)?;
        self.shard_keys.check(&key, self.policy.max_shards.get())?;
        Ok(key)
    }

    /// The partition key and the shard that a stored key names, as a stream, a contributor report or
    /// a scan shows it. `None` if it is not a shard key.
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

    /// Whether an attribute of this name belongs to the keys, or to the product itself. Items do not
    /// have it.
    pub fn is_reserved(&self, attribute: &str) -> bool {
        attribute == self.partition_key_name
            || attribute == self.sort_key_name
            || attribute.starts_with(RESERVED_PREFIX)
    }

    /// The largest number of shards of a key: 1 to 10,000, by default 200. It limits growth; keys
    /// that have more keep them.
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
    /// quarter of an hour, which is how long DynamoDB applies a request after it was signed. Only
    /// against a server on this machine, with all readers and writers in one process, may it be
    /// shorter: 5 s or more. Leases and reads then end earlier, too.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] below 5 s.
    pub fn drain_wait(mut self, wait: Duration) -> Result<Self, ConfigError> {
        if wait < MIN_DRAIN_WAIT {
            let (value, allowed) = (format!("{wait:?}"), "5 seconds or more");
            return Err(ConfigError::Wrong { setting: "drain_wait", value, allowed });
        }
        // All of them use one clock, and no request outlives their process. So only leases and
        // reads have to end, and any margin is enough.
        let bound = wait.saturating_sub(DRAIN_MARGIN);
        self.append_lease = self.append_lease.min(bound);
        self.longest_read = self.longest_read.min(bound);
        self.pattern_lease = self.pattern_lease.min(bound);
        (self.drain.wait_for_requests, self.drain.wait_for_reads) = (wait, wait);
        Ok(self)
    }

    /// For a table that another program has sharded by a fixed number: the number of shards of a
    /// key without metadata, 1 to 10,000, and the text between partition key and shard number in the
    /// stored keys, 1 to 16 bytes without a digit. Every shard then has such a suffix. Without this,
    /// the first shard is the key itself.
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

    /// Fails if items may be placed elsewhere than their place under one shard, which is the key
    /// itself: only the jump hash keeps them there, or moves them to new shards.
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
}

fn count(setting: &'static str, shards: u32) -> Result<ShardCount, ConfigError> {
    let value = shards.to_string();
    variables::shards(&value).ok_or(ConfigError::Wrong { setting, value, allowed: COUNTS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_and_reads_end_before_a_drain_stops_waiting() {
        let usual = TableConfig::new("items", "items-metadata");
        for seconds in [5, 60, 61, 3_600] {
            let wait = Duration::from_secs(seconds);
            let config = usual.clone().drain_wait(wait).unwrap();
            let (append, read) = (config.append_lease, config.longest_read);
            assert!(append < wait && read < wait, "{config:?}");
            assert!(append <= usual.append_lease && read <= usual.longest_read, "{config:?}");
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
