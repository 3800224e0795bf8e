//! The traffic of a run: clients that write, and changes of the width with their drains.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{Clock, Deadline, TableEngine};
use sharding::maintenance::Drained;
use sharding::{Attributes, Item, Value, WriteErrorKind};
use system_tests::{OneItem, TestClock, count, soon, sort_key};
use tokio::time::{Instant, sleep};

use super::log::{Asked, Heard, Log};
use super::recording::lock;
use crate::one_key::key;

/// The number of clients. Each has its own items, and all of them write some shared items.
pub(super) const CLIENTS: u64 = 3;
const ITEMS_OF_A_CLIENT: u64 = 8;
const SHARED_ITEMS: u64 = 3;
pub(super) const TRAFFIC: Duration = Duration::from_secs(80 * 60);

/// Writes to the items of one client, one after another.
pub(super) async fn write(
    table: TableEngine,
    log: Arc<Mutex<Log>>,
    clock: TestClock,
    client: u64,
    seed: u64,
) {
    let mut rng = StdRng::seed_from_u64(seed * 1_000 + client);
    let until = Instant::now() + TRAFFIC;
    let mut number = client * 1_000_000;
    while Instant::now() < until {
        number += 1;
        let own = rng.random_range(0..ITEMS_OF_A_CLIENT + SHARED_ITEMS);
        let is_fleeting = rng.random_bool(0.1);
        let text = match own.checked_sub(ITEMS_OF_A_CLIENT) {
            _ if is_fleeting => format!("fleeting-{number}"),
            Some(shared) => format!("shared-{shared}"),
            None => format!("client-{client}-{own}"),
        };
        let asked =
            if !is_fleeting && rng.random_bool(0.4) { Asked::Delete } else { Asked::Put(number) };
        let soon = || Deadline::now() + Duration::from_secs(10);
        let ended = match asked {
            Asked::Delete => table.delete(&key(), &sort_key(&text), soon()).await,
            Asked::Put(number) => {
                let mut attributes =
                    Attributes::from([("value".to_owned(), Value::N(number.to_string()))]);
                if is_fleeting {
                    let ends = clock.now().wall.as_secs() + rng.random_range(60..1_800);
                    attributes.insert("expires".to_owned(), Value::N(ends.to_string()));
                }
                let item = Item { partition_key: key(), sort_key: sort_key(&text), attributes };
                if rng.random_bool(0.2) {
                    table.create(&item, None, soon()).await
                } else {
                    table.put(&item, soon()).await
                }
            }
        };
        let heard = match ended.map_err(|error| error.kind) {
            Ok(_) => Some(Heard::Acknowledged),
            Err(WriteErrorKind::Unknown(_)) => Some(Heard::Unknown),
            // The request changed nothing.
            Err(
                WriteErrorKind::Exists
                | WriteErrorKind::Contended
                | WriteErrorKind::Capacity { .. }
                | WriteErrorKind::Deadline(_),
            ) => None,
            Err(error) => panic!("{text}: {error}"),
        };
        if let Some(heard) = heard {
            lock(&log).entry(text).or_default().push((asked, heard));
        }
        sleep(Duration::from_secs(rng.random_range(5..60))).await;
    }
}

/// Grows, settles and shrinks the key. The next change cuts some of the drains off.
pub(super) async fn rescale(tables: [TableEngine; 2], until: Instant, seed: u64) -> u32 {
    let mut rng = StdRng::seed_from_u64(seed ^ 0xD7A1);
    let mut drains = 0;
    while Instant::now() < until {
        let table = &tables[rng.random_range(0..2usize)];
        let known = table.until(soon()).metadata(&key()).await.expect("metadata");
        let now = known.map_or(1, |known| known.number_of_shards.get());
        // A rejected change is skipped, because another change is in progress.
        match rng.random_range(0..4) {
            0 if now > 1 => {
                drop(table.until(soon()).shrink(&key(), count(rng.random_range(1..now))).await)
            }
            1 | 2 => drop(table.until(soon()).settle(&key()).await),
            _ => {
                let to = count((now + rng.random_range(1..5)).min(12));
                drop(table.until(soon()).grow(&key(), to).await);
            }
        }
        // Most drains end. The next change cuts the others off.
        let rest = if rng.random_bool(0.7) { 45 * 60 } else { rng.random_range(60..1_500) };
        let next = Instant::now() + Duration::from_secs(rest);
        while Instant::now() < next {
            let drained = tables[rng.random_range(0..2usize)]
                .until(Deadline::now() + Duration::from_secs(4))
                .drain(&key(), &[])
                .await;
            match drained.expect("the tables respond") {
                Drained::Done { .. } => {
                    drains += 1;
                    break;
                }
                Drained::Nothing => break,
                Drained::Waiting { .. } | Drained::Working { .. } | _ => {
                    sleep(Duration::from_secs(30)).await
                }
            }
        }
        sleep(Duration::from_secs(rng.random_range(30..400))).await;
    }
    drains
}
