//! How many shards a key needs: from what writers see of throttles (`pressure`) and of the table's
//! limits (`capacity`), by the rules of growing and shrinking (`rules`, with `sizing` and
//! `collisions`), to a `decision`. Pure: time comes in as an argument.

pub(crate) mod capacity;
pub mod collisions;
pub(crate) mod decision;
pub(crate) mod pressure;
pub(crate) mod rules;
pub(crate) mod sizing;
