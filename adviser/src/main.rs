//! Advice before a deployment: `advise` judges a file of writes or what endpoints have observed, and
//! `plan` calculates the needs of a hot key.

mod advise;
mod plan;
mod report;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cli::output::{exit_code, write_out};

use advise::AdviseOptions;
use plan::PlanOptions;

/// Find hot keys, and plan their shards and costs, before you deploy anything
#[derive(Parser)]
#[command(name = "adviser", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Judge how a partition key spreads the writes of a file, and advise what to do
    Advise(AdviseOptions),
    /// Calculate the shards that a hot key needs, if any, and their costs
    Plan(PlanOptions),
}

fn main() -> ExitCode {
    exit_code(run(&Cli::parse().command))
}

fn run(command: &Command) -> Result<ExitCode, Box<dyn Error>> {
    let report = match command {
        Command::Advise(options) => advise::report(options)?,
        Command::Plan(options) => plan::plan(options).report(),
    };
    write_out(&report.to_string())?;
    Ok(ExitCode::SUCCESS)
}
