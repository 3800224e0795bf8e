//! The protocol. It keeps reads and writes correct while a key's width changes.
//!
//! Everything here is pure: the metadata as a state machine, views and leases, the places of an
//! item, and the next step of each write, read and drain. `table` sends the requests, `engine` has
//! the loops, and the model in `tests/model` drives this same code. docs/protocol.md has the rules.

pub mod append;
pub mod applied;
pub mod armed;
pub mod copies;
pub mod directory;
pub mod drain;
pub mod expressed;
pub mod growth;
pub mod history;
pub mod layout;
pub mod load;
pub mod merge;
pub mod metadata;
pub mod names;
pub mod progress;
pub mod survey;
pub mod tag;
pub mod version;
pub mod view;
pub mod write;
pub mod write_id;
