//! How many shards a key needs: from what writers see of throttles (`pressure`) and of the table's
//! limits (`capacity`), by the rules of growing and shrinking (`rules`, with `sizing` and
//! `collisions`), to a `decision`. Pure: time comes in as an argument.

pub mod capacity;
pub mod collisions;
pub mod decision;
pub mod pressure;
pub mod rules;
pub mod sizing;
