//! Measures the scaling policy on the product's own engine: `TableEngine` with its views, leases,
//! retries and pooled observations, in paused time.
//!
//! The metadata table is in the embedded engine. The main table is the engine's model of partitions:
//! it takes or throttles each write, and stores nothing, so that a run makes a hundred thousand
//! writes in about a second. Large demands are scaled down: partitions, rates and fleets are as many
//! times smaller. So a scaled run has fewer samples than the real one.
//!
//! Clients are as they are: a write that is answered 503 is repeated by its caller for ten seconds;
//! clients of a closed loop wait for their responses; an instance of Lambda serves one request at a
//! time. What is not measured: reads, instances that die or are suspended after a response, and
//! splits of partitions.
//!
//! `cargo bench -p policy-grid` prints all tables; a name after `--` selects one.

mod cells;
mod fleet;
mod oracle;
mod outcome;
mod run;
mod scenario;
mod summary;
mod table;

pub use cells::{
    FIRST_SEED, bursts, closed, day, doubling_of, hot_items, items, lambda, open, oracle_of,
    provisioned, ramp, short, zipf,
};
pub use outcome::{Outcome, Second};
pub use run::run;
pub use scenario::{Contender, Fleet, Items, Load, PATIENCE, Scenario, SortKeys};
pub use summary::Summary;
