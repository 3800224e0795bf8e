//! The parts that the functions, the local edition and the tests of this repository use. They are
//! not part of the crate's interface: any release may change them.

pub use crate::core::capacity::CapacityScope;
pub use crate::core::collisions;
pub use crate::core::cursor::{self, CursorError, MAX_CURSOR_CHARS};
pub use crate::core::decision::{LOOK_AGAIN, ScalingDecision, ShrinkDecision};
pub use crate::core::growth::GrowthRecord;
pub use crate::core::idempotency::{IdempotencyKey, IdempotencyKeyError};
pub use crate::core::key::{
    KeyError, MAX_PARTITION_KEY_BYTES, MAX_SORT_KEY_BYTES, PartitionKey, Separator, ShardCount,
    ShardKeys, ShardNumber, SortKey, SortKeyType,
};
pub use crate::core::load::Load;
pub use crate::core::merge::{PageMerge, ShardPage, ShardPageRequest, Stored};
pub use crate::core::number::{Number, NumberError};
pub use crate::core::patch::{Merge, Patch, PatchError};
pub use crate::core::placement::Placement;
pub use crate::core::policy::{LONGEST_GATHERING, ScalingPolicy, TOGETHER};
pub use crate::core::pressure::{Pressure, PressureTracker, Seen, few_items};
pub use crate::core::query::{Order, PageQuery};
pub use crate::core::sizing::Sizing;
pub use crate::core::survey::{KeyFindings, Survey};
pub use crate::core::tag::{Conditions, ItemTag, Tags};
pub use crate::core::throughput::{PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, WarmThroughput};
pub use crate::core::value::{Attributes, Item, MAX_ITEM_BYTES, Value, attributes_size};
pub use crate::protocol::directory::{FULL_PAGE_BYTES, MAX_COPIES, PAGES, SPLIT_PAGE_BYTES};
pub use crate::protocol::history::{HistoryEntry, HistoryError, ShardHistory};
pub use crate::protocol::layout::{Layout, Places};
pub use crate::protocol::metadata::{Drain, Phase, ShardMetadata};
pub use crate::protocol::version::Version;
pub use crate::protocol::view::{
    APPEND_LEASE, CROWD_BACKOFF, DRIFT_MARGIN, LONGEST_READ, MAX_LEASE, Moment, OBSERVER_PAUSE,
    SIGNATURE_VALIDITY, View,
};
#[cfg(feature = "client")]
pub use of_the_client::*;

#[cfg(feature = "client")]
mod of_the_client {
    pub use crate::config::{ConfigError, ScalingActors, TableConfig, Writes};
    pub use crate::environment::{Clock, Environment, SystemClock};
    pub use crate::sharded_table::begin_drain::DrainRefused;
    pub use crate::sharded_table::drain::Drained;
    pub use crate::sharded_table::events::{ScalingEvent, ScalingReason, ScalingStep};
    pub use crate::sharded_table::pace::{DrainBudget, DrainPace};
    pub use crate::sharded_table::read::Page;
    pub use crate::sharded_table::results::{ReadError, WriteError, WriteErrorKind, Written};
    pub use crate::sharded_table::retry::longest_pause;
    pub use crate::sharded_table::scale::{ScaleError, ScaleOutcome};
    pub use crate::sharded_table::scale_by_policy::EVIDENCE_LASTS;
    pub use crate::sharded_table::survey::{Rebuilt, SurveyPage};
    pub use crate::sharded_table::update::Updated;
    pub use crate::sharded_table::{Deadline, TableEngine};
    pub use crate::table::ScanPosition;
    pub use crate::table::error::{Cause, TableError};
    pub use crate::table::names::RESERVED as RESERVED_ATTRIBUTES;
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
