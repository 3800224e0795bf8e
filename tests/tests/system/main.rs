//! Whole-system tests, in one binary. Each binary links the SDK, which takes longer than most of
//! these tests.

#[cfg(unix)]
mod adopting;
mod after_a_drain;
mod alarm_scaling;
mod arming;
mod audit_log;
mod batch_put;
#[cfg(unix)]
mod child;
mod client;
mod console;
mod costs;
mod directory;
mod disarming;
mod documented;
mod draining;
mod foreign_metadata;
mod http_contract;
mod invocations;
#[cfg(unix)]
mod killed;
mod local_edition;
mod memory;
mod modes;
mod paging;
mod partition_limits;
mod pause;
mod read_replicas;
mod scaling;
mod schedule;
mod shortage;
mod stream;
mod throttled_shard;
mod throughput;
mod unknown_outcomes;
