//! Commands for a table: `arm`, `disarm`, `status` and `rebuild`.
//!
//! They use the tables directly, with the configuration of the functions. So they work on AWS and on
//! the local edition.

mod arming;
mod rebuild;
mod whole_table;

pub use arming::{ArmOptions, ArmingTable, DisarmOptions, arm, disarm, status};
pub use rebuild::rebuild;
pub use whole_table::{TableOptions, take_key_names};
