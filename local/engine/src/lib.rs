//! A DynamoDB engine in process, with the partition limits that no emulator has.
//!
//! The SDK reaches it through its own `HttpClient` trait, so what is tested and run locally is the real SDK and the real store code.
//! The same [`Engine::respond`] answers the local DynamoDB port.

mod capacity;
mod cloudwatch;
mod connector;
mod dispatch;
mod engine;
mod key_heat;
mod partitions;
mod request;

pub use connector::InProcess;
pub use engine::{Answer, Engine, EngineError, Traffic};
pub use key_heat::KeyHeat;
pub use partitions::{Access, PartitionHeat, PartitionLimits, Partitions, StoredKey};
