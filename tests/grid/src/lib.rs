//! Measures the scaling policy.

mod cells;
mod fleet;
mod oracle;
mod outcome;
mod run;
mod scenario;
mod table;

pub use cells::*;
pub use oracle::best_width;
pub use outcome::{Outcome, Second};
pub use run::{run, run_all};
pub use scenario::{Contender, Fleet, Items, Load, PATIENCE, Scenario, SortKeys};
