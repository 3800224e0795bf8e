//! The support library of the whole-system tests: it starts a local edition, and a Lambda runtime
//! API that runs real function binaries. What cannot do its work panics, so that the test fails.

pub mod at_once;
mod edition;
mod lambda;
pub mod metadata;
pub mod pages;
mod services;
pub mod simulation;
mod stored;
mod tables;
mod values;
pub mod warm_write;
mod wire;

pub use edition::{Response, TestEdition, config};
pub use embedded_dynamodb::http_client;
pub use lambda::{Function, event, event_of_now, peak_kilobytes, wall_clock};
pub use services::Services;
pub use stored::{OneItem, ask, numbers, read_items, scan_stored, store_plainly, survey};
pub use tables::{Tables, UNLIMITED};
pub use values::{
    count, filled_item, large_or, large_tests, median, numbered, partition_key, report_throttles,
    soon, sort_key, value_of, valued_item,
};
pub use wire::{Call, Fate, TestClock, Wire};
