//! Advice before a deployment: `advise` judges a file of writes, `plan` calculates the needs of a
//! hot key, and `simulate` compares scaling policies.

pub mod advise;
pub mod plan;
pub mod simulate;
