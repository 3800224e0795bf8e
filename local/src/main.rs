//! The command line of the local edition.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cli::output::{exit_code, success_if, write_out};
use connection::configuration;
use connection::signals::stop_signal;
use local::demo::{self, DemoOptions};
use local::load::{LoadOptions, load};
use local::variables;
use local::{Edition, ServeOptions};

/// Dynamic write sharding for DynamoDB, on a laptop
///
/// The same variables as for the functions configure the table (SORT_KEY_TYPE, SHARD_PLACEMENT,
/// ...). The defaults of TABLE_NAME and METADATA_TABLE_NAME are "items" and "items-metadata".
#[derive(Parser)]
#[command(
    name = "local",
    version,
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true
)]
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
    /// Store the items of a JSON Lines file through the API
    Load(LoadOptions),
    /// Show how a hot key is relieved, and compare it with the same load on one shard
    Demo(DemoOptions),
    /// List the variables of the functions, with their defaults and allowed values
    Variables {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    exit_code(match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(options) => serve(&options).await,
        Command::Load(options) => run_load(&options).await,
        Command::Demo(options) => demo::play(options).await.map(|()| ExitCode::SUCCESS),
        Command::Variables { json } => {
            write_out(&variables::list(json)).map(|()| ExitCode::SUCCESS).map_err(Into::into)
        }
    })
}

async fn serve(options: &ServeOptions) -> Result<ExitCode, Box<dyn Error>> {
    let config = configuration()?;
    let tables = format!("{}, {}", config.table_name, config.metadata_table_name);
    let edition = Edition::start(options, config).await?;
    let (api, dynamodb, endpoint) = edition.addresses()?;
    let mut text = format!("API       http://{api}\nconsole   http://{api}/console\n");
    if let Some(dynamodb) = dynamodb {
        text += &format!("DynamoDB  http://{dynamodb}  (tables {tables})\n");
        let (partitions, units) = (options.partitions, options.partition_write_units);
        text += &format!("          {partitions} partitions of {units} write units a second\n");
    }
    if let Some(endpoint) = endpoint {
        text += &format!("endpoint  http://{endpoint}  (the same tables, hot keys spread)\n");
    }
    match &options.data_dir {
        Some(path) => text += &format!("data      {}\n", path.display()),
        None if options.endpoint_url.is_none() => {
            text += "data      in memory; use --data-dir to keep it\n"
        }
        None => {}
    }
    text += "stop with Ctrl-C\n";
    write_out(&text)?;
    edition.serve(stop_signal()).await?;
    Ok(ExitCode::SUCCESS)
}

async fn run_load(options: &LoadOptions) -> Result<ExitCode, Box<dyn Error>> {
    let summary = load(options).await?;
    write_out(&summary.to_string())?;
    Ok(success_if(summary.failed.is_empty()))
}
