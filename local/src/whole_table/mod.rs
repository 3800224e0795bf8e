//! Work on every item of a table: `migrate` and `rebuild`.
//!
//! They use the tables directly, with the functions' own configuration, so they work on AWS as on the local edition.

mod migrate;
mod rebuild;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sharding::{Deadline, ScanPosition, ShardedTable, Survey, SurveyPage, TableConfig, TableError};
use tokio::time::{Duration, Instant, sleep_until};

use crate::clients::remote_clients;

pub use migrate::{MigrateOptions, Migration, migrate};
pub use rebuild::{Rebuild, RebuildOptions, rebuild};

/// The longest that one request may take, repetitions included.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the tables are, and how fast they may be read.
#[derive(Debug, Clone, Args)]
pub struct TableOptions {
    /// DynamoDB server; without it AWS, by the usual variables. One on this machine needs no credentials
    #[arg(long, value_name = "URL")]
    pub endpoint_url: Option<String>,
    /// Read units a second that looking at the table may take; 0 for as many as there are
    #[arg(long, default_value_t = 1_000, value_name = "UNITS")]
    pub read_units: u32,
    /// Keys that are worked on at once
    #[arg(long, default_value_t = 8, value_name = "KEYS", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
}

/// The table, and how many items DynamoDB says that it has.
async fn open(options: &TableOptions, config: TableConfig) -> Result<(ShardedTable, u64), TableError> {
    let client = match &options.endpoint_url {
        Some(url) => remote_clients(url).await.dynamodb,
        None => aws_sdk_dynamodb::Client::new(&api::aws_configuration().await),
    };
    let described = client.describe_table().table_name(&config.table_name).send().await;
    let described = described.map_err(|error| {
        let why = format!("{}: {}", config.table_name, aws_sdk_dynamodb::error::DisplayErrorContext(&error));
        TableError::Unusable(why.into())
    })?;
    let items = described.table().and_then(|table| table.item_count()).unwrap_or_default();
    Ok((ShardedTable::new(&client, config), u64::try_from(items).unwrap_or_default()))
}

/// A look at a table from its beginning, page by page, at its pace.
struct Look {
    table: ShardedTable,
    survey: Survey,
    after: Option<ScanPosition>,
    next_page: Instant,
    read_units: u32,
    bar: ProgressBar,
}

impl Look {
    fn new(table: &ShardedTable, options: &TableOptions, bar: ProgressBar) -> Self {
        let (table, next_page) = (table.clone(), Instant::now());
        Self { table, survey: Survey::default(), after: None, next_page, read_units: options.read_units, bar }
    }

    /// Looks at one page; `false` at the end.
    async fn page(&mut self) -> Result<bool, TableError> {
        sleep_until(self.next_page).await;
        let began = Instant::now();
        let deadline = Deadline::now() + PATIENCE;
        let page: SurveyPage = self.table.survey_page(&mut self.survey, self.after.as_ref(), deadline).await?;
        if self.read_units > 0 {
            self.next_page = began + Duration::from_secs_f64(page.consumed_capacity / f64::from(self.read_units));
        }
        self.bar.inc(page.items);
        self.after = page.next;
        Ok(self.after.is_some())
    }
}

/// A bar over the items of the table. DynamoDB counts them every six hours, so the end may be off.
fn bar(items: u64, doing: &'static str) -> ProgressBar {
    let template = format!("{doing} {{wide_bar}} {{human_pos}}/{{human_len}} items {{msg}} {{eta}}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(items).with_style(style)
}
