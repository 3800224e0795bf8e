//! The command line of the laptop edition.
#![expect(clippy::print_stderr, reason = "a command-line program talks to its user there")]

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use local::advise::{self, AdviseOptions, OutputFormat};
use local::demo::{self, DemoOptions};
use local::load::{LoadOptions, load};
use local::plan::{self, PlanOptions};
use local::simulate::{self, SimulateOptions};
use local::whole_table::{MigrateOptions, RebuildOptions, migrate, rebuild};
use local::{Edition, ServeOptions};
use sharding::{Clock, ConfigError, SystemClock, TableConfig};

/// Dynamic write sharding for DynamoDB, on a laptop
///
/// The table is configured by the same variables as the functions (SORT_KEY_TYPE, SHARD_PLACEMENT, ...); TABLE_NAME and METADATA_TABLE_NAME
/// are "items" and "items-metadata" unless they are set.
#[derive(Parser)]
#[command(name = "local", version, subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeOptions,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the API and the DynamoDB-compatible endpoint (the default)
    Serve(ServeOptions),
    /// Store JSON Lines through the API
    Load(LoadOptions),
    /// Play how a key turns hot and is relieved, beside the same load on one shard
    Demo(DemoOptions),
    /// Tell whether a file's partition key spreads its writes, and what to do if not
    Advise(AdviseOptions),
    /// Compare how fast policies relieve a key that turns hot at once
    Simulate(SimulateOptions),
    /// Tell how many shards a hot key needs, what they cost, and whether it needs any
    Plan(PlanOptions),
    /// Bring home the items under bare keys of a table that is adopted (ADOPT_UNSHARDED=true)
    Migrate(MigrateOptions),
    /// Rebuild lost or damaged metadata from the items of the table
    Rebuild(RebuildOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(options) => serve(&options).await,
        Command::Load(options) => run_load(&options).await,
        Command::Demo(options) => run_demo(options).await,
        Command::Advise(options) => run_advice(&options),
        Command::Simulate(options) => run_simulation(&options),
        Command::Plan(options) => run_plan(&options),
        Command::Migrate(options) => run_migration(&options).await,
        Command::Rebuild(options) => run_rebuild(&options).await,
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// The functions' variables, but that the tables have names without them.
fn configuration() -> Result<TableConfig, ConfigError> {
    TableConfig::from_variables(|name| {
        let set = std::env::var(name).ok().filter(|value| !value.is_empty());
        set.or_else(|| match name {
            "TABLE_NAME" => Some("items".to_owned()),
            "METADATA_TABLE_NAME" => Some("items-metadata".to_owned()),
            _ => None,
        })
    })
}

async fn serve(options: &ServeOptions) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let config = configuration()?;
    let tables = format!("{}, {}", config.table_name, config.metadata_table_name);
    let edition = Edition::start(options, config).await?;
    let (api, dynamodb) = edition.addresses()?;
    let mut told = format!("API       http://{api}\nconsole   http://{api}/console\n");
    if let Some(dynamodb) = dynamodb {
        told += &format!("DynamoDB  http://{dynamodb}  (tables {tables})\n");
        let (partitions, units) = (options.partitions, options.partition_write_units);
        told += &format!("          {partitions} partitions of {units} write units a second\n");
    }
    match &options.data_dir {
        Some(path) => told += &format!("data      {}\n", path.display()),
        None if options.endpoint_url.is_none() => told += "data      in memory; --data-dir keeps it\n",
        None => {}
    }
    told += "stop with Ctrl-C\n";
    write_out(&told)?;
    edition.serve(stop_signal()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Resolves at the first signal to stop; a second one ends the process at once.
async fn stop_signal() {
    signalled().await;
    tokio::spawn(async {
        signalled().await;
        std::process::exit(130);
    });
}

async fn signalled() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    _ = interrupt => {}
                    _ = terminate.recv() => {}
                }
            }
            Err(_) => drop(interrupt.await),
        }
    }
    #[cfg(not(unix))]
    drop(interrupt.await);
}

async fn run_load(options: &LoadOptions) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let summary = load(options).await?;
    write_out(&summary.to_string())?;
    Ok(if summary.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_demo(options: DemoOptions) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let story = demo::play(options, |line| write_out(&format!("{line}\n"))).await?;
    write_out(&format!("\n{}", demo::table(&story)))?;
    if let Some(path) = &story.options.svg {
        demo::render_svg(&story, path)?;
    }
    story.faults().map_or(Ok(ExitCode::SUCCESS), |faults| Err(faults.into()))
}

fn run_advice(options: &AdviseOptions) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let advice = advise::advise(options)?;
    write_out(&match options.format {
        OutputFormat::Text => advise::text(&advice),
        OutputFormat::Json => serde_json::to_string(&advice)? + "\n",
    })?;
    if let Some(path) = &options.svg {
        advise::render_svg(&advice, path)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run_simulation(options: &SimulateOptions) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let outcomes = simulate::run(&simulate::scenarios(options));
    write_out(&format!("{}\n", simulate::table(&outcomes)))?;
    if let Some(path) = &options.csv {
        simulate::write_csv(&outcomes, path)?;
    }
    if let Some(path) = &options.svg {
        simulate::render_svg(&outcomes, path)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run_plan(options: &PlanOptions) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let report = plan::plan(options, SystemClock::default().now().wall.as_secs())?;
    write_out(&match options.format {
        plan::Format::Text => report.to_string(),
        plan::Format::Json => serde_json::to_string_pretty(&report)? + "\n",
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn run_migration(options: &MigrateOptions) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let migration = migrate(options, configuration()?).await?;
    write_out(&migration.to_string())?;
    Ok(if migration.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_rebuild(options: &RebuildOptions) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let rebuilt = rebuild(options, configuration()?).await?;
    write_out(&rebuilt.to_string())?;
    Ok(if rebuilt.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a command answers. That nobody reads on is no error: who reads only the beginning has read enough.
fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
