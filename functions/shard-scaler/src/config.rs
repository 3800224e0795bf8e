//! The configuration that only the shard-scaler has.

use std::time::Duration;

use sharding::maintenance::ShrinkAndSettle;
use sharding::variables::{Variables, number};
use sharding::{ConfigError, PARTITION_WRITE_UNITS, TableConfig};

/// The shard-scaler's own variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalerConfig {
    /// `MAX_EVENT_AGE_SECONDS`: an alarm whose state changed longer ago is ignored. Default 600.
    pub max_event_age: Duration,
    /// `MAX_WRITE_UNITS`: the limit up to which the table's provisioned write units may be raised;
    /// 0, the default, never raises them.
    pub max_write_units: u64,
    /// `MAX_READ_UNITS`: the same for read units.
    pub max_read_units: u64,
    /// `MAX_WARM_WRITE_UNITS`: the limit, in write units a second, up to which the warm throughput
    /// of the table, and of each of its indexes, may be raised; 0, the default, never raises it. A
    /// raise is charged once, and cannot be undone.
    pub max_warm_write_units: u64,
    /// `MAX_WARM_READ_UNITS`: the same for read units.
    pub max_warm_read_units: u64,
    /// `SHRINK_AFTER_SECONDS` and `SETTLE_AFTER_SECONDS`.
    pub shrink_and_settle: ShrinkAndSettle,
    /// `DRAIN_SHARE_PERCENT`: the share of a partition's write units that a drain may take of each
    /// shard, and of a provisioned table's that all drains together may take. Default 30.
    pub drain_share_percent: u32,
    /// `DRY_RUN`: decide and report, but change nothing. Default `false`.
    pub dry_run: bool,
}

impl Default for ScalerConfig {
    fn default() -> Self {
        Self {
            max_event_age: Duration::from_secs(600),
            max_write_units: 0,
            max_read_units: 0,
            max_warm_write_units: 0,
            max_warm_read_units: 0,
            shrink_and_settle: ShrinkAndSettle {
                shrink_after: Duration::ZERO,
                settle_after: Duration::ZERO,
            },
            drain_share_percent: 30,
            dry_run: false,
        }
    }
}

impl ScalerConfig {
    /// Reads the variables from `lookup`. An empty value counts as not set.
    ///
    /// # Errors
    /// [`ConfigError`] names the first variable that is wrong, its value and what is allowed.
    pub fn from_variables(
        lookup: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let read = Variables::new(lookup);
        read.set(
            &mut config.max_event_age,
            "MAX_EVENT_AGE_SECONDS",
            "a whole number from 1 to 86400",
            |value| number(value, 1, 86_400).map(Duration::from_secs),
        )?;
        let units = "a whole number from 0 to 1000000000";
        read.set(&mut config.max_write_units, "MAX_WRITE_UNITS", units, |value| {
            number(value, 0, 1_000_000_000)
        })?;
        read.set(&mut config.max_read_units, "MAX_READ_UNITS", units, |value| {
            number(value, 0, 1_000_000_000)
        })?;
        let warm = |value: &str| number(value, 0, 1_000_000_000);
        read.set(&mut config.max_warm_write_units, "MAX_WARM_WRITE_UNITS", units, warm)?;
        read.set(&mut config.max_warm_read_units, "MAX_WARM_READ_UNITS", units, warm)?;
        let calm = "0, or a whole number from 60 to 99999999";
        let seconds = |value: &str| {
            let seconds = if value == "0" { Some(0) } else { number(value, 60, 99_999_999) };
            seconds.map(Duration::from_secs)
        };
        let plan = &mut config.shrink_and_settle;
        read.set(&mut plan.shrink_after, "SHRINK_AFTER_SECONDS", calm, seconds)?;
        read.set(&mut plan.settle_after, "SETTLE_AFTER_SECONDS", calm, seconds)?;
        read.set(
            &mut config.drain_share_percent,
            "DRAIN_SHARE_PERCENT",
            "a whole number from 1 to 100",
            |value| number(value, 1, 100).and_then(|percent| u32::try_from(percent).ok()),
        )?;
        read.set(&mut config.dry_run, "DRY_RUN", "true or false", |value| value.parse().ok())?;
        Ok(config)
    }

    /// A table whose drains use the pace of `DRAIN_SHARE_PERCENT`.
    #[must_use]
    pub fn with_pace(self, mut table: TableConfig) -> TableConfig {
        let units = PARTITION_WRITE_UNITS * u64::from(self.drain_share_percent) / 100;
        table.drain.units_per_second = u32::try_from(units).unwrap_or(u32::MAX);
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variable: &'static str, value: &str) -> Result<ScalerConfig, ConfigError> {
        ScalerConfig::from_variables(|name| (name == variable).then(|| value.to_owned()))
    }

    #[test]
    fn every_variable_is_read_and_a_wrong_one_named() {
        assert_eq!(ScalerConfig::from_variables(|_| None), Ok(ScalerConfig::default()));
        assert_eq!(
            with("MAX_EVENT_AGE_SECONDS", "60").unwrap().max_event_age,
            Duration::from_secs(60)
        );
        assert_eq!(with("MAX_WRITE_UNITS", "5000").unwrap().max_write_units, 5_000);
        assert_eq!(with("MAX_READ_UNITS", "7").unwrap().max_read_units, 7);
        assert_eq!(with("MAX_WARM_WRITE_UNITS", "40000").unwrap().max_warm_write_units, 40_000);
        assert_eq!(with("MAX_WARM_READ_UNITS", "8").unwrap().max_warm_read_units, 8);
        assert_eq!(
            with("SHRINK_AFTER_SECONDS", "3600").unwrap().shrink_and_settle.shrink_after,
            Duration::from_secs(3_600)
        );
        assert_eq!(
            with("SHRINK_AFTER_SECONDS", "0").unwrap().shrink_and_settle.shrink_after,
            Duration::ZERO
        );
        assert_eq!(
            with("SETTLE_AFTER_SECONDS", "60").unwrap().shrink_and_settle.settle_after,
            Duration::from_secs(60)
        );
        assert_eq!(with("DRAIN_SHARE_PERCENT", "5").unwrap().drain_share_percent, 5);
        let table = TableConfig::new("items", "items-metadata");
        assert_eq!(
            with("DRAIN_SHARE_PERCENT", "5").unwrap().with_pace(table).drain.units_per_second,
            50
        );
        assert!(with("DRY_RUN", "true").unwrap().dry_run);
        for (variable, value) in [
            ("MAX_EVENT_AGE_SECONDS", "0"),
            ("MAX_WRITE_UNITS", "-1"),
            ("MAX_READ_UNITS", "many"),
            ("MAX_WARM_WRITE_UNITS", "-1"),
            ("MAX_WARM_READ_UNITS", "all"),
            ("SHRINK_AFTER_SECONDS", "59"),
            ("SETTLE_AFTER_SECONDS", "-1"),
            ("DRAIN_SHARE_PERCENT", "0"),
            ("DRY_RUN", "yes"),
        ] {
            let error = with(variable, value).unwrap_err().to_string();
            assert!(error.contains(variable) && error.contains(value), "{error}");
        }
    }
}
