//! Checks that reads return every acknowledged item, once and in order.

use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use sharding::{Attributes, ShardedTable};

use super::KEY;
use crate::traffic::{Generated, epoch_micros};

/// The time span that each check reads, in microseconds.
const SPAN: u64 = 2_000_000;
const PAUSE: Duration = Duration::from_millis(200);

/// The results of the checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// The number of look-ups of acknowledged items. Each item is looked up several times.
    pub(super) lookups: u64,
    /// The number of look-ups that did not find the item.
    pub(super) missing: u64,
    /// The number of items that were returned twice or out of order.
    pub(super) misplaced: u64,
    /// The number of aborted checks, in which a page had no response in time.
    pub(super) aborted: u64,
}

impl AddAssign for Checked {
    fn add_assign(&mut self, other: Self) {
        self.lookups += other.lookups;
        self.missing += other.missing;
        self.misplaced += other.misplaced;
        self.aborted += other.aborted;
    }
}

pub(super) async fn check_on(table: ShardedTable, generated: Generated, sum: Arc<Mutex<Checked>>) {
    loop {
        let acknowledged = generated.acknowledged_from(epoch_micros().saturating_sub(SPAN));
        let checked = check(&table, &acknowledged).await;
        *sum.lock().unwrap_or_else(PoisonError::into_inner) += checked;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads the key's items in the range of these sort keys, which were all acknowledged before.
async fn check(table: &ShardedTable, acknowledged: &[u64]) -> Checked {
    let (Some(first), Some(last)) = (acknowledged.first(), acknowledged.last()) else {
        return Checked::default();
    };
    let query = table.query::<Attributes>(KEY).consistent(true).limit(1_000);
    let mut entries = query.from(first.to_string()).to(last.to_string()).stream();
    let mut found: Vec<u64> = Vec::new();
    while let Some(entry) = entries.next().await {
        let Ok(entry) = entry else {
            // The remaining items were not read, but the order of those that were read is checked.
            return Checked { aborted: 1, ..compare(&[], &found) };
        };
        found.extend(entry.sort_key.to_string().parse::<u64>().ok());
    }
    compare(acknowledged, &found)
}

/// Compares the returned sort keys, in their order, with the acknowledged ones.
fn compare(acknowledged: &[u64], found: &[u64]) -> Checked {
    let misplaced = found.windows(2).filter(|pair| pair.first() >= pair.last()).count() as u64;
    let all: BTreeSet<&u64> = found.iter().collect();
    let missing = acknowledged.iter().filter(|key| !all.contains(key)).count() as u64;
    Checked { lookups: acknowledged.len() as u64, missing, misplaced, ..Checked::default() }
}

#[cfg(test)]
mod tests {
    use embedded_dynamodb::InProcess;
    use sharding::TableConfig;

    use super::*;
    use crate::{Edition, ServeOptions, in_process_clients};

    #[test]
    fn items_are_found_each_once_and_in_order() {
        let found = |acknowledged: &[u64], found: &[u64]| {
            let checked = compare(acknowledged, found);
            (checked.lookups, checked.missing, checked.misplaced)
        };
        assert_eq!(found(&[1, 2, 3], &[1, 2, 3]), (3, 0, 0));
        assert_eq!(found(&[1, 3], &[1, 2, 3, 4]), (2, 0, 0), "other items may exist");
        assert_eq!(found(&[1, 2, 3], &[1, 3]), (3, 1, 0));
        assert_eq!(found(&[1, 2, 3], &[1, 3, 2]), (3, 0, 1), "out of order");
        assert_eq!(found(&[1, 2, 3], &[1, 2, 2, 3]), (3, 0, 1), "twice in a row");
        assert_eq!(found(&[1, 2, 3], &[1, 2, 3, 1]), (3, 0, 1), "again on a later page");
        assert_eq!(found(&[1, 2], &[]), (2, 2, 0));
    }

    #[tokio::test]
    async fn the_check_reports_missing_items_and_aborted_checks() {
        let serve =
            ServeOptions { port: 0, dynamodb_port: 0, endpoint_port: 0, ..ServeOptions::default() };
        let edition = Edition::start(&serve, TableConfig::new("items", "items-metadata"))
            .await
            .expect("it starts");
        let table = edition.table();
        let acknowledged: Vec<u64> = (1_000..1_010).collect();
        for sort_key in &acknowledged {
            table.put(KEY, sort_key.to_string(), Attributes::new()).await.expect("it is stored");
        }
        let whole = Checked { lookups: 10, ..Checked::default() };
        assert_eq!(check(table, &[]).await, Checked::default());
        assert_eq!(check(table, &acknowledged).await, whole);

        table.delete(KEY, "1004").await.expect("it is deleted");
        assert_eq!(check(table, &acknowledged).await, Checked { missing: 1, ..whole });

        let engine = edition.engine().expect("the engine is embedded").clone();
        let client = in_process_clients(&InProcess::new(engine)).dynamodb;
        client.delete_table().table_name("items").send().await.expect("the table is deleted");
        let aborted = Checked { aborted: 1, ..Checked::default() };
        assert_eq!(check(table, &acknowledged).await, aborted);
    }
}
