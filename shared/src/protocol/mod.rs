//! The protocol: what keeps reads and writes right while a key's width changes.
//!
//! Everything here is pure: metadata as a state machine, views and leases, the places of an item, and the next step of each write, read and
//! drain. Time and answers come in as arguments; requests go out as values. `table` carries them out, `sharded_table` loops over them,
//! and the model in `tests/model` drives this same code. Each rule is in docs/protocol.md with the trace that it prevents.

pub mod append;
pub mod applied;
pub mod copies;
pub mod directory;
pub mod drain;
pub mod history;
pub mod layout;
pub mod metadata;
pub mod read;
pub mod version;
pub mod view;
pub mod write;
pub mod write_id;
