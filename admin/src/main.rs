//! The command line of `admin`.

use std::error::Error;
use std::process::ExitCode;

use admin::{ArmOptions, ArmingTable, DisarmOptions, RebuildOptions, arm, disarm, rebuild, status};
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
    Rebuild(RebuildOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    exit_code(match Cli::parse().command {
        Command::Arm(options) => run_arming(&options).await,
        Command::Disarm(options) => run_disarming(&options).await,
        Command::Status(options) => show_status(&options).await,
        Command::Rebuild(options) => run_rebuild(&options).await,
    })
}

async fn run_arming(options: &ArmOptions) -> Result<ExitCode, Box<dyn Error>> {
    write_out(&arm(options, configuration()?).await?)?;
    Ok(ExitCode::SUCCESS)
}

async fn run_disarming(options: &DisarmOptions) -> Result<ExitCode, Box<dyn Error>> {
    write_out(&disarm(options, configuration()?).await?)?;
    Ok(ExitCode::SUCCESS)
}

async fn show_status(options: &ArmingTable) -> Result<ExitCode, Box<dyn Error>> {
    write_out(&status(options, configuration()?).await?.to_string())?;
    Ok(ExitCode::SUCCESS)
}

async fn run_rebuild(options: &RebuildOptions) -> Result<ExitCode, Box<dyn Error>> {
    let rebuilt = rebuild(options, configuration()?).await?;
    write_out(&rebuilt.to_string())?;
    Ok(success_if(rebuilt.failed.is_empty()))
}
