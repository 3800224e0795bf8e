//! The parts that only programs of this repository use: the endpoint, the local edition, the
//! adviser, the stream decoder, the model and the tests.
//! They are not part of the crate's interface: any release may change them.

pub use crate::config::width_history::InForce;
#[cfg(feature = "dynamo")]
pub use crate::values::dynamo;
pub use crate::values::key::{
    MAX_PARTITION_KEY_BYTES, MAX_SHARDED_KEY_BYTES, MAX_SORT_KEY_BYTES, SUFFIX_MARK, Separator,
    ShardKeys,
};
pub use crate::values::query::PageQuery;
pub use crate::values::value::write_units;
#[cfg(feature = "client")]
pub use of_the_client::*;

#[cfg(feature = "client")]
mod of_the_client {
    pub use crate::engine::arming::Patterns;
    pub use crate::engine::environment::{Clock, Environment};
    pub use crate::engine::job::{FailedWrite, KeyJob};
    pub use crate::engine::read::Page;
    pub use crate::engine::{Deadline, TableEngine};
    #[cfg(feature = "test-switches")]
    pub use crate::table::PartitionModel;
    pub use crate::table::error::throttled_scope;
}

/// The rules that keep reads and writes correct while a width changes. The model in `tests/model`
/// runs them.
pub mod protocol {
    pub use crate::protocol::*;
}

/// How many shards a key needs. The tests and the adviser ask it directly.
pub mod policy {
    pub use crate::policy::*;
}
