//! The shard-scaler: as a library over AWS in this process, and as the binary that Lambda runs.

mod alarms;
mod aws;
mod events;
mod failing_services;
mod warming;
