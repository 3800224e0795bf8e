//! Code that the command-line programs share: reading records, connecting to DynamoDB, and
//! printing.

pub mod drain_wait;
pub mod endpoint;
pub mod numbers;
pub mod output;
pub mod records;

use sharding::internal::{ConfigError, TableConfig};

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
