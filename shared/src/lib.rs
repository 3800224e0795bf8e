#![doc = include_str!("../README.md")]

pub mod config;
mod core;
mod environment;
#[doc(hidden)]
pub mod protocol;
mod sharded_table;
pub mod stream;
mod table;
mod telemetry;

pub use config::{ConfigError, ScalingActors, TableConfig, Writes};
pub use core::capacity::CapacityScope;
pub use core::collisions;
pub use core::cursor::{self, CursorError, MAX_CURSOR_CHARS};
pub use core::growth::GrowthRecord;
pub use core::idempotency::{IdempotencyKey, IdempotencyKeyError};
pub use core::key::{
    KeyError, MAX_PARTITION_KEY_BYTES, MAX_SORT_KEY_BYTES, PartitionKey, Separator, ShardCount, ShardKeys, ShardNumber,
    SortKey, SortKeyType,
};
pub use core::load::Load;
pub use core::merge::{PageMerge, ShardPage, ShardPageRequest, Stored};
pub use core::number::{Number, NumberError};
pub use core::patch::{Merge, Patch, PatchError};
pub use core::placement::Placement;
pub use core::policy::{
    Growth, LONGEST_GATHERING, LOOK_AGAIN, ScalingDecision, ScalingPolicy, ShrinkDecision, TOGETHER,
};
pub use core::pressure::{Pressure, PressureTracker, Seen};
pub use core::query::{Order, PageQuery};
pub use core::survey::{KeyFindings, Survey};
pub use core::tag::{Conditions, ItemTag, Tags};
pub use core::throughput::{PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, WarmThroughput, needed_write_units};
pub use core::value::{Attributes, Item, MAX_ITEM_BYTES, Value, attributes_size};
pub use environment::{Clock, Environment, SystemClock};
pub use protocol::directory::{FULL_PAGE_BYTES, MAX_COPIES, PAGES};
pub use protocol::history::{HistoryEntry, HistoryError, ShardHistory};
pub use protocol::layout::{Layout, Places};
pub use protocol::metadata::{Drain, Phase, ShardMetadata};
pub use protocol::version::Version;
pub use protocol::view::{
    APPEND_LEASE, CROWD_BACKOFF, DRIFT_MARGIN, LONGEST_READ, MAX_LEASE, Moment, OBSERVER_PAUSE, SIGNATURE_VALIDITY,
    View,
};
pub use sharded_table::drain::{DrainRefused, Drained};
pub use sharded_table::events::{ScalingEvent, ScalingReason, ScalingStep};
pub use sharded_table::pace::{DrainBudget, DrainPace};
pub use sharded_table::read::{Page, ReadError};
pub use sharded_table::retry::{FIRST_PAUSE, LONGEST_PAUSE};
pub use sharded_table::scale::{EVIDENCE_LASTS, ScaleError, ScaleOutcome};
pub use sharded_table::survey::{Rebuilt, SurveyPage};
pub use sharded_table::update::Updated;
pub use sharded_table::write::{WriteError, WriteErrorKind, Written};
pub use sharded_table::{Deadline, ShardedTable};
pub use table::ScanPosition;
pub use table::attributes::RESERVED as RESERVED_ATTRIBUTES;
pub use table::error::{Cause, TableError};
