//! Whole-system tests, in one binary. Each binary links the SDK, which takes longer than most of
//! these tests.

mod adopting;
mod after_a_drain;
mod alarm_scaling;
mod arming;
mod batch_put;
mod capacity;
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
mod own_maintenance;
mod paging;
mod partition_limits;
mod pause;
mod read_replicas;
mod schedule;
mod shortage;
mod stream;
mod throttled_shard;
mod unknown_outcomes;

// The examples of the crate use its full name.
extern crate sharding as dynamodb_write_sharding;
