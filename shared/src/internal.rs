//! The parts that the functions, the local edition and the tests of this repository use. They are
//! not part of the crate's interface: any release may change them.

pub use crate::config::width_history::InForce;
pub use crate::policy::collisions;
pub use crate::policy::decision::{RECHECK_PERIOD, ShrinkDecision};
pub use crate::policy::pressure::{PressureTracker, Seen, few_items};
pub use crate::policy::rules::{MAX_SAMPLING_PERIOD, POOLING_PERIOD, ScalingPolicy};
pub use crate::policy::sizing::Sizing;
pub use crate::protocol::directory::{FULL_PAGE_BYTES, PAGES, SPLIT_PAGE_BYTES};
pub use crate::protocol::growth::GrowthRecord;
pub use crate::protocol::history::HistoryError;
pub use crate::protocol::layout::{Layout, Places};
pub use crate::protocol::load::Load;
pub use crate::protocol::merge::{PageMerge, ShardPage, ShardPageRequest, Stored};
pub use crate::protocol::names::RESERVED as RESERVED_ATTRIBUTES;
pub use crate::protocol::view::{
    APPEND_LEASE, CROWD_BACKOFF, DRIFT_MARGIN, LONGEST_READ, MAX_LEASE, Moment, OBSERVER_PAUSE,
    SIGNATURE_VALIDITY, View,
};
pub use crate::values::cursor::{self, CursorError, MAX_CURSOR_CHARS};
pub use crate::values::key::{MAX_PARTITION_KEY_BYTES, MAX_SORT_KEY_BYTES, Separator, ShardKeys};
pub use crate::values::query::PageQuery;
// With the client, they are public in `maintenance`.
#[cfg(not(feature = "client"))]
pub use crate::{
    protocol::survey::{KeyFindings, Survey},
    values::throughput::WarmThroughput,
};
#[cfg(feature = "client")]
pub use of_the_client::*;

#[cfg(feature = "client")]
mod of_the_client {
    pub use crate::engine::environment::{Clock, Environment, SystemClock};
    pub use crate::engine::read::Page;
    pub use crate::engine::read::paging::PageAt;
    pub use crate::engine::retry::longest_pause;
    pub use crate::engine::width::by_policy::EVIDENCE_PERIOD;
    pub use crate::engine::write::update::Updated;
    pub use crate::engine::{Deadline, TableEngine};
    #[cfg(feature = "test-switches")]
    pub use crate::table::partition_model::PartitionModel;
}

/// The rules that keep reads and writes correct while a width changes. The model in `tests/model`
/// runs them.
pub mod protocol {
    pub use crate::protocol::*;
}
