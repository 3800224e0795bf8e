//! Commands that process all items of a table: `migrate` and `rebuild`.
//!
//! Both use the tables directly, with the configuration of the functions. So they work on AWS and
//! on the local edition.

mod migrate;
mod rebuild;
mod whole_table;

pub use migrate::{MigrateOptions, Migration, migrate};
pub use rebuild::{Rebuild, RebuildOptions, rebuild};
pub use whole_table::TableOptions;
