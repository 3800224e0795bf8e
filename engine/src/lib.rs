//! A DynamoDB engine in process, with the partition limits that no emulator has.
//!
//! The SDK reaches it through its own `HttpClient` trait, so what is tested and run locally is the real SDK and the
//! real store code. The same [`Engine::respond`] answers the local DynamoDB port.
//!
//! Partitions may be configured to give less than those of DynamoDB. Warm throughput is nominal all the same: 1,000
//! write and 3,000 read units a second for each partition. Programs learn from it how many partitions there are.

mod bucket;
mod capacity;
mod cloudwatch;
mod connector;
mod dispatch;
mod engine;
mod key_heat;
mod partition_limits;
mod partitions;
mod request;
mod table_growth;
mod warm_throughput;

pub use connector::InProcess;
pub use engine::{Answer, Engine, EngineError, Traffic};
pub use key_heat::KeyHeat;
pub use partition_limits::{PartitionLimits, WarmRequest, WhileWarming};
pub use partitions::{Access, PartitionHeat, Partitions, StoredKey};
pub use table_growth::{WarmRefusal, WarmThroughput};
