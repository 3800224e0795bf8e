//! `arm`, `disarm` and `status`: which keys of a table the product writes and may spread.

use clap::Args;
use clap::builder::PossibleValue;
use cli::output::bar_style;
use connection::server::is_on_this_machine;
use indicatif::ProgressBar;
use sharding::maintenance::{ArmingObstacle, KeyPattern, Maintenance};
use sharding::{ShardedTable, TableConfig, TableError};
use tokio::time::{Duration, sleep};

use crate::whole_table::{REQUEST_TIMEOUT, open};

/// The table of a command.
#[derive(Debug, Clone, Args)]
pub struct ArmingTable {
    /// Name of the main table [default: TABLE_NAME, or items]
    #[arg(long, value_name = "NAME")]
    pub table: Option<String>,
    /// Name of its metadata table [default: METADATA_TABLE_NAME, or the table's and -metadata]
    #[arg(long, value_name = "NAME")]
    pub metadata_table: Option<String>,
    /// URL of a DynamoDB server [default: AWS, from the usual variables]
    #[arg(long, value_name = "URL")]
    pub endpoint_url: Option<String>,
}

/// The keys of a command: all, those with a prefix, or one.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct Keys {
    /// All keys
    #[arg(long)]
    pub all: bool,
    /// The keys that begin with this text
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// This key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
}

/// The options of `arm`.
#[derive(Debug, Clone, Args)]
pub struct ArmOptions {
    /// The table
    #[command(flatten)]
    pub table: ArmingTable,
    /// The keys
    #[command(flatten)]
    pub keys: Keys,
    /// Arm although the table has this; several are separated by commas
    #[arg(long, value_delimiter = ',', value_parser = [
        PossibleValue::new("replicas").help("A global table"),
        PossibleValue::new("stream").help("A stream, or a Kinesis destination"),
        PossibleValue::new("index").help("An index that sorts by the table's partition key"),
        PossibleValue::new("metadata").help("A tag that names another metadata table"),
    ])]
    pub allow: Vec<String>,
    /// Seconds until the pattern counts, instead of 18 minutes. Only for a server on this machine
    #[arg(long, value_name = "SECONDS", requires = "endpoint_url",
        value_parser = clap::value_parser!(u32).range(5..=1_080))]
    pub wait: Option<u32>,
}

/// The options of `disarm`.
#[derive(Debug, Clone, Args)]
pub struct DisarmOptions {
    /// The table
    #[command(flatten)]
    pub table: ArmingTable,
    /// The keys, as they were armed
    #[command(flatten)]
    pub keys: Keys,
    /// Disarm keys whose pattern counts already, and which never grew: all processes of the product
    /// are stopped. Waits 18 minutes, and then removes what the product has stored in their items
    #[arg(long)]
    pub offline: bool,
    /// Seconds to wait instead of 18 minutes. Only for a server on this machine
    #[arg(long, value_name = "SECONDS", requires = "endpoint_url", requires = "offline",
        value_parser = clap::value_parser!(u32).range(5..=1_080))]
    pub wait: Option<u32>,
}

/// Arms keys, and returns the text to print.
///
/// # Errors
/// [`TableError::Rejected`] with the option that is wrong, or with what the table has and
/// `--allow` does not name; another [`TableError`] if the tables cannot be used.
pub async fn arm(options: &ArmOptions, config: TableConfig) -> Result<String, TableError> {
    let pattern = options.keys.pattern()?;
    let config = options.table.waiting(options.wait, config)?;
    let (table, client) = options.table.open(config).await?;
    let maintenance = table.maintenance().timeout(REQUEST_TIMEOUT);
    let mut found = maintenance.arming_obstacles().await?;
    if has_kinesis(&client, &table.config().table_name).await? {
        found.push(ArmingObstacle::Stream);
    }
    found.retain(|it| !options.allow.iter().any(|name| name == it.as_str()));
    if let Some(first) = found.first() {
        let name = first.as_str();
        let why = format!(
            "the table has {name}: nothing was armed. Read docs/adopting.md; then --allow {name}"
        );
        return Err(TableError::Rejected(why.into()));
    }
    let from = maintenance.arm(&pattern).await?;
    Ok(format!(
        "{pattern} counts from epoch second {from}. By then no other program may write these keys\n"
    ))
}

/// Removes a pattern, and returns the text to print.
///
/// # Errors
/// As [`arm`].
pub async fn disarm(options: &DisarmOptions, config: TableConfig) -> Result<String, TableError> {
    let pattern = options.keys.pattern()?;
    let config = options.table.waiting(options.wait, config)?;
    let (table, _) = options.table.open(config).await?;
    let maintenance = table.maintenance().timeout(REQUEST_TIMEOUT);
    let (disarmed, refused) = if options.offline {
        (disarm_offline(&maintenance, &pattern).await, "is not armed, or was armed again")
    } else {
        let disarmed = maintenance.disarm(&pattern).await;
        let refused = "is not armed, or counts already, or within two minutes. With --offline, \
                       keys are disarmed that never grew: docs/adopting.md";
        (disarmed.map(|()| format!("{pattern} is removed\n")), refused)
    };
    match disarmed {
        Err(TableError::ConditionFailed) => {
            Err(TableError::Rejected(format!("{pattern} {refused}").into()))
        }
        disarmed => disarmed,
    }
}

/// Disarms a pattern that counts. A second scan shows that no process has written meanwhile.
async fn disarm_offline(
    maintenance: &Maintenance,
    pattern: &KeyPattern,
) -> Result<String, TableError> {
    let disarming = maintenance.begin_disarming(pattern).await?;
    let bar = ProgressBar::new_spinner().with_style(bar_style("{spinner} {msg} {human_pos}"));
    bar.set_message("waiting for earlier requests, seconds left:");
    loop {
        let left = disarming.may_continue_at.saturating_sub(api::since_epoch().as_secs());
        bar.set_position(left);
        if left == 0 {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    bar.set_message("items looked at:");
    let changed = maintenance.disarm_items(&disarming, |items| bar.set_position(items)).await?;
    let again = maintenance.disarm_items(&disarming, |items| bar.set_position(items)).await?;
    bar.finish_and_clear();
    if again.changed + again.tombstones > 0 {
        let why =
            "an item was written meanwhile: stop all processes of the product, and repeat this";
        return Err(TableError::Rejected(why.into()));
    }
    maintenance.end_disarming(disarming).await?;
    Ok(format!(
        "{pattern} is removed: {} items are as other programs store them, and {} tombstones are \
         gone\n",
        changed.changed, changed.tombstones
    ))
}

/// Reads the patterns of a table, and returns the text to print.
///
/// # Errors
/// As [`arm`].
pub async fn status(options: &ArmingTable, config: TableConfig) -> Result<String, TableError> {
    let (table, _) = options.open(config).await?;
    let patterns = table.maintenance().timeout(REQUEST_TIMEOUT).armed().await?;
    if patterns.is_empty() {
        return Ok("no key is armed\n".to_owned());
    }
    let line = |(pattern, from): &(KeyPattern, Option<u64>)| match from {
        Some(0) => format!("{pattern} counts from the beginning\n"),
        Some(from) => format!("{pattern} counts from epoch second {from}\n"),
        None => format!("{pattern} has no time yet: arm it again\n"),
    };
    Ok(patterns.iter().map(line).collect())
}

impl ArmingTable {
    /// The configuration with a shorter wait for earlier requests.
    fn waiting(&self, wait: Option<u32>, config: TableConfig) -> Result<TableConfig, TableError> {
        let Some(seconds) = wait else { return Ok(config) };
        let url = self.endpoint_url.as_deref().unwrap_or_default();
        if !is_on_this_machine(url) {
            let why = format!("--wait is only for a server on this machine, and {url} is not one");
            return Err(TableError::Rejected(why.into()));
        }
        let waiting = config.drain_wait(Duration::from_secs(seconds.into()));
        waiting.map_err(|error| TableError::Rejected(error.to_string().into()))
    }

    async fn open(
        &self,
        mut config: TableConfig,
    ) -> Result<(ShardedTable, aws_sdk_dynamodb::Client), TableError> {
        if let Some(name) = &self.table {
            config.table_name.clone_from(name);
            config.metadata_table_name = format!("{name}-metadata");
        }
        if let Some(name) = &self.metadata_table {
            config.metadata_table_name.clone_from(name);
        }
        let (table, client, _) = open(self.endpoint_url.as_deref(), config).await?;
        Ok((table, client))
    }
}

impl Keys {
    fn pattern(&self) -> Result<KeyPattern, TableError> {
        let text = match (&self.prefix, &self.key) {
            (Some(prefix), _) => format!("prefix:{prefix}"),
            (None, Some(key)) => format!("key:{key}"),
            (None, None) => "*".to_owned(),
        };
        text.parse().map_err(|error| TableError::Rejected(format!("the keys: {error}").into()))
    }
}

/// Whether the table sends its changes to Kinesis. Not every server knows the question.
async fn has_kinesis(client: &aws_sdk_dynamodb::Client, table: &str) -> Result<bool, TableError> {
    use aws_sdk_dynamodb::error::ProvideErrorMetadata;
    use aws_sdk_dynamodb::types::DestinationStatus;
    let asked = client.describe_kinesis_streaming_destination().table_name(table).send().await;
    let is_off = |status: Option<&DestinationStatus>| {
        matches!(status, Some(DestinationStatus::Disabled | DestinationStatus::EnableFailed))
    };
    match asked {
        Ok(answer) => {
            let all = answer.kinesis_data_stream_destinations();
            Ok(all.iter().any(|it| !is_off(it.destination_status())))
        }
        Err(error) if error.code() == Some("UnknownOperationException") => Ok(false),
        Err(error) => {
            let why = aws_sdk_dynamodb::error::DisplayErrorContext(&error);
            Err(TableError::Rejected(format!("its Kinesis destinations: {why}").into()))
        }
    }
}
