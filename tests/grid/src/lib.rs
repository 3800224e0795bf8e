//! Measures the scaling policy.

mod fleet;
mod outcome;
mod run;
mod scenario;
mod table;

pub use outcome::{Outcome, Second};
pub use run::{run, run_all};
pub use scenario::{Contender, Fleet, Items, Load, PATIENCE, Scenario, SortKeys};
