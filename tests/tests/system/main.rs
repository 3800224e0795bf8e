//! Whole-system tests, in one binary. Each binary links the SDK, which takes longer than most of
//! these tests.

mod adopting;
mod after_a_drain;
mod alarm_scaling;
mod arming;
mod batch_put;
mod client;
mod console;
mod costs;
mod directory;
mod documented;
mod draining;
mod http_contract;
mod local_edition;
mod memory;
mod modes;
mod one_key;
mod paging;
mod partition_limits;
mod pause;
mod read_replicas;
mod schedule;
mod shortage;
mod stream;
mod throttled_shard;
mod throughput;
mod unknown_outcomes;
