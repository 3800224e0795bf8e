//! One run: a table with its stream, and the instances of the table.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded_dynamodb::{InProcess, http_client};
use local::clients_over;
use rand::SeedableRng;
use rand::rngs::StdRng;
use sharding::internal::{Environment, TableEngine};
use sharding::{PartitionKey, TableConfig};
use sharding_stream::StreamDecoder;
use system_tests::{TestClock, config, engine_with_tables};

use super::log::Log;
use super::recording::{Connection, Stream};

pub(super) fn key() -> PartitionKey {
    PartitionKey::new("2014-07-09").expect("a key")
}

pub(super) struct Run {
    pub(super) seed: u64,
    pub(super) stream: Arc<Stream>,
    pub(super) config: TableConfig,
    pub(super) log: Arc<Mutex<Log>>,
}

impl Run {
    pub(super) async fn new(seed: u64) -> Self {
        let engine = engine_with_tables().await;
        let mut of_table = config();
        of_table.ttl_attribute = Some("expires".to_owned());
        of_table.let_expire = Duration::from_secs(300);
        of_table.drain.units_per_second = 20_000;
        let stream = Arc::new(Stream::new(engine, TestClock::default()));
        Self { seed, stream, config: of_table, log: Arc::default() }
    }

    /// An instance that loses this share of the responses to its writes.
    pub(super) fn instance(&self, number: u64, lost: f64) -> TableEngine {
        let seed = self.seed * 100 + number;
        let faults = Arc::new(Mutex::new((StdRng::seed_from_u64(seed), lost)));
        let inner = InProcess::new(self.stream.engine.clone());
        let connection = Connection { inner, stream: Arc::clone(&self.stream), faults };
        let client = clients_over(http_client(connection)).dynamodb;
        TableEngine::with_environment(
            &client,
            self.config.clone(),
            Environment::seeded(self.stream.clock.clone(), seed),
        )
    }

    pub(super) fn decoder(&self) -> StreamDecoder {
        StreamDecoder::new(self.config.clone())
    }
}
