//! What only the shard-scaler is configured with.

use std::time::Duration;

use sharding::ConfigError;

/// The shard-scaler's own variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalerConfig {
    /// `MAX_EVENT_AGE_SECONDS`: an alarm that changed its state longer ago does nothing. Default 600.
    pub max_event_age: Duration,
    /// `MAX_WRITE_UNITS`: provisioned write units up to which the table may be raised; 0, the default, never raises it.
    pub max_write_units: u64,
    /// `MAX_READ_UNITS`: the same for read units.
    pub max_read_units: u64,
    /// `DRY_RUN`: decide and tell, but change nothing. Default `false`.
    pub dry_run: bool,
}

impl Default for ScalerConfig {
    fn default() -> Self {
        Self { max_event_age: Duration::from_secs(600), max_write_units: 0, max_read_units: 0, dry_run: false }
    }
}

impl ScalerConfig {
    /// Reads the variables that `lookup` knows; an empty value counts as not set.
    ///
    /// # Errors
    /// [`ConfigError`] names the first variable that is wrong, its value and what is allowed.
    pub fn from_variables(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let read = Variables { lookup };
        if let Some(seconds) = read.number("MAX_EVENT_AGE_SECONDS", "a whole number from 1 to 86400", 1, 86_400)? {
            config.max_event_age = Duration::from_secs(seconds);
        }
        let units = "a whole number from 0 to 1000000000";
        if let Some(most) = read.number("MAX_WRITE_UNITS", units, 0, 1_000_000_000)? {
            config.max_write_units = most;
        }
        if let Some(most) = read.number("MAX_READ_UNITS", units, 0, 1_000_000_000)? {
            config.max_read_units = most;
        }
        if let Some(value) = read.value("DRY_RUN") {
            let allowed = "true or false";
            config.dry_run =
                value.parse().map_err(|_| ConfigError::Wrong { variable: "DRY_RUN", value: value.clone(), allowed })?;
        }
        Ok(config)
    }
}

struct Variables<F> {
    lookup: F,
}

impl<F: Fn(&'static str) -> Option<String>> Variables<F> {
    fn value(&self, variable: &'static str) -> Option<String> {
        (self.lookup)(variable).filter(|value| !value.is_empty())
    }

    fn number(
        &self,
        variable: &'static str,
        allowed: &'static str,
        lowest: u64,
        highest: u64,
    ) -> Result<Option<u64>, ConfigError> {
        let Some(value) = self.value(variable) else { return Ok(None) };
        let number = value.parse().ok().filter(|number| (lowest..=highest).contains(number));
        number.map(Some).ok_or(ConfigError::Wrong { variable, value, allowed })
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
        assert_eq!(with("MAX_EVENT_AGE_SECONDS", "60").unwrap().max_event_age, Duration::from_secs(60));
        assert_eq!(with("MAX_WRITE_UNITS", "5000").unwrap().max_write_units, 5_000);
        assert_eq!(with("MAX_READ_UNITS", "7").unwrap().max_read_units, 7);
        assert!(with("DRY_RUN", "true").unwrap().dry_run);
        for (variable, value) in
            [("MAX_EVENT_AGE_SECONDS", "0"), ("MAX_WRITE_UNITS", "-1"), ("MAX_READ_UNITS", "many"), ("DRY_RUN", "yes")]
        {
            let error = with(variable, value).unwrap_err().to_string();
            assert!(error.contains(variable) && error.contains(value), "{error}");
        }
    }
}
