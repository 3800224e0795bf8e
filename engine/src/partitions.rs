//! Physical partitions: each owns a range of hashes and serves a limited number of units per
//! second.
//!
//! The model follows the DynamoDB developer guide ("Burst and adaptive capacity", "Partitions and
//! data distribution") and the AWS Database Blog ("Scaling DynamoDB", part 3):
//! - A partition has one ceiling for reads and one for writes. Several shards can be on one
//!   partition.
//! - A provisioned table's partition has a share below the ceiling and keeps up to 300 seconds of
//!   its unused share. This burst never lifts the ceiling.
//! - A partition that is overdrawn for minutes splits: between its hot keys, or within its one hot
//!   key by sort key. A key whose sort keys only rise does not gain by a split, because all its new
//!   items go to the same end.
//! - A table's partitions multiply with its traffic and on request. Its warm throughput shows their
//!   number (`table_growth.rs`).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::access::Access;
use crate::bucket::Capacity;
use crate::partition_limits::{PartitionLimits, WarmRequest, WhileWarming};
use crate::table_growth::{Step, TableGrowth, WarmRefusal, WarmThroughput};

/// A partition that was not overdrawn for this long is calm.
const CALM_AFTER: Duration = Duration::from_secs(30);
/// A key with this share of the throttles is the partition's one hot key.
const DOMINANT: f64 = 0.8;
/// The most hot keys that a partition counts.
const COUNTED_KEYS: usize = 256;

/// The units that one partition has served, and the requests that it has rejected, since it was
/// created.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PartitionHeat {
    /// Its number, which it keeps when others split.
    pub id: u64,
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
        Self { hash: hash(&text), text }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

#[derive(Debug, Default)]
struct Heat {
    since: Option<Duration>,
    last: Duration,
    keys: HashMap<String, KeyHeat>,
}

#[derive(Debug, Default)]
struct KeyHeat {
    throttles: u64,
    rises: u64,
    falls: u64,
    last_sort_key: Option<String>,
}

impl KeyHeat {
    fn note(&mut self, sort_key: Option<&str>) {
        self.throttles += 1;
        if let Some(sort_key) = sort_key {
            match self.last_sort_key.as_deref() {
                Some(last) if sort_key < last => self.falls += 1,
                Some(_) => self.rises += 1,
                None => {}
            }
            self.last_sort_key = Some(sort_key.to_owned());
        }
    }

    /// Tolerates one fall in 20 rises, because the clocks of different writers differ.
    fn only_rises(&self) -> bool {
        self.rises > 20 * self.falls
    }
}

#[derive(Debug)]
struct Partition {
    start: u64,
    write: Capacity,
    read: Capacity,
    heat: Heat,
    served: PartitionHeat,
}

impl Partition {
    fn capacity(&mut self, access: Access) -> &mut Capacity {
        match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
        }
    }
}

/// The partitions of one table, by ranges of the stored key's hash.
#[derive(Debug)]
pub struct Partitions {
    limits: PartitionLimits,
    all: Vec<Partition>,
    /// Keys whose items are stored on several partitions of their own, by ranges of their sort
    /// keys.
    collections: HashMap<String, Vec<Partition>>,
    made: u64,
    growth: TableGrowth,
}

impl Partitions {
    /// Creates partitions with equal hash ranges.
    pub fn new(limits: PartitionLimits, now: Duration) -> Self {
        let (collections, growth) = (HashMap::new(), TableGrowth::new(now));
        let mut partitions = Self { limits, all: Vec::new(), collections, made: 0, growth };
        partitions.all = partitions.equal_parts(limits.partitions.max(1).into(), now);
        partitions
    }

    /// Creates partitions that divide all hashes into this number of equal ranges.
    fn equal_parts(&mut self, count: u64, now: Duration) -> Vec<Partition> {
        (0..count).map(|part| self.create(part * (u64::MAX / count), now)).collect()
    }

    fn create(&mut self, start: u64, now: Duration) -> Partition {
        let id = self.made;
        self.made += 1;
        Partition {
            start,
            write: self.full_write_capacity(now),
            read: Capacity::new(self.limits.read_units, None, now),
            heat: Heat::default(),
            served: PartitionHeat { id, ..PartitionHeat::default() },
        }
    }

    fn full_write_capacity(&self, now: Duration) -> Capacity {
        Capacity::new(self.limits.write_units, self.limits.provisioned_write_units, now)
    }

    /// Returns the number of partitions as of the last request or [`Self::advance`]: hash ranges,
    /// and the partitions that single keys have to themselves.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.all.len()
            + self.collections.values().map(|parts| parts.len().saturating_sub(1)).sum::<usize>()
    }

    /// Returns the heat of each partition: first in the order of hash ranges, then of the
    /// partitions that single keys have to themselves.
    pub(crate) fn heat_by_partition(&self) -> Vec<PartitionHeat> {
        let mut keys: Vec<_> = self.collections.iter().collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        let own = keys.into_iter().flat_map(|(_, parts)| parts);
        self.all.iter().chain(own).map(|partition| partition.served).collect()
    }

    /// Returns the index of a key's partition in the order of hash ranges.
    pub(crate) fn index_of(&self, key: &StoredKey) -> usize {
        self.all.partition_point(|partition| partition.start <= key.hash).saturating_sub(1)
    }

    /// Doubles and warms the partitions that are due by `now`. Each request does this too.
    pub(crate) fn advance(&mut self, now: Duration) {
        while let Some(step) = self.growth.due(&self.limits, self.all.len(), now) {
            let cuts = match step {
                Step::Double => vec![2; self.all.len()],
                Step::Warm { partitions } => self.cuts(partitions),
            };
            self.split_ranges(&cuts, now);
        }
    }

    /// Returns the table's warm throughput. It does not count the partitions that single keys have
    /// to themselves, because no other key gains by them.
    pub(crate) fn warm_throughput(&mut self, now: Duration) -> WarmThroughput {
        self.advance(now);
        WarmThroughput::of(self.all.len(), self.growth.updating_until())
    }

    /// Starts an increase of warm throughput, which ends after [`PartitionLimits::warming`], unless
    /// the table has as much. The request has passed [`Self::check_warm`].
    pub(crate) fn warm(&mut self, wanted: WarmRequest, now: Duration) {
        let partitions = wanted.partitions();
        if partitions > self.all.len() {
            self.growth.warm(partitions, now.saturating_add(self.limits.warming));
        }
    }

    /// Checks whether warm throughput may be raised now. If read and write units are both refused,
    /// the error names the read units, as DynamoDB does.
    pub(crate) fn check_warm(
        &mut self,
        wanted: WarmRequest,
        now: Duration,
    ) -> Result<(), WarmRefusal> {
        let current = self.warm_throughput(now);
        let refuses = self.limits.while_warming == WhileWarming::Refuses;
        if refuses && current.updating_until.is_some() {
            return Err(WarmRefusal::Updating);
        }
        current.check(wanted)
    }

    /// Whether the partition of a key accepts another request now. A rejected write adds heat.
    pub fn is_open(
        &mut self,
        key: &StoredKey,
        sort_key: Option<&str>,
        access: Access,
        now: Duration,
    ) -> bool {
        self.advance(now);
        let partition = self.partition(key, sort_key);
        let open = partition.capacity(access).tokens(now) > 0.0;
        if !open {
            partition.served.throttled += 1;
            if access == Access::Write {
                self.heat(key, sort_key, now);
            }
        }
        open
    }

    /// Charges an accepted request.
    pub fn charge(&mut self, key: &StoredKey, sort_key: Option<&str>, access: Access, units: f64) {
        let partition = self.partition(key, sort_key);
        partition.capacity(access).charge(units);
        match access {
            Access::Read => partition.served.read_units += units,
            Access::Write => partition.served.write_units += units,
        }
        self.growth.serve(access, units);
    }

    fn partition(&mut self, key: &StoredKey, sort_key: Option<&str>) -> &mut Partition {
        let index = self.index_of(key);
        match self.collections.get_mut(&key.text) {
            Some(parts) => {
                let at = sort_key.map_or(0, |sort_key| {
                    parts.partition_point(|part| part.start <= hash(sort_key)).saturating_sub(1)
                });
                &mut parts[at]
            }
            None => &mut self.all[index],
        }
    }

    fn heat(&mut self, key: &StoredKey, sort_key: Option<&str>, now: Duration) {
        let Some(split_after) = self.limits.split_after else { return };
        let heat = &mut self.partition(key, sort_key).heat;
        if heat.since.is_none() || now.saturating_sub(heat.last) > CALM_AFTER {
            *heat = Heat { since: Some(now), ..Heat::default() };
        }
        heat.last = now;
        if heat.keys.contains_key(&key.text) || heat.keys.len() < COUNTED_KEYS {
            heat.keys.entry(key.text.clone()).or_default().note(sort_key);
        }
        if heat.since.is_some_and(|since| now.saturating_sub(since) >= split_after) {
            let heat = std::mem::take(heat);
            self.split(key, &heat, now);
        }
    }

    fn split(&mut self, key: &StoredKey, heat: &Heat, now: Duration) {
        let total: u64 = heat.keys.values().map(|key| key.throttles).sum();
        let is_dominant = |key: &KeyHeat| key.throttles as f64 >= DOMINANT * total as f64;
        if let Some((dominant, its_heat)) = heat.keys.iter().find(|(_, key)| is_dominant(key)) {
            if !its_heat.only_rises() {
                let ways = self.collections.get(dominant).map_or(1, Vec::len) as u64 * 2;
                let parts = self.equal_parts(ways, now);
                self.collections.insert(dominant.clone(), parts);
            }
            return;
        }
        let mut hashes: Vec<u64> = heat.keys.keys().map(|key| hash(key)).collect();
        hashes.sort_unstable();
        let middle = hashes[hashes.len() / 2];
        let index = self.index_of(key);
        if self.all[index].start < middle {
            self.all[index].write = self.full_write_capacity(now);
            let upper = self.create(middle, now);
            self.all.insert(index + 1, upper);
        }
    }

    /// Returns the number of parts that each hash range is cut into to reach this number of
    /// partitions. The next cut always divides the range with the widest parts.
    fn cuts(&self, partitions: usize) -> Vec<u64> {
        let mut cuts = vec![1; self.all.len()];
        let mut parts: BinaryHeap<(u64, Reverse<usize>)> =
            (0..cuts.len()).map(|range| (self.width(range), Reverse(range))).collect();
        for _ in cuts.len()..partitions {
            if let Some((_, Reverse(range))) = parts.pop() {
                cuts[range] += 1;
                parts.push((self.width(range) / cuts[range], Reverse(range)));
            }
        }
        cuts
    }

    /// Cuts each hash range into this number of equal parts. The first part stays the same
    /// partition. Its heat is reset, because it was that of the whole range.
    fn split_ranges(&mut self, cuts: &[u64], now: Duration) {
        let widths: Vec<u64> =
            cuts.iter().enumerate().map(|(range, parts)| self.width(range) / parts).collect();
        let whole = std::mem::take(&mut self.all).into_iter();
        for ((mut partition, width), &parts) in whole.zip(widths).zip(cuts) {
            let start = partition.start;
            if parts > 1 {
                partition.heat = Heat::default();
            }
            self.all.push(partition);
            for part in 1..parts {
                let upper = self.create(start + width * part, now);
                self.all.push(upper);
            }
        }
    }

    fn width(&self, range: usize) -> u64 {
        let end = self.all.get(range + 1).map_or(u64::MAX, |next| next.start);
        end - self.all[range].start
    }
}

fn hash(key: &str) -> u64 {
    Sha256::digest(key).iter().take(8).fold(0u64, |acc, byte| acc << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PartitionLimits = PartitionLimits {
        partitions: 1,
        write_units: 100.0,
        read_units: 100.0,
        split_after: Some(Duration::from_secs(60)),
        ..PartitionLimits::NEW_ON_DEMAND_TABLE
    };

    /// Offers 1,000 writes a second to the key, and returns the number of accepted ones.
    fn offer(
        partitions: &mut Partitions,
        from: u64,
        seconds: u64,
        sort_key: impl Fn(u64) -> String,
    ) -> u64 {
        let (key, mut accepted) = (k(), 0);
        for tick in 0..seconds * 10 {
            let now = Duration::from_millis(from * 1_000 + tick * 100);
            for attempt in 0..100 {
                let sort_key = sort_key(tick * 100 + attempt);
                accepted += u64::from(accepts(partitions, &key, Some(&sort_key), now));
            }
        }
        accepted
    }

    fn accepts(
        partitions: &mut Partitions,
        key: &StoredKey,
        sort_key: Option<&str>,
        now: Duration,
    ) -> bool {
        let is_open = partitions.is_open(key, sort_key, Access::Write, now);
        if is_open {
            partitions.charge(key, sort_key, Access::Write, 1.0);
        }
        is_open
    }

    fn k() -> StoredKey {
        StoredKey::new("k")
    }

    fn scattered(tick: u64) -> String {
        tick.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_string()
    }

    #[test]
    fn a_partition_gives_its_units_a_second_and_no_more() {
        let mut partitions = Partitions::new(ONE, Duration::ZERO);
        let accepted = offer(&mut partitions, 0, 10, scattered);
        // Ten seconds at 100, and the one second that a full bucket holds.
        assert!((1_080..=1_110).contains(&accepted), "{accepted}");
        let now = Duration::from_millis(9_900);
        assert!(partitions.is_open(&k(), None, Access::Read, now), "reads have their own limit");
    }

    #[test]
    fn an_overdrawn_partition_pays_back_first() {
        let mut partitions =
            Partitions::new(PartitionLimits { write_units: 10.0, ..ONE }, Duration::ZERO);
        partitions.charge(&k(), None, Access::Write, 30.0);
        assert!(!partitions.is_open(&k(), None, Access::Write, Duration::from_millis(1_900)));
        assert!(partitions.is_open(&k(), None, Access::Write, Duration::from_millis(2_100)));
    }

    #[test]
    fn burst_is_spent_below_the_ceiling_and_earned_by_the_share() {
        let limits =
            PartitionLimits { provisioned_write_units: Some(10.0), split_after: None, ..ONE };
        let mut partitions = Partitions::new(limits, Duration::ZERO);
        let first = offer(&mut partitions, 0, 10, scattered);
        assert!((1_000..=1_150).contains(&first), "the ceiling holds during the burst: {first}");
        let both = first + offer(&mut partitions, 10, 60, scattered);
        let share_and_burst = 300 * 10 + 70 * 10;
        assert!(both.abs_diff(share_and_burst) < 60, "{both}");
    }

    #[test]
    fn heat_splits_a_scattered_key_in_time_but_never_a_rising_one() {
        let mut partitions = Partitions::new(ONE, Duration::ZERO);
        offer(&mut partitions, 0, 59, scattered);
        assert_eq!(partitions.count(), 1);
        offer(&mut partitions, 59, 3, scattered);
        assert_eq!(partitions.count(), 2);
        let after = offer(&mut partitions, 62, 10, scattered);
        assert!(after > 1_800, "two partitions serve the key: {after}");

        let mut partitions = Partitions::new(ONE, Duration::ZERO);
        let rising = offer(&mut partitions, 0, 300, |tick| format!("{tick:08}"));
        assert_eq!(partitions.count(), 1);
        assert!(rising < 30_300, "{rising}");
    }

    #[test]
    fn heat_splits_a_partition_between_its_hot_keys() {
        let mut partitions = Partitions::new(ONE, Duration::ZERO);
        for tick in 0..700u64 {
            for key in (0..10).map(|key| StoredKey::new(format!("k{key}"))) {
                let now = Duration::from_millis(tick * 100);
                for _ in 0..5 {
                    accepts(&mut partitions, &key, Some(&scattered(tick)), now);
                }
            }
        }
        assert!(partitions.count() > 1);
    }

    #[test]
    fn the_heat_of_a_partition_is_what_it_served_and_rejected() {
        let limits = PartitionLimits { partitions: 4, write_units: 10.0, ..ONE };
        let mut partitions = Partitions::new(limits, Duration::ZERO);
        partitions.charge(&k(), None, Access::Write, 12.0);
        partitions.charge(&k(), None, Access::Read, 3.0);
        assert!(!partitions.is_open(&k(), None, Access::Write, Duration::ZERO));
        let heat = partitions.heat_by_partition();
        let hot = partitions.index_of(&k());
        assert_eq!(heat.iter().map(|heat| heat.id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let expected =
            PartitionHeat { id: hot as u64, write_units: 12.0, read_units: 3.0, throttled: 1 };
        assert_eq!(heat[hot], expected);
        assert!(heat.iter().enumerate().all(|(i, heat)| i == hot || heat.write_units == 0.0));
    }
}
