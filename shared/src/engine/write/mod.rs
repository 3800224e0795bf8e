//! Writes: puts, creations, deletions and updates, and appends.

mod append;
mod input;
pub(crate) mod put_all;
pub(in crate::engine) mod run;
pub(crate) mod update;
