//! A DynamoDB engine in process, with the partition limits that no emulator has.
//!
//! The SDK reaches the engine through its own `HttpClient` trait, so local runs and tests use the
//! real SDK and the real table code. The local DynamoDB port serves the same [`Engine::respond`].
//!
//! Partitions may be configured with less throughput than those of DynamoDB. Warm throughput stays
//! nominal: 1,000 write and 3,000 read units per second for each partition. Programs calculate the
//! number of partitions from it.

mod access;
mod account;
mod billing_mode;
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
mod table_growth;
mod wanted_throughput;
mod warm_throughput;

pub use access::Access;
pub use connector::{InProcess, http_client};
pub use engine::{Engine, EngineError, Traffic};
pub use key_heat::KeyHeat;
pub use partition_limits::{PartitionLimits, WarmRequest, WhileWarming};
pub use partitions::{PartitionHeat, Partitions, StoredKey};
pub use response::Response;
pub use table_growth::{WarmRefusal, WarmThroughput};
