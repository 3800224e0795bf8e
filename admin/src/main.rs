//! The command line of `admin`.

use std::error::Error;
use std::process::ExitCode;

use admin::{MigrateOptions, RebuildOptions, migrate, rebuild};
use clap::{Parser, Subcommand};
use cli::output::{exit_code, success_if, write_out};
use connection::configuration;

/// Process all items of a table, on AWS or on the local edition
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
    /// Move items from the bare keys of an adopted table to their shards (ADOPT_UNSHARDED=true)
    Migrate(MigrateOptions),
    /// Rebuild lost or damaged metadata from the items of the table
    Rebuild(RebuildOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    exit_code(match Cli::parse().command {
        Command::Migrate(options) => run_migration(&options).await,
        Command::Rebuild(options) => run_rebuild(&options).await,
    })
}

async fn run_migration(options: &MigrateOptions) -> Result<ExitCode, Box<dyn Error>> {
    let migration = migrate(options, configuration()?).await?;
    write_out(&migration.to_string())?;
    Ok(success_if(migration.failed.is_empty()))
}

async fn run_rebuild(options: &RebuildOptions) -> Result<ExitCode, Box<dyn Error>> {
    let rebuilt = rebuild(options, configuration()?).await?;
    write_out(&rebuilt.to_string())?;
    Ok(success_if(rebuilt.failed.is_empty()))
}
