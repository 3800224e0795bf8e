#![doc = include_str!("../README.md")]

mod access;
mod bucket;
mod caller;
mod capacity;
mod cloudwatch;
mod connector;
mod dispatch;
mod engine;
mod key_condition;
mod key_heat;
mod partition_limits;
mod partitions;
mod request;
mod response;
mod start;
mod warm_throughput;
mod warm_units;

pub use connector::InProcess;
pub use engine::Engine;
pub use partition_limits::PartitionLimits;
pub use start::EngineError;

// Hidden: for the local edition and the tests of this repository.
#[doc(hidden)]
pub use {
    access::Access,
    connector::{http_client, sdk_config},
    engine::Traffic,
    key_heat::KeyHeat,
    partition_limits::WhileWarming,
    partitions::{PartitionHeat, Partitions, StoredKey},
    response::Response,
};
