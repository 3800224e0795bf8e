//! The command line of `admin`.

use std::error::Error;
use std::process::ExitCode;

use admin::{ArmOptions, ArmingTable, DisarmOptions, TableOptions, arm, disarm, rebuild, status};
use clap::{Parser, Subcommand};
use cli::output::{exit_code, success_if, write_out};
use connection::configuration;

/// Arm keys of a table, or rebuild its metadata, on AWS or on the local edition
///
/// The same environment variables as for the functions configure the table (SORT_KEY_TYPE,
/// SHARD_PLACEMENT, ...). TABLE_NAME and METADATA_TABLE_NAME default to "items" and
/// "items-metadata".
#[derive(Parser)]
#[command(name = "admin", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Arm keys: the product writes them from then on, and they may be spread over shards
    Arm(ArmOptions),
    /// Remove a pattern of armed keys that does not count yet
    Disarm(DisarmOptions),
    /// Show the patterns of armed keys
    Status(ArmingTable),
    /// Rebuild lost or damaged metadata from the items of the table
    Rebuild(TableOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    exit_code(run(Cli::parse().command).await)
}

async fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let config = configuration()?;
    let (text, is_done) = match command {
        Command::Arm(options) => (arm(&options, config).await?, true),
        Command::Disarm(options) => (disarm(&options, config).await?, true),
        Command::Status(options) => (status(&options, config).await?, true),
        Command::Rebuild(options) => rebuild(&options, config).await?,
    };
    write_out(&text)?;
    Ok(success_if(is_done))
}
