//! A key of a table over the embedded engine, its items and its drain, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use sharding::internal::{Deadline, TableEngine};
use sharding::maintenance::{Drained, ScaleOutcome, ShardMetadata};
use sharding::{Item, PartitionKey, TableConfig};
use system_tests::{
    Call, Fate, OneItem, Tables, Wire, config, count, numbers, partition_key, read_items,
    scan_stored, soon, sort_key, valued_item,
};
use tokio::time::sleep;

pub(crate) const KEY: &str = "hot";

pub(crate) fn key() -> PartitionKey {
    partition_key(KEY)
}

pub(crate) fn item(text: &str, value: u64) -> Item {
    valued_item(key(), text, value)
}

/// The value of an item, by a point read.
pub(crate) async fn get(table: &TableEngine, text: &str) -> Option<u64> {
    let found = table.get(&key(), &sort_key(text), true, soon()).await;
    numbers(&[found.expect("a response")?]).remove(text)
}

pub(crate) async fn shards(table: &TableEngine) -> ShardMetadata {
    table.until(soon()).metadata(&key()).await.expect("a response").expect("metadata")
}

/// The stored items of the key, by sort key.
pub(crate) type Expected = BTreeMap<String, u64>;

/// Asserts that an instance finds exactly these items, by pages and one by one.
pub(crate) async fn assert_finds(table: &TableEngine, expected: &Expected, about: &str) {
    assert_eq!(&numbers(&read_items(table, &key(), 30).await), expected, "{about}");
    for (text, value) in expected {
        assert_eq!(get(table, text).await, Some(*value), "{about}: {text}");
    }
}

pub(crate) struct Fixture {
    pub(crate) tables: Tables,
    pub(crate) table: TableEngine,
    pub(crate) wire: Wire,
}

pub(crate) async fn fixture(change: impl FnOnce(&mut TableConfig)) -> Fixture {
    fixture_over(|_| Fate::Pass, change).await
}

pub(crate) async fn fixture_over(
    decide: impl Fn(&Call) -> Fate + Send + Sync + 'static,
    change: impl FnOnce(&mut TableConfig),
) -> Fixture {
    let mut of_table = config();
    of_table.drain.units_per_second = 20_000;
    change(&mut of_table);
    let tables = Tables::unclaimed(of_table).await;
    let (table, wire) = tables.wired(7, decide);
    Fixture { tables, table, wire }
}

impl Fixture {
    pub(crate) async fn grow(&self, to: u32) {
        let grown = self.table.until(soon()).grow(&key(), count(to)).await.expect("a response");
        assert!(matches!(grown, ScaleOutcome::Scaled { .. }), "{grown:?}");
        sleep(Duration::from_secs(5)).await;
    }

    pub(crate) async fn store(&self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.table.put(&item(&text, 1), soon()).await.expect("stored");
        }
    }

    /// Reads every item, with its value, by pages.
    pub(crate) async fn all(&self) -> Expected {
        numbers(&read_items(&self.table, &key(), 30).await)
    }

    pub(crate) async fn by_shard(&self) -> BTreeMap<u32, Vec<String>> {
        let mut shards: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for stored in scan_stored(&self.tables.client).await {
            let text = |name: &str| stored[name].as_s().expect("a text").clone();
            let placed = self.table.config().parse_shard_key(&text("partition_key"));
            let (key, shard) = placed.expect("a shard");
            assert_eq!(key.as_str(), KEY);
            shards.entry(shard.get()).or_default().push(text("sort_key"));
        }
        shards
    }

    /// A new instance without any state, on the same clock.
    pub(crate) fn another_instance(&self) -> TableEngine {
        self.tables.instance_over(self.wire.clone().into_shared(), 8)
    }

    pub(crate) async fn stored(&self) -> usize {
        scan_stored(&self.tables.client).await.len()
    }

    /// Waits until requests of the previous era have expired, as a drain must before it begins.
    pub(crate) async fn wait_out_the_change(&self) {
        let config = self.table.config();
        let leases = config.lease.max(config.append_lease);
        sleep(config.drain.wait_for_requests + leases + Duration::from_secs(2)).await;
    }

    /// Calls the drain repeatedly until it is done, as a schedule does.
    pub(crate) async fn drain(&self) -> Vec<Drained> {
        let mut reports = Vec::new();
        for _ in 0..300 {
            let deadline = Deadline::now() + Duration::from_secs(4);
            let drained =
                self.table.until(deadline).drain(&key(), &[]).await.expect("the tables respond");
            assert_ne!(drained, Drained::Nothing, "no other instance drains: {reports:?}");
            let is_done = matches!(drained, Drained::Done { .. });
            reports.push(drained);
            if is_done {
                return reports;
            }
            sleep(Duration::from_secs(60)).await;
        }
        panic!("the drain does not end: {reports:?}");
    }
}
