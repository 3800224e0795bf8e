//! Physical partitions: each owns an equal range of hashes and serves a limited number of units per
//! second.
//!
//! The model follows the DynamoDB developer guide ("Burst and adaptive capacity", "Partitions and
//! data distribution", "Understanding DynamoDB warm throughput"):
//! - A partition has one ceiling for reads and one for writes. Several shards can be on one
//!   partition.
//! - A provisioned table's partition has a share below the ceiling and keeps up to 300 seconds of
//!   its unused share. This burst never lifts the ceiling.
//! - A request for warm throughput gives a table, or an index, more partitions (`warm_units.rs`).
//!   Nothing takes them away.
//!
//! Not modelled:
//! - The split of a partition that is overdrawn for minutes.
//! - The growth of a table with its traffic.
//!
//! The partitions are kept in memory and lost when the process ends.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::access::Access;
use crate::bucket::Capacity;
use crate::partition_limits::PartitionLimits;
use crate::warm_units::{WarmRequest, WarmThroughput};

/// The units that one partition has served, and the requests that it has rejected, since it was
/// created.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PartitionHeat {
    /// Write units consumed.
    pub write_units: f64,
    /// Read units consumed.
    pub read_units: f64,
    /// Rejected requests.
    pub throttled: u64,
}

/// A stored key and its hash, which is calculated once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    text: String,
    hash: u64,
}

impl StoredKey {
    /// Creates the key from the text of a stored partition key.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let digest = Sha256::digest(&text);
        let hash = digest.iter().take(8).fold(0u64, |acc, byte| acc << 8 | u64::from(*byte));
        Self { text, hash }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

#[derive(Debug)]
struct Partition {
    write: Capacity,
    read: Capacity,
    served: PartitionHeat,
}

impl Partition {
    fn new(limits: &PartitionLimits, now: Duration) -> Self {
        Self {
            write: Capacity::new(limits.write_units, limits.provisioned_write_units, now),
            read: Capacity::new(limits.read_units, None, now),
            served: PartitionHeat::default(),
        }
    }

    fn capacity(&mut self, access: Access) -> &mut Capacity {
        match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
        }
    }
}

/// An increase of warm throughput.
#[derive(Debug, Clone, Copy)]
struct Warming {
    partitions: usize,
    until: Duration,
}

/// The partitions of one table, in the order of their hash ranges.
#[derive(Debug)]
pub struct Partitions {
    limits: PartitionLimits,
    all: Vec<Partition>,
    warming: Option<Warming>,
}

impl Partitions {
    /// Creates partitions with equal hash ranges.
    pub fn new(limits: PartitionLimits, now: Duration) -> Self {
        let mut partitions = Self { limits, all: Vec::new(), warming: None };
        partitions.divide(limits.partitions.max(1) as usize, now);
        partitions
    }

    /// Divides all hashes into this number of equal ranges, each of a new partition.
    fn divide(&mut self, count: usize, now: Duration) {
        self.all = (0..count).map(|_| Partition::new(&self.limits, now)).collect();
    }

    /// Returns the number of partitions as of the last request or [`Self::advance`].
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the heat of each partition.
    pub(crate) fn heat_by_partition(&self) -> Vec<PartitionHeat> {
        self.all.iter().map(|partition| partition.served).collect()
    }

    /// Returns the index of a key's partition.
    pub fn index_of(&self, key: &StoredKey) -> usize {
        let count = self.all.len();
        let width = u64::MAX / count as u64;
        ((key.hash / width) as usize).min(count - 1)
    }

    /// Ends an increase that is due by `now`. Each request does this too.
    pub(crate) fn advance(&mut self, now: Duration) {
        if let Some(ended) = self.warming.take_if(|warming| warming.until <= now) {
            self.divide(ended.partitions, now);
        }
    }

    /// Returns the table's warm throughput, and whether it is being increased.
    pub(crate) fn warm_throughput(&mut self, now: Duration) -> (WarmThroughput, bool) {
        self.advance(now);
        (WarmThroughput::of(self.all.len()), self.warming.is_some())
    }

    /// Starts an increase of warm throughput, which ends after [`PartitionLimits::warming`], or
    /// raises the goal of the current one, unless the table has as much.
    pub(crate) fn warm(&mut self, wanted: WarmRequest, now: Duration) {
        let partitions = wanted.partitions();
        if partitions > self.all.len() {
            let requested = Warming { partitions, until: now.saturating_add(self.limits.warming) };
            let current = self.warming.unwrap_or(requested);
            let partitions = partitions.max(current.partitions);
            self.warming = Some(Warming { partitions, ..current });
        }
    }

    /// Gives a new table or index the requested warm throughput at once.
    pub(crate) fn begin(&mut self, wanted: WarmRequest, now: Duration) {
        self.divide(wanted.partitions().max(self.all.len()), now);
    }

    /// Whether the partition of a key accepts another request now.
    pub fn is_open(&mut self, key: &StoredKey, access: Access, now: Duration) -> bool {
        self.advance(now);
        let partition = self.partition(key);
        let is_open = partition.capacity(access).tokens(now) > 0.0;
        partition.served.throttled += u64::from(!is_open);
        is_open
    }

    /// Charges an accepted request.
    pub fn charge(&mut self, key: &StoredKey, access: Access, units: f64) {
        let partition = self.partition(key);
        partition.capacity(access).charge(units);
        match access {
            Access::Read => partition.served.read_units += units,
            Access::Write => partition.served.write_units += units,
        }
    }

    fn partition(&mut self, key: &StoredKey) -> &mut Partition {
        let index = self.index_of(key);
        &mut self.all[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PartitionLimits = PartitionLimits {
        partitions: 1,
        write_units: 100.0,
        read_units: 100.0,
        ..PartitionLimits::NEW_ON_DEMAND_TABLE
    };

    fn k() -> StoredKey {
        StoredKey::new("k")
    }

    /// Offers 1,000 writes a second to the key, and returns the number of accepted ones.
    fn offer(partitions: &mut Partitions, from: u64, seconds: u64) -> u64 {
        let mut accepted = 0;
        for tick in 0..seconds * 10 {
            let now = Duration::from_millis(from * 1_000 + tick * 100);
            for _ in 0..100 {
                if partitions.is_open(&k(), Access::Write, now) {
                    partitions.charge(&k(), Access::Write, 1.0);
                    accepted += 1;
                }
            }
        }
        accepted
    }

    #[test]
    fn a_partition_gives_its_units_a_second_and_no_more() {
        let mut partitions = Partitions::new(ONE, Duration::ZERO);
        let accepted = offer(&mut partitions, 0, 10);
        // Ten seconds at 100, and the one second that a full bucket holds.
        assert!((1_080..=1_110).contains(&accepted), "{accepted}");
        let now = Duration::from_millis(9_900);
        assert!(partitions.is_open(&k(), Access::Read, now), "reads have their own limit");
    }

    #[test]
    fn an_overdrawn_partition_pays_back_first() {
        let mut partitions =
            Partitions::new(PartitionLimits { write_units: 10.0, ..ONE }, Duration::ZERO);
        partitions.charge(&k(), Access::Write, 30.0);
        assert!(!partitions.is_open(&k(), Access::Write, Duration::from_millis(1_900)));
        assert!(partitions.is_open(&k(), Access::Write, Duration::from_millis(2_100)));
    }

    #[test]
    fn burst_is_spent_below_the_ceiling_and_earned_by_the_share() {
        let limits = PartitionLimits { provisioned_write_units: Some(10.0), ..ONE };
        let mut partitions = Partitions::new(limits, Duration::ZERO);
        let first = offer(&mut partitions, 0, 10);
        assert!((1_000..=1_150).contains(&first), "the ceiling holds during the burst: {first}");
        let both = first + offer(&mut partitions, 10, 60);
        let share_and_burst = 300 * 10 + 70 * 10;
        assert!(both.abs_diff(share_and_burst) < 60, "{both}");
    }

    #[test]
    fn the_heat_of_a_partition_is_what_it_served_and_rejected() {
        let limits = PartitionLimits { partitions: 4, write_units: 10.0, ..ONE };
        let mut partitions = Partitions::new(limits, Duration::ZERO);
        partitions.charge(&k(), Access::Write, 12.0);
        partitions.charge(&k(), Access::Read, 3.0);
        assert!(!partitions.is_open(&k(), Access::Write, Duration::ZERO));
        let mut expected = [PartitionHeat::default(); 4];
        expected[partitions.index_of(&k())] =
            PartitionHeat { write_units: 12.0, read_units: 3.0, throttled: 1 };
        assert_eq!(partitions.heat_by_partition(), expected);
    }
}
