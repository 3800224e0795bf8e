//! What an endpoint has observed of keys that are not armed: the line of JSON of its `GET /observed`,
//! which its `status` and the adviser read.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// What an endpoint has observed in the last hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observations {
    /// The keys that are not armed and were throttled, hottest first, each with its hottest period.
    pub not_armed: Vec<HotKey>,
}

/// A key that was throttled in a period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKey {
    /// The table.
    pub table: String,
    /// The partition key.
    pub key: String,
    /// The write units a second that its clients asked for, with those that were throttled.
    pub write_units: u64,
    /// Its throttled writes: because of its partition, or for an unknown reason, as in a batch.
    pub throttled: u64,
    /// The shards that the policy gives these write units on a table with many partitions.
    pub shards: u32,
    /// Operations and parameters that its clients have used, and that are refused once it is armed.
    pub refused: BTreeSet<String>,
}

impl Observations {
    /// Reads a line.
    ///
    /// # Errors
    /// The line is not a JSON object, or a field is missing or invalid. The text names it.
    pub fn of_line(line: &str) -> Result<Self, String> {
        serde_json::from_str(line)
            .map_err(|error| format!("it is not what an endpoint has observed: {error}"))
    }
}

impl HotKey {
    /// What is refused, as a list with commas.
    #[must_use]
    pub fn refused(&self) -> String {
        Vec::from_iter(self.refused.iter().map(String::as_str)).join(", ")
    }
}
