//! What an operator of a table does, and a schedule: grow, shrink and settle keys, read and repair
//! the metadata, and publish the table's warm throughput.
//!
//! The table's writers need none of it. A program that runs it on a schedule calls
//! [`list`](Maintenance::list), asks [`due`](Maintenance::due) for each key, and
//! [`begin`](Maintenance::begin)s and [`drain`](Maintenance::drain)s what it names, about once a
//! minute. Any number of programs may do so at once. `examples/own_maintenance.rs` shows it for the
//! whole life of one key.

use crate::client::request::within;

pub use crate::engine::Maintenance;
pub use crate::engine::disarming::{Disarming, PlainItems};
pub use crate::engine::drain::begin::{DrainRefused, Due, ShrinkAndSettle};
pub use crate::engine::drain::{DrainBudget, Drained};
pub use crate::engine::survey::Rebuilt;
pub use crate::engine::width::change::ReportedKey;
pub use crate::engine::width::{
    ScaleError, ScaleOutcome, ScalingEvent, ScalingReason, ScalingStep,
};
pub use crate::policy::decision::ScalingDecision;
pub use crate::policy::pressure::Pressure;
pub use crate::protocol::armed::{KeyPattern, PatternError};
pub use crate::protocol::directory::MAX_COPIES;
pub use crate::protocol::history::{HistoryEntry, HistoryError, ShardHistory};
pub use crate::protocol::metadata::{Drain, Phase, ShardMetadata};
pub use crate::protocol::survey::{KeyFindings, Survey};
pub use crate::table::tables::ArmingObstacle;

within!(Maintenance);
