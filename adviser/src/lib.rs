//! What to deploy, and whether to: `advise` looks at a file of writes, `plan` calculates what a hot key needs, and `simulate` compares
//! scaling policies.

pub mod advise;
pub mod plan;
pub mod simulate;
