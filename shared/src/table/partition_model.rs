//! A model of the main table's partitions in place of the table, so that a measurement of the
//! scaling policy makes millions of writes: each passes the whole engine, and none is signed, sent
//! or stored. The metadata table stays real.

use std::fmt;
use std::pin::Pin;

/// The main table's partitions.
pub trait PartitionModel: fmt::Debug + Send + Sync {
    /// A write of an item of this size under a stored key. `false` if its partition throttles it.
    fn write(&self, shard_key: String, units: u64) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}
