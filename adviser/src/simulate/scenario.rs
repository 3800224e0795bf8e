//! What a run simulates: the policy, the demand, the tables and the instances.

use std::time::Duration;

use clap::ValueEnum;
use sharding::internal::{Growth, ScalingPolicy, ShardCount};

/// One row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The policy's name in the table.
    pub policy: &'static str,
    /// The policy.
    pub contender: Contender,
    /// Write units per second, from second 0 on.
    pub demand: u32,
    /// Partitions of the table at the start.
    pub partitions: u32,
    /// Whether instances know the number of partitions, from the directory.
    pub knows_partitions: bool,
    /// Write units per second that the shard-scaler may raise the table's warm throughput to; 0 for
    /// never.
    pub budget: u32,
    /// The duration of such a raise.
    pub warming: Duration,
    /// Simulated seconds.
    pub seconds: u32,
    /// The number of instances; each writes and reads.
    pub instances: u32,
    /// Reads per second of all instances.
    pub reads: u32,
    /// The start of the instances.
    pub starts: Starts,
    /// Copies of the key's page in the directory.
    pub copies: u32,
    /// Partitions of the metadata table; `None` for one partition for each item.
    pub metadata_partitions: Option<u32>,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The start of the instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Starts {
    /// All run already, with views of different ages
    Warm,
    /// All start at second 0 without a view: the worst case for the metadata table
    AtOnce,
    /// 1,000 start at second 0, and 100 in each second after it, without a view: as fast as Lambda
    /// starts instances
    Lambda,
}

/// A policy in the comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Contender {
    /// No policy: only DynamoDB's own split for heat.
    Nothing,
    /// The `sharding` crate under this policy.
    Policy(ScalingPolicy),
    /// The `sharding` crate, with the key set to this width when the first instance starts.
    Once(ShardCount),
}

impl Contender {
    /// Returns the policies of the benchmark, each with its name in the table.
    #[must_use]
    pub fn all() -> [(&'static str, Self); 4] {
        let ours = ScalingPolicy::default();
        [
            ("split for heat only", Self::Nothing),
            (
                "+1, cooldown 60 s",
                Self::Policy(ScalingPolicy {
                    growth: Growth::PlusOne,
                    cooldown_seconds: 60,
                    ..ours
                }),
            ),
            ("doubling", Self::Policy(ScalingPolicy { growth: Growth::Doubling, ..ours })),
            ("proportional", Self::Policy(ours)),
        ]
    }
}
