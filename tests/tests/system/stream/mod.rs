//! The table's stream, decoded while a key grows, shrinks and is drained under the writes of
//! several clients. The consumer gets each acknowledged change once, and none of the product's own
//! writes.
//!
//! The engine's own stream records every write. Its records have the machine's time, so the
//! recorder gives each one the virtual time of its write. The consumer reads each stored key's
//! records in order and independently, late and repeatedly, as Lambda reads the shards of a stream.

mod consumer;
mod log;
mod recording;
mod traffic;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded_dynamodb::http_client;
use rand::SeedableRng;
use rand::rngs::StdRng;
use sharding::internal::TableEngine;
use sharding_stream::{ChangeKind, Decoded, StreamDecoder};
use system_tests::{Tables, config, large_or};
use tokio::time::{Instant, sleep};

use consumer::{Consumer, is_never_wrong_behind, without_widths};
use log::{Log, compare};
use recording::{Connection, Stream, lock};
use traffic::{CLIENTS, TRAFFIC, rescale, write};

struct Run {
    seed: u64,
    stream: Arc<Stream>,
    tables: Tables,
    log: Arc<Mutex<Log>>,
}

impl Run {
    async fn new(seed: u64) -> Self {
        let mut of_table = config();
        of_table.ttl_attribute = Some("expires".to_owned());
        of_table.let_expire = Duration::from_secs(300);
        of_table.drain.units_per_second = 20_000;
        let tables = Tables::unclaimed(of_table).await;
        let stream = Arc::new(Stream::new(tables.engine.clone(), tables.clock.clone()));
        Self { seed, stream, tables, log: Arc::default() }
    }

    /// An instance that loses this share of the responses to its writes.
    fn instance(&self, number: u64, lost: f64) -> TableEngine {
        let seed = self.seed * 100 + number;
        let faults = Arc::new(Mutex::new((StdRng::seed_from_u64(seed), lost)));
        let inner = self.tables.connection();
        let connection = Connection { inner, stream: Arc::clone(&self.stream), faults };
        self.tables.instance_over(http_client(connection), seed)
    }

    fn decoder(&self) -> StreamDecoder {
        StreamDecoder::new(self.tables.config.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn each_change_of_a_user_comes_once_and_no_move_of_a_drain() {
    let (mut drains, mut moves, mut repeated, mut ambiguous) = (0u64, 0, 0, 0);
    let (mut found_without_widths, mut tombstones) = (0u64, 0);
    // Each run has traffic of its own.
    let seeds = large_or(20, 8);
    for seed in 0..seeds {
        let run = Run::new(seed).await;
        let ended = Arc::new(AtomicBool::new(false));
        let consumer = tokio::spawn(Consumer::new(&run).consume(Arc::clone(&ended)));
        let stream = Arc::clone(&run.stream);
        let sweeper = tokio::spawn(async move {
            loop {
                sleep(Duration::from_secs(240)).await;
                stream.expire();
            }
        });
        let until = Instant::now() + TRAFFIC;
        let scaler =
            tokio::spawn(rescale([run.instance(50, 0.05), run.instance(51, 0.0)], until, seed));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let table = run.instance(client, if client == 0 { 0.1 } else { 0.0 });
                let (log, clock) = (Arc::clone(&run.log), run.stream.clock.clone());
                tokio::spawn(write(table, log, clock, client, seed))
            })
            .collect();
        for client in clients {
            client.await.expect("a client");
        }
        drains += u64::from(scaler.await.expect("the scaler"));
        // All items with an expiry have expired.
        sleep(Duration::from_secs(2_400)).await;
        ended.store(true, Ordering::Release);
        let consumer = consumer.await.expect("the consumer");
        sweeper.abort();

        let log = lock(&run.log).clone();
        let wrong = compare(&log, &consumer.taken);
        assert_eq!(wrong.first(), None, "seed {seed}: the first of {}", wrong.len());
        for decoded in consumer.decided.values() {
            moves += u64::from(matches!(decoded, Decoded::Internal));
            if let Decoded::Change(change) = decoded {
                tombstones += u64::from(change.kind == ChangeKind::Delete && change.old.is_none());
            }
        }
        (repeated, ambiguous) = (repeated + consumer.repeated, ambiguous + consumer.ambiguous);

        is_never_wrong_behind(&run, &consumer).await;
        found_without_widths += u64::from(!compare(&log, &without_widths(&run)).is_empty());
    }
    // The events that the test must contain, and the errors that it must detect.
    let met = format!(
        "{drains} drains, {moves} moves, {tombstones} tombstones, {repeated} repeated, \
         {ambiguous} ambiguous, {found_without_widths} weakened seeds found"
    );
    assert!(drains > seeds && moves > 10 * seeds, "{met}");
    assert!(2 * tombstones > 5 * seeds && repeated > 25 * seeds, "{met}");
    assert!(found_without_widths > seeds * 3 / 4, "{met}");
    println!("{met}");
}
