//! A key of a table over the embedded engine, its items and its drain, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use sharding::internal::{Deadline, TableEngine};
use sharding::maintenance::{Drained, ScaleOutcome, ShardMetadata};
use sharding::{Item, PartitionKey, Placement, ShardNumber, TableConfig};
use system_tests::{
    Call, Fate, Tables, Wire, config, count, numbers, partition_key, read_items, scan_stored, soon,
    sort_key, valued_item,
};
use tokio::time::sleep;

pub(crate) const KEY: &str = "2014-07-09";

pub(crate) fn key() -> PartitionKey {
    partition_key(KEY)
}

pub(crate) fn item(text: &str, value: u64) -> Item {
    valued_item(key(), text, value)
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
        let grown = self.table.set_shards(&key(), count(to), soon()).await.expect("a response");
        assert!(matches!(grown, ScaleOutcome::Scaled { .. }), "{grown:?}");
        sleep(Duration::from_secs(5)).await;
    }

    pub(crate) async fn store(&self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.table.put(&item(&text, 1), soon()).await.expect("stored");
        }
    }

    /// Reads every item, with its value, by pages.
    pub(crate) async fn all(&self) -> BTreeMap<String, u64> {
        numbers(&read_items(&self.table, &key(), 30).await)
    }

    pub(crate) async fn get(&self, text: &str) -> Option<u64> {
        let found = self.table.get(&key(), &sort_key(text), true, soon()).await;
        numbers(&[found.expect("a response")?]).remove(text)
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

    pub(crate) async fn metadata(&self) -> ShardMetadata {
        self.table.shards(&key(), soon()).await.expect("a response").expect("metadata")
    }

    pub(crate) async fn stored(&self) -> usize {
        scan_stored(&self.tables.client).await.len()
    }

    /// Asserts that every item is stored once, at its home, and nothing is stored elsewhere.
    pub(crate) async fn assert_all_are_at_home(&self, items: usize) {
        let width = self.metadata().await.number_of_shards;
        for (shard, texts) in self.by_shard().await {
            for text in texts {
                let home = Placement::Calculated.home(&key(), &sort_key(&text), width);
                assert_eq!(home.map(ShardNumber::get), Some(shard), "{text} is at home");
            }
        }
        assert_eq!(self.stored().await, items, "no item is stored twice");
    }

    /// Waits until requests of the previous era have expired, as a drain must before it begins.
    pub(crate) async fn wait_out_the_change(&self) {
        let config = self.table.config();
        let leases = config.lease.max(config.append_lease);
        sleep(config.drain.wait_for_requests + leases + Duration::from_secs(2)).await;
    }

    /// Waits until the tombstones of a settled key may be removed, and removes them.
    pub(crate) async fn purge(&self) {
        self.wait_out_the_change().await;
        self.wait_out_the_change().await;
        assert!(self.metadata().await.wants_purging());
        self.drain().await;
        assert!(!self.metadata().await.unpurged);
    }

    /// Calls the drain repeatedly until it is done, as a schedule does.
    pub(crate) async fn drain(&self) -> Vec<Drained> {
        let mut reports = Vec::new();
        for _ in 0..300 {
            let deadline = Deadline::now() + Duration::from_secs(4);
            let drained = self.table.drain(&key(), deadline).await.expect("the tables respond");
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
