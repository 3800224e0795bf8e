//! Physical partitions: each owns a range of hashes and gives so many units a second.
//!
//! What is modelled, and from where (DynamoDB developer guide, "Burst and adaptive capacity", "Partitions and data distribution";
//! AWS Database Blog, "Scaling DynamoDB", part 3):
//! - a partition has a ceiling, for reads and writes apart; several shards can land on one partition;
//! - a provisioned table's partition has a share below the ceiling and keeps up to 300 seconds of what it did not use; that burst
//!   never lifts the ceiling;
//! - a partition that is overdrawn for minutes splits: between its hot keys, or inside the one hot key by its sort keys; a key whose sort
//!   keys only rise gains nothing by a split, for all its new items go to the same end.

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest, Sha256};

/// Seconds of unused share that are kept for a burst.
const BURST_SECONDS: f64 = 300.0;
/// A partition that was not overdrawn for so long is calm.
const CALM_AFTER: Duration = Duration::from_secs(30);
/// A key with this part of the throttles is the partition's one hot key.
const DOMINANT: f64 = 0.8;
/// Hot keys that a partition keeps count of.
const COUNTED_KEYS: usize = 256;

/// How a table is partitioned, and what each partition gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartitionLimits {
    /// How many partitions the table begins with.
    pub partitions: u32,
    /// Write units a second of each: the ceiling.
    pub write_units: f64,
    /// Read units a second of each: the ceiling.
    pub read_units: f64,
    /// A provisioned table's write units a second for each partition, where that is below the ceiling.
    pub provisioned_write_units: Option<f64>,
    /// How long a partition is overdrawn before it splits; `None` for never.
    pub split_after: Option<Duration>,
}

impl Default for PartitionLimits {
    /// A new on-demand table: four partitions of 1,000 write and 3,000 read units a second, which split after five minutes of heat.
    fn default() -> Self {
        Self {
            partitions: 4,
            write_units: 1_000.0,
            read_units: 3_000.0,
            provisioned_write_units: None,
            split_after: Some(Duration::from_secs(300)),
        }
    }
}

/// Reads and writes are limited independently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Against the read units.
    Read,
    /// Against the write units.
    Write,
}

/// What one partition has given and turned away since it came to be.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PartitionHeat {
    /// Its number, which it keeps when others split.
    pub id: u64,
    /// Write units consumed.
    pub write_units: f64,
    /// Read units consumed.
    pub read_units: f64,
    /// Requests turned away.
    pub throttled: u64,
}

/// A stored key with its hash, which is computed once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    text: String,
    hash: u64,
}

impl StoredKey {
    /// Of a stored partition key.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { hash: hash(&text), text }
    }

    /// The key itself.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A token bucket. A request is let in while there is a token at all, and then pays what it really consumed, so that the bucket can
/// be overdrawn.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    rate: f64,
    holds: f64,
    tokens: f64,
    at: Duration,
}

impl Bucket {
    const fn new(rate: f64, holds: f64, now: Duration) -> Self {
        Self { rate, holds, tokens: holds, at: now }
    }

    fn refill(&mut self, now: Duration) -> f64 {
        let elapsed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.rate).min(self.holds);
        self.at = now;
        self.tokens
    }
}

/// The ceiling, and for a provisioned table the share with its burst.
#[derive(Debug, Clone, Copy)]
struct Capacity {
    ceiling: Bucket,
    share: Option<Bucket>,
}

impl Capacity {
    fn new(ceiling: f64, share: Option<f64>, now: Duration) -> Self {
        let share = share.map(|share| Bucket::new(share, share * BURST_SECONDS, now));
        Self { ceiling: Bucket::new(ceiling, ceiling, now), share }
    }

    fn tokens(&mut self, now: Duration) -> f64 {
        let ceiling = self.ceiling.refill(now);
        self.share.as_mut().map_or(ceiling, |share| share.refill(now).min(ceiling))
    }

    fn charge(&mut self, units: f64) {
        self.ceiling.tokens -= units;
        if let Some(share) = &mut self.share {
            share.tokens -= units;
        }
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
    throttles: f64,
    rises: u64,
    falls: u64,
    last_sort_key: Option<String>,
}

impl KeyHeat {
    fn note(&mut self, throttles: f64, sort_key: Option<&str>) {
        self.throttles += throttles;
        if let Some(sort_key) = sort_key {
            match self.last_sort_key.as_deref() {
                Some(last) if sort_key < last => self.falls += 1,
                Some(_) => self.rises += 1,
                None => {}
            }
            self.last_sort_key = Some(sort_key.to_owned());
        }
    }

    /// Writers are many and their clocks differ, so a few falls do not make a rising key fall.
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

/// The partitions of one table, by ranges of the stored key's hash.
#[derive(Debug)]
pub struct Partitions {
    limits: PartitionLimits,
    all: Vec<Partition>,
    /// Keys whose items lie on several partitions of their own, by ranges of their sort keys.
    collections: HashMap<String, Vec<Partition>>,
    made: u64,
}

impl Partitions {
    /// Equal ranges.
    #[must_use]
    pub fn new(limits: PartitionLimits, now: Duration) -> Self {
        let count = u64::from(limits.partitions.max(1));
        let width = u64::MAX / count;
        let all = (0..count).map(|i| fresh(&limits, i, i * width, now)).collect();
        Self { limits, all, collections: HashMap::new(), made: count }
    }

    /// How many there are by now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len() + self.collections.values().map(|parts| parts.len().saturating_sub(1)).sum::<usize>()
    }

    /// What each has given and turned away: in the order of hash ranges, and then the partitions that single keys have to themselves.
    #[must_use]
    pub fn heat_by_partition(&self) -> Vec<PartitionHeat> {
        let mut keys: Vec<_> = self.collections.iter().collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        let own = keys.into_iter().flat_map(|(_, parts)| parts);
        self.all.iter().chain(own).map(|partition| partition.served).collect()
    }

    /// Whether heat has spread the key's items over partitions of their own.
    #[must_use]
    pub fn is_split(&self, key: &StoredKey) -> bool {
        self.collections.contains_key(&key.text)
    }

    /// Which partition a key is on, by its place in the order of hash ranges.
    #[must_use]
    pub fn index_of(&self, key: &StoredKey) -> usize {
        self.all.partition_point(|partition| partition.start <= key.hash).saturating_sub(1)
    }

    /// Whether the partition of a key takes another request now. A refusal is remembered as heat.
    pub fn is_open(&mut self, key: &StoredKey, sort_key: Option<&str>, access: Access, now: Duration) -> bool {
        let open = self.capacity(key, sort_key, access).tokens(now) > 0.0;
        if !open {
            self.partition(key, sort_key).served.throttled += 1;
            if access == Access::Write {
                self.heat(key, sort_key, 1.0, now);
            }
        }
        open
    }

    /// Charges a request that was let in.
    pub fn charge(&mut self, key: &StoredKey, sort_key: Option<&str>, access: Access, units: f64) {
        self.capacity(key, sort_key, access).charge(units);
        let served = &mut self.partition(key, sort_key).served;
        match access {
            Access::Read => served.read_units += units,
            Access::Write => served.write_units += units,
        }
    }

    /// Lets in as many of these write units as the partition has; what is refused is remembered as heat.
    pub fn take(&mut self, key: &StoredKey, sort_key: Option<&str>, units: f64, now: Duration) -> f64 {
        let capacity = self.capacity(key, sort_key, Access::Write);
        let granted = units.min(capacity.tokens(now).max(0.0));
        capacity.charge(granted);
        if granted < units {
            self.heat(key, sort_key, units - granted, now);
        }
        granted
    }

    fn capacity(&mut self, key: &StoredKey, sort_key: Option<&str>, access: Access) -> &mut Capacity {
        let partition = self.partition(key, sort_key);
        match access {
            Access::Read => &mut partition.read,
            Access::Write => &mut partition.write,
        }
    }

    fn partition(&mut self, key: &StoredKey, sort_key: Option<&str>) -> &mut Partition {
        let index = self.index_of(key);
        match self.collections.get_mut(&key.text) {
            Some(parts) => {
                let at = sort_key
                    .map_or(0, |sort_key| parts.partition_point(|part| part.start <= hash(sort_key)).saturating_sub(1));
                &mut parts[at]
            }
            None => &mut self.all[index],
        }
    }

    fn heat(&mut self, key: &StoredKey, sort_key: Option<&str>, throttles: f64, now: Duration) {
        let Some(split_after) = self.limits.split_after else { return };
        let heat = &mut self.partition(key, sort_key).heat;
        if heat.since.is_none() || now.saturating_sub(heat.last) > CALM_AFTER {
            *heat = Heat { since: Some(now), ..Heat::default() };
        }
        heat.last = now;
        if heat.keys.contains_key(&key.text) || heat.keys.len() < COUNTED_KEYS {
            heat.keys.entry(key.text.clone()).or_default().note(throttles, sort_key);
        }
        if heat.since.is_some_and(|since| now.saturating_sub(since) >= split_after) {
            let heat = std::mem::take(heat);
            self.split(key, &heat, now);
        }
    }

    fn split(&mut self, key: &StoredKey, heat: &Heat, now: Duration) {
        let total: f64 = heat.keys.values().map(|key| key.throttles).sum();
        let dominant = heat.keys.iter().find(|(_, key)| key.throttles >= DOMINANT * total);
        if let Some((dominant, key_heat)) = dominant {
            if !key_heat.only_rises() {
                let ways = self.collections.get(dominant).map_or(1, Vec::len) as u64 * 2;
                let width = u64::MAX / ways;
                let first = self.made;
                self.made += ways;
                let parts = (0..ways).map(|i| fresh(&self.limits, first + i, i * width, now)).collect();
                self.collections.insert(dominant.clone(), parts);
            }
            return;
        }
        let mut hashes: Vec<u64> = heat.keys.keys().map(|key| hash(key)).collect();
        hashes.sort_unstable();
        let middle = hashes[hashes.len() / 2];
        let index = self.index_of(key);
        if self.all[index].start < middle {
            self.all[index].write = fresh(&self.limits, 0, 0, now).write;
            self.all.insert(index + 1, fresh(&self.limits, self.made, middle, now));
            self.made += 1;
        }
    }
}

fn fresh(limits: &PartitionLimits, id: u64, start: u64, now: Duration) -> Partition {
    Partition {
        start,
        write: Capacity::new(limits.write_units, limits.provisioned_write_units, now),
        read: Capacity::new(limits.read_units, None, now),
        heat: Heat::default(),
        served: PartitionHeat { id, ..PartitionHeat::default() },
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
        provisioned_write_units: None,
        split_after: Some(Duration::from_secs(60)),
    };

    fn offer(
        partitions: &mut Partitions,
        key: &StoredKey,
        per_second: u64,
        from: u64,
        seconds: u64,
        sort_key: impl Fn(u64) -> String,
    ) -> f64 {
        let mut granted = 0.0;
        for tick in 0..seconds * 10 {
            let now = Duration::from_millis(from * 1_000 + tick * 100);
            granted += partitions.take(key, Some(&sort_key(tick)), per_second as f64 / 10.0, now);
        }
        granted
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
        let mut accepted = 0;
        for ms in 0..10_000u64 {
            let now = Duration::from_millis(ms);
            if partitions.is_open(&k(), None, Access::Write, now) {
                partitions.charge(&k(), None, Access::Write, 1.0);
                accepted += 1;
            }
        }
        // Ten seconds at 100, and the second that the bucket held.
        assert!((1_090..=1_110).contains(&accepted), "{accepted}");
        assert!(partitions.is_open(&k(), None, Access::Read, Duration::ZERO), "reads are limited on their own");
    }

    #[test]
    fn an_overdrawn_partition_pays_back_first() {
        let mut partitions = Partitions::new(PartitionLimits { write_units: 10.0, ..ONE }, Duration::ZERO);
        partitions.charge(&k(), None, Access::Write, 30.0);
        assert!(!partitions.is_open(&k(), None, Access::Write, Duration::from_millis(1_900)));
        assert!(partitions.is_open(&k(), None, Access::Write, Duration::from_millis(2_100)));
    }

    #[test]
    fn burst_is_spent_below_the_ceiling_and_earned_back_by_the_share() {
        let limits = PartitionLimits { provisioned_write_units: Some(10.0), split_after: None, ..ONE };
        let mut partitions = Partitions::new(limits, Duration::ZERO);
        let first = offer(&mut partitions, &k(), 1_000, 0, 10, scattered);
        assert!((1_000.0..=1_150.0).contains(&first), "the ceiling holds during the burst: {first}");
        let rest = offer(&mut partitions, &k(), 1_000, 10, 60, scattered);
        let share_and_burst = 300.0 * 10.0 + 70.0 * 10.0;
        assert!((first + rest - share_and_burst).abs() < 60.0, "{}", first + rest);
    }

    #[test]
    fn heat_splits_a_scattered_key_after_a_while_but_never_a_rising_one() {
        let mut partitions = Partitions::new(ONE, Duration::ZERO);
        offer(&mut partitions, &k(), 1_000, 0, 59, scattered);
        assert_eq!(partitions.count(), 1);
        offer(&mut partitions, &k(), 1_000, 59, 3, scattered);
        assert_eq!(partitions.count(), 2);
        let after = offer(&mut partitions, &k(), 1_000, 62, 10, scattered);
        assert!(after > 1_800.0, "two partitions serve the key: {after}");

        let mut partitions = Partitions::new(ONE, Duration::ZERO);
        let rising = offer(&mut partitions, &k(), 1_000, 0, 300, |tick| format!("{tick:08}"));
        assert_eq!(partitions.count(), 1);
        assert!(rising < 30_300.0, "{rising}");
    }

    #[test]
    fn heat_splits_a_partition_between_its_hot_keys() {
        let mut partitions = Partitions::new(ONE, Duration::ZERO);
        for tick in 0..700u64 {
            for key in 0..10 {
                partitions.take(
                    &StoredKey::new(format!("k{key}")),
                    Some(&scattered(tick)),
                    50.0,
                    Duration::from_millis(tick * 100),
                );
            }
        }
        assert!(partitions.count() > 1);
    }

    #[test]
    fn the_heat_of_a_partition_is_what_it_gave_and_turned_away() {
        let mut partitions =
            Partitions::new(PartitionLimits { partitions: 4, write_units: 10.0, ..ONE }, Duration::ZERO);
        partitions.charge(&k(), None, Access::Write, 12.0);
        partitions.charge(&k(), None, Access::Read, 3.0);
        assert!(!partitions.is_open(&k(), None, Access::Write, Duration::ZERO));
        let heat = partitions.heat_by_partition();
        let hot = partitions.index_of(&k());
        assert_eq!(heat.iter().map(|heat| heat.id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let expected = PartitionHeat { id: hot as u64, write_units: 12.0, read_units: 3.0, throttled: 1 };
        assert_eq!(heat[hot], expected);
        assert!(heat.iter().enumerate().all(|(i, heat)| i == hot || heat.write_units == 0.0));
    }

    #[test]
    fn keys_spread_over_all_partitions() {
        let partitions = Partitions::new(PartitionLimits { partitions: 16, ..ONE }, Duration::ZERO);
        let mut seen = [0u32; 16];
        for i in 0..16_000 {
            seen[partitions.index_of(&StoredKey::new(format!("key.{i}")))] += 1;
        }
        assert!(seen.iter().all(|count| (800..1_200).contains(count)), "{seen:?}");
    }
}
