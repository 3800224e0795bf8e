//! One run: a table with its stream, and the instances of the table.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded_dynamodb::http_client;
use rand::SeedableRng;
use rand::rngs::StdRng;
use sharding::PartitionKey;
use sharding::internal::TableEngine;
use sharding_stream::StreamDecoder;
use system_tests::{Tables, config, partition_key};

use super::log::Log;
use super::recording::{Connection, Stream};

pub(super) fn key() -> PartitionKey {
    partition_key("2014-07-09")
}

pub(super) struct Run {
    pub(super) seed: u64,
    pub(super) stream: Arc<Stream>,
    pub(super) tables: Tables,
    pub(super) log: Arc<Mutex<Log>>,
}

impl Run {
    pub(super) async fn new(seed: u64) -> Self {
        let mut of_table = config();
        of_table.ttl_attribute = Some("expires".to_owned());
        of_table.let_expire = Duration::from_secs(300);
        of_table.drain.units_per_second = 20_000;
        let tables = Tables::unclaimed(of_table).await;
        let stream = Arc::new(Stream::new(tables.engine.clone(), tables.clock.clone()));
        Self { seed, stream, tables, log: Arc::default() }
    }

    /// An instance that loses this share of the responses to its writes.
    pub(super) fn instance(&self, number: u64, lost: f64) -> TableEngine {
        let seed = self.seed * 100 + number;
        let faults = Arc::new(Mutex::new((StdRng::seed_from_u64(seed), lost)));
        let inner = self.tables.connection();
        let connection = Connection { inner, stream: Arc::clone(&self.stream), faults };
        self.tables.instance_over(http_client(connection), seed)
    }

    pub(super) fn decoder(&self) -> StreamDecoder {
        StreamDecoder::new(self.tables.config.clone())
    }
}
