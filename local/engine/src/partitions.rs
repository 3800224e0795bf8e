//! Physical partitions: each owns a range of hashes and gives so many units a second.

use std::time::Duration;

use sha2::{Digest, Sha256};

/// How a table is partitioned, and what each partition gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartitionLimits {
    /// How many partitions the table has.
    pub partitions: u32,
    /// Write units a second of each.
    pub write_units: f64,
    /// Read units a second of each.
    pub read_units: f64,
}

impl Default for PartitionLimits {
    /// A new on-demand table: four partitions of 1,000 write and 3,000 read units a second. [DynamoDB developer guide]
    fn default() -> Self {
        Self { partitions: 4, write_units: 1_000.0, read_units: 3_000.0 }
    }
}

/// Reads and writes are limited independently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A token bucket that holds one second's units. A request is let in while there is a token at all, and then pays what it really
/// consumed, so the bucket can be overdrawn.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    rate: f64,
    tokens: f64,
    at: Duration,
}

impl Bucket {
    const fn new(rate: f64, now: Duration) -> Self {
        Self { rate, tokens: rate, at: now }
    }

    fn refill(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.rate).min(self.rate);
        self.at = now;
    }

    fn is_open(&mut self, now: Duration) -> bool {
        self.refill(now);
        self.tokens > 0.0
    }
}

#[derive(Debug)]
struct Partition {
    write: Bucket,
    read: Bucket,
}

/// The partitions of one table, by equal ranges of the stored key's hash.
#[derive(Debug)]
pub(crate) struct Partitions {
    all: Vec<Partition>,
}

impl Partitions {
    pub(crate) fn new(limits: PartitionLimits, now: Duration) -> Self {
        let partition =
            |_| Partition { write: Bucket::new(limits.write_units, now), read: Bucket::new(limits.read_units, now) };
        Self { all: (0..limits.partitions.max(1)).map(partition).collect() }
    }

    /// Whether the partition of a key takes another request now.
    pub(crate) fn is_open(&mut self, key: &str, access: Access, now: Duration) -> bool {
        self.bucket(key, access).is_none_or(|bucket| bucket.is_open(now))
    }

    /// Charges a request that was let in.
    pub(crate) fn charge(&mut self, key: &str, access: Access, units: f64) {
        if let Some(bucket) = self.bucket(key, access) {
            bucket.tokens -= units;
        }
    }

    fn bucket(&mut self, key: &str, access: Access) -> Option<&mut Bucket> {
        let index = range_of(key, self.all.len());
        let partition = self.all.get_mut(index)?;
        Some(match access {
            Access::Read => &mut partition.read,
            Access::Write => &mut partition.write,
        })
    }
}

/// Which of `count` equal ranges the key's hash falls into.
fn range_of(key: &str, count: usize) -> usize {
    let digest = Sha256::digest(key);
    let hash = digest.iter().take(8).fold(0u64, |acc, byte| acc << 8 | u64::from(*byte));
    usize::try_from((u128::from(hash) * count as u128) >> 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_gives_its_units_a_second_and_no_more() {
        let limits = PartitionLimits { partitions: 1, write_units: 100.0, read_units: 100.0 };
        let mut partitions = Partitions::new(limits, Duration::ZERO);
        let mut accepted = 0;
        for ms in 0..10_000u64 {
            let now = Duration::from_millis(ms);
            if partitions.is_open("k", Access::Write, now) {
                partitions.charge("k", Access::Write, 1.0);
                accepted += 1;
            }
        }
        // Ten seconds at 100, and the second that the bucket held.
        assert!((1_090..=1_110).contains(&accepted), "{accepted}");
        assert!(partitions.is_open("k", Access::Read, Duration::ZERO), "reads are limited on their own");
    }

    #[test]
    fn an_overdrawn_partition_pays_back_first() {
        let limits = PartitionLimits { partitions: 1, write_units: 10.0, read_units: 10.0 };
        let mut partitions = Partitions::new(limits, Duration::ZERO);
        partitions.charge("k", Access::Write, 30.0);
        assert!(!partitions.is_open("k", Access::Write, Duration::from_millis(1_900)));
        assert!(partitions.is_open("k", Access::Write, Duration::from_millis(2_100)));
    }

    #[test]
    fn keys_spread_over_all_partitions() {
        let mut seen = [0u32; 16];
        for i in 0..16_000 {
            seen[range_of(&format!("key.{i}"), 16)] += 1;
        }
        assert!(seen.iter().all(|count| (800..1_200).contains(count)), "{seen:?}");
    }
}
