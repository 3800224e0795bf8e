//! The two tables of a configuration in an embedded engine, and instances that use them.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::{clients_over, in_process_clients};
use sharding::internal::{Environment, TableEngine};
use sharding::{ShardedTable, TableConfig, create_tables};

use crate::metadata::{self, TABLE_ITEM, table_item};
use crate::{Call, Fate, TestClock, Wire, soon};

/// Limits of one partition, which no test reaches.
pub const UNLIMITED: PartitionLimits = PartitionLimits {
    partitions: 1,
    write_units: 1e9,
    read_units: 1e9,
    ..PartitionLimits::NEW_ON_DEMAND_TABLE
};

/// The tables, and what all their instances share.
#[derive(Debug, Clone)]
pub struct Tables {
    /// The engine of both tables.
    pub engine: Engine,
    /// A client without any instance and without a service time.
    pub client: Client,
    /// The configuration of the instances.
    pub config: TableConfig,
    /// The clock of the instances.
    pub clock: TestClock,
    /// The service time of the instances' requests; zero in new tables.
    pub service_time: Duration,
}

impl Tables {
    /// Creates tables that no process has claimed.
    pub async fn unclaimed(config: TableConfig) -> Self {
        let engine = Engine::in_memory().expect("an engine");
        let client = in_process_clients(&InProcess::new(engine.clone())).dynamodb;
        create_tables(&client, &config).await.expect("tables");
        let (clock, service_time) = (TestClock::default(), Duration::ZERO);
        Self { engine, client, config, clock, service_time }
    }

    /// Creates tables with their directory, as the first process does. So a test's counts do not
    /// include this work.
    pub async fn claimed(config: TableConfig) -> Self {
        let tables = Self::unclaimed(config).await;
        metadata::store(&tables.client, TABLE_ITEM, table_item(&tables.config)).await;
        let table = TableEngine::new(&tables.client, tables.config.clone());
        Box::pin(table.until(soon()).claim()).await.expect("claimed");
        tables
    }

    /// Removes the limits of both tables.
    pub fn set_unlimited(&self) {
        let names = [&self.config.table_name, &self.config.metadata_table_name];
        self.engine.set_limits(names.map(|name| (name.clone(), UNLIMITED)));
    }

    /// The write and read units of the main table so far.
    pub fn units(&self) -> [f64; 2] {
        let heat = self.engine.heat(&self.config.table_name);
        [
            heat.iter().map(|partition| partition.write_units).sum(),
            heat.iter().map(|partition| partition.read_units).sum(),
        ]
    }

    /// A new instance without any state.
    pub fn instance(&self, seed: u64) -> TableEngine {
        self.instance_over(self.connection().into_shared(), seed)
    }

    /// The table as a program has it, with the clocks of the machine.
    pub fn sharded_table(&self) -> ShardedTable {
        let client = in_process_clients(&self.connection()).dynamodb;
        ShardedTable::new(&client, self.config.clone())
    }

    /// As [`instance`](Self::instance), on a connection that the test controls.
    pub fn wired(
        &self,
        seed: u64,
        decide: impl Fn(&Call) -> Fate + Send + Sync + 'static,
    ) -> (TableEngine, Wire) {
        let wire = Wire::new(self.connection(), decide);
        (self.instance_over(wire.clone().into_shared(), seed), wire)
    }

    /// As [`instance`](Self::instance), on this connection.
    pub fn instance_over(&self, connection: SharedHttpClient, seed: u64) -> TableEngine {
        let environment = Environment::seeded(self.clock.clone(), seed);
        let client = clients_over(connection).dynamodb;
        TableEngine::with_environment(&client, self.config.clone(), environment)
    }

    /// A new connection with the service time.
    pub fn connection(&self) -> InProcess {
        InProcess::new(self.engine.clone()).with_service_time(self.service_time)
    }
}
