//! The table of a run: a model of the main table's partitions, and a metadata table in the embedded
//! engine.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use embedded_dynamodb::{
    Access, Engine, InProcess, PartitionLimits, Partitions, StoredKey, http_client, sdk_config,
};
use sharding::internal::{
    Clock, Deadline, Environment, PartitionModel, TableEngine, protocol::view::Moment,
};
use sharding::{
    PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, ScalingActors, TableConfig, WarmThroughput,
    create_tables,
};
use tokio::time::{Instant, sleep};

use crate::scenario::{Contender, Scenario};

/// The time of one request to either table.
const SERVICE_TIME: Duration = Duration::from_millis(5);
/// The wall clock at the start of a run.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// The paused clock of the runtime, as both clocks of an instance.
#[derive(Debug, Clone, Copy)]
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Moment {
        let elapsed = self.0.elapsed();
        Moment { monotonic: elapsed, wall: EPOCH + elapsed }
    }
}

/// Partitions that take or throttle writes, and store nothing.
#[derive(Debug)]
pub(crate) struct Model {
    partitions: Mutex<Partitions>,
    origin: Instant,
    accepted: AtomicU64,
    throttled: AtomicU64,
}

impl Model {
    /// Attempts so far: accepted and throttled.
    pub(crate) fn attempts(&self) -> (u64, u64) {
        (self.accepted.load(Ordering::Relaxed), self.throttled.load(Ordering::Relaxed))
    }
}

/// A model that a connection refers to.
#[derive(Debug)]
struct Shared(Arc<Model>);

impl PartitionModel for Shared {
    fn write(&self, shard_key: String, units: u64) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let model = Arc::clone(&self.0);
        Box::pin(async move {
            sleep(SERVICE_TIME).await;
            let key = StoredKey::new(shard_key);
            let now = model.origin.elapsed();
            let mut partitions = model.partitions.lock().unwrap_or_else(PoisonError::into_inner);
            let is_open = partitions.is_open(&key, Access::Write, now);
            if is_open {
                partitions.charge(&key, Access::Write, units as f64);
            }
            let counter = if is_open { &model.accepted } else { &model.throttled };
            counter.fetch_add(1, Ordering::Relaxed);
            is_open
        })
    }
}

/// The begin of the key of a page of the directory.
const PAGE: &[u8] = b"_sharding:page:";

/// A metadata table that answers writes of pages late.
#[derive(Debug)]
struct LateAnswers {
    inner: InProcess,
    late: Duration,
}

impl HttpConnector for LateAnswers {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        // The operation is in a header (JSON), or ends the path (CBOR).
        let named = [request.headers().get("x-amz-target").unwrap_or_default(), request.uri()];
        let is_write = named.iter().any(|name| name.ends_with("UpdateItem"));
        let body = request.body().bytes().unwrap_or_default();
        let is_of_page = body.windows(PAGE.len()).any(|part| part == PAGE);
        let late = if is_write && is_of_page { self.late } else { Duration::ZERO };
        let answer = self.inner.call(request);
        HttpConnectorFuture::new(async move {
            let answer = answer.await;
            sleep(late).await;
            answer
        })
    }
}

/// The tables of a run, and what each instance needs.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) model: Arc<Model>,
    client: Client,
    config: TableConfig,
    origin: Instant,
    seed: u64,
}

impl Table {
    /// Creates the tables of a scenario, and publishes the table's partitions if they are known.
    pub(crate) async fn new(scenario: &Scenario) -> Self {
        let scale = f64::from(scenario.scale);
        let limits = PartitionLimits {
            partitions: scenario.partitions,
            write_units: PARTITION_WRITE_UNITS as f64 / scale,
            provisioned_write_units: scenario.provisioned.map(|share| share / scale),
            ..PartitionLimits::default()
        };
        let engine = Engine::in_memory().expect("SQLite opens a database in memory");
        let client = |late| {
            let inner = InProcess::new(engine.clone()).with_service_time(SERVICE_TIME);
            Client::new(&sdk_config(http_client(LateAnswers { inner, late })))
        };
        let prompt = client(Duration::ZERO);
        let mut config = TableConfig::new("items", "items-metadata");
        if scenario.contender != Contender::Ours {
            config.scaling = ScalingActors::Alarm;
        }
        config.throttled_for = scenario.throttled_for;
        config.policy.partition_write_units = PARTITION_WRITE_UNITS as f64 / scale;
        create_tables(&prompt, &config).await.expect("the engine creates the tables");
        let origin = Instant::now();
        let model = Model {
            // A table of the hash ranges of another seed has its shards on other partitions.
            partitions: Mutex::new(Partitions::new(limits, Duration::ZERO)),
            origin,
            accepted: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
        };
        let mut table =
            Self { model: Arc::new(model), client: prompt, config, origin, seed: scenario.seed };
        let deadline = Deadline::now() + Duration::from_secs(60);
        let first = table.instance(u32::MAX);
        Box::pin(first.until(deadline).claim()).await.expect("the table is claimed");
        if scenario.is_known {
            let count = u64::from(scenario.partitions);
            let warm = WarmThroughput {
                write_units: count * PARTITION_WRITE_UNITS,
                read_units: count * PARTITION_READ_UNITS,
            };
            first
                .until(deadline)
                .publish_warm_throughput(warm)
                .await
                .expect("the pages are written");
        }
        table.client = client(scenario.late_pages);
        table
    }

    /// A process of its own that uses the table.
    pub(crate) fn instance(&self, number: u32) -> TableEngine {
        let seed = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(number);
        let environment = Environment::seeded(PausedClock(self.origin), seed);
        let model = Arc::new(Shared(Arc::clone(&self.model)));
        TableEngine::over_model(&self.client, self.config.clone(), environment, model)
    }
}
