//! Advice before a deployment: `advise` judges a file of writes, and `plan` calculates the needs of
//! a hot key.

pub mod advise;
pub mod plan;
