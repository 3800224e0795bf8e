//! The parts that the functions, the local edition and the tests of this repository use. They are
//! not part of the crate's interface: any release may change them.

pub use crate::policy::capacity::CapacityScope;
pub use crate::policy::collisions;
pub use crate::policy::decision::{LOOK_AGAIN, ScalingDecision, ShrinkDecision};
pub use crate::policy::pressure::{Pressure, PressureTracker, Seen, few_items};
pub use crate::policy::rules::{LONGEST_GATHERING, ScalingPolicy, TOGETHER};
pub use crate::policy::sizing::Sizing;
pub use crate::protocol::directory::{FULL_PAGE_BYTES, MAX_COPIES, PAGES, SPLIT_PAGE_BYTES};
pub use crate::protocol::growth::GrowthRecord;
pub use crate::protocol::history::{HistoryEntry, HistoryError, ShardHistory};
pub use crate::protocol::layout::{Layout, Places};
pub use crate::protocol::load::Load;
pub use crate::protocol::merge::{PageMerge, ShardPage, ShardPageRequest, Stored};
pub use crate::protocol::metadata::{Drain, Phase, ShardMetadata};
pub use crate::protocol::names::RESERVED as RESERVED_ATTRIBUTES;
pub use crate::protocol::survey::{KeyFindings, Survey};
pub use crate::protocol::version::Version;
pub use crate::protocol::view::{
    APPEND_LEASE, CROWD_BACKOFF, DRIFT_MARGIN, LONGEST_READ, MAX_LEASE, Moment, OBSERVER_PAUSE,
    SIGNATURE_VALIDITY, View,
};
pub use crate::values::cursor::{self, CursorError, MAX_CURSOR_CHARS};
pub use crate::values::key::{
    MAX_PARTITION_KEY_BYTES, MAX_SORT_KEY_BYTES, Separator, ShardCount, ShardKeys, ShardNumber,
};
pub use crate::values::query::PageQuery;
pub use crate::values::throughput::{PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, WarmThroughput};
pub use crate::values::value::Item;
#[cfg(feature = "client")]
pub use of_the_client::*;

#[cfg(feature = "client")]
mod of_the_client {
    pub use crate::config::{DrainPace, ScalingActors};
    pub use crate::engine::drain::Drained;
    pub use crate::engine::drain::begin::DrainRefused;
    pub use crate::engine::drain::pace::DrainBudget;
    pub use crate::engine::environment::{Clock, Environment, SystemClock};
    pub use crate::engine::events::{ScalingEvent, ScalingReason, ScalingStep};
    pub use crate::engine::read::Page;
    pub use crate::engine::read::paging::PageAt;
    pub use crate::engine::retry::longest_pause;
    pub use crate::engine::survey::{Rebuilt, SurveyPage};
    pub use crate::engine::width::by_policy::{EVIDENCE_LASTS, ReportedKey};
    pub use crate::engine::width::{ScaleError, ScaleOutcome};
    pub use crate::engine::write::update::Updated;
    pub use crate::engine::{Deadline, TableEngine};
    pub use crate::table::ScanPosition;
    #[cfg(feature = "test-switches")]
    pub use crate::table::partition_model::PartitionModel;
}

/// How functions read their own variables.
#[cfg(feature = "client")]
pub mod config {
    pub use crate::config::*;
}

/// The rules that keep reads and writes correct while a width changes. The model in `tests/model`
/// runs them.
pub mod protocol {
    pub use crate::protocol::*;
}
