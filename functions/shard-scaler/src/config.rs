//! The configuration that only the shard-scaler has.

use std::sync::LazyLock;
use std::time::Duration;

use sharding::maintenance::ShrinkAndSettle;
use sharding::variables::{Setting, number};
use sharding::{PARTITION_WRITE_UNITS, TableConfig};

/// The configuration that only the shard-scaler has.
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

/// The shard-scaler's own variables.
pub static VARIABLES: LazyLock<[Setting<ScalerConfig>; 9]> = LazyLock::new(|| {
    let units = 0..=1_000_000_000;
    let calm = |name, field| {
        let parse = |value: &str| match value {
            "0" => Some(Duration::ZERO),
            _ => number(value, &(60..=99_999_999)).map(Duration::from_secs),
        };
        let show = |calm: &Duration| calm.as_secs().to_string();
        let allowed = "0, or a whole number from 60 to 99999999";
        Setting::<ScalerConfig>::parsed(name, allowed, field, parse, show)
    };
    [
        Setting::duration("MAX_EVENT_AGE_SECONDS", 1_000, 1..=86_400, |c| &mut c.max_event_age),
        Setting::number("MAX_WRITE_UNITS", units.clone(), |c| &mut c.max_write_units),
        Setting::number("MAX_READ_UNITS", units.clone(), |c| &mut c.max_read_units),
        Setting::number("MAX_WARM_WRITE_UNITS", units.clone(), |c| &mut c.max_warm_write_units),
        Setting::number("MAX_WARM_READ_UNITS", units, |c| &mut c.max_warm_read_units),
        calm("SHRINK_AFTER_SECONDS", |c| &mut c.shrink_and_settle.shrink_after),
        calm("SETTLE_AFTER_SECONDS", |c| &mut c.shrink_and_settle.settle_after),
        Setting::number("DRAIN_SHARE_PERCENT", 1..=100, |c| &mut c.drain_share_percent),
        Setting::flag("DRY_RUN", |c| &mut c.dry_run),
    ]
});

impl Default for ScalerConfig {
    fn default() -> Self {
        Self {
            max_event_age: Duration::from_secs(600),
            max_write_units: 0,
            max_read_units: 0,
            max_warm_write_units: 0,
            max_warm_read_units: 0,
            shrink_and_settle: ShrinkAndSettle::default(),
            drain_share_percent: 30,
            dry_run: false,
        }
    }
}

impl ScalerConfig {
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
    use sharding::ConfigError;
    use sharding::variables::read;

    use super::*;

    fn with(variable: &'static str, value: &str) -> Result<ScalerConfig, ConfigError> {
        let lookup = |name| (name == variable).then(|| value.to_owned());
        read(&*VARIABLES, ScalerConfig::default(), lookup)
    }

    #[test]
    fn every_variable_is_read_and_a_wrong_one_named() {
        let rows = [
            ("MAX_EVENT_AGE_SECONDS", "600", "60", "0"),
            ("MAX_WRITE_UNITS", "0", "5000", "-1"),
            ("MAX_READ_UNITS", "0", "7", "many"),
            ("MAX_WARM_WRITE_UNITS", "0", "40000", "-1"),
            ("MAX_WARM_READ_UNITS", "0", "8", "all"),
            ("SHRINK_AFTER_SECONDS", "0", "3600", "59"),
            ("SETTLE_AFTER_SECONDS", "0", "60", "-1"),
            ("DRAIN_SHARE_PERCENT", "30", "5", "0"),
            ("DRY_RUN", "false", "true", "yes"),
        ];
        for (setting, (name, default, other, wrong)) in VARIABLES.iter().zip(rows) {
            for value in [default, other] {
                let mut config = with(name, value).unwrap();
                assert_eq!(config == ScalerConfig::default(), value == default, "{name}");
                assert_eq!(setting.value_in(&mut config).as_deref(), Some(value), "{name}");
            }
            let error = with(name, wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} is {wrong:?}; allowed: ")), "{error}");
        }
    }

    #[test]
    fn units_are_those_of_the_names() {
        let hour = with("SHRINK_AFTER_SECONDS", "3600").unwrap().shrink_and_settle.shrink_after;
        let minute = with("MAX_EVENT_AGE_SECONDS", "60").unwrap().max_event_age;
        assert_eq!((hour, minute), (Duration::from_secs(3_600), Duration::from_secs(60)));
        let table = TableConfig::new("items", "items-metadata");
        let paced = with("DRAIN_SHARE_PERCENT", "5").unwrap().with_pace(table);
        assert_eq!(paced.drain.units_per_second, 50);
    }
}
