//! What a run results in.

use super::metadata::MetadataLoad;
use super::scenario::Scenario;

/// The result of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The scenario.
    pub scenario: Scenario,
    /// Seconds until less than 1 % of the new writes were throttled or waited for an open, for five
    /// consecutive seconds; `None` if that never happened.
    pub relieved_after: Option<f64>,
    /// The share of the writes that was accepted within their deadline.
    pub accepted: f64,
    /// The write width at the end.
    pub final_width: u32,
    /// The second at which an instance first reported that the table is short of partitions, and
    /// the write units per second that it reported as enough, if the partitions were known.
    pub short_after: Option<(f64, Option<u64>)>,
    /// The second at which an instance first reported that the key needs more than the maximum of
    /// shards.
    pub at_maximum_after: Option<f64>,
    /// Partitions of the table at the end.
    pub final_partitions: u32,
    /// Conditional updates of the metadata that succeeded.
    pub updates_made: u64,
    /// All conditional updates.
    pub updates_tried: u64,
    /// For each second the share of the new writes that was throttled or waited for an open, and
    /// the write width at the end.
    pub by_second: Vec<(f64, u32)>,
    /// The share of the time in which running instances had no view within its lease. Their
    /// requests waited.
    pub without_view: f64,
    /// The load on the metadata table; `None` if the policy does not use it.
    pub metadata: Option<MetadataLoad>,
}
