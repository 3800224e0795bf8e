//! How the programs reach their tables, and which hosts they accept.

pub mod hosts;
pub mod server;
pub mod signals;

use sharding::{ConfigError, TableConfig};

/// Reads the configuration from the variables of the functions. By default, the tables are "items"
/// and "items-metadata".
///
/// # Errors
/// A variable has a value that is not allowed.
pub fn configuration() -> Result<TableConfig, ConfigError> {
    TableConfig::from_variables(|name| {
        let set = std::env::var(name).ok().filter(|value| !value.is_empty());
        set.or_else(|| match name {
            "TABLE_NAME" => Some("items".to_owned()),
            "METADATA_TABLE_NAME" => Some("items-metadata".to_owned()),
            _ => None,
        })
    })
}
