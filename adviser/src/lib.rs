//! Advice before a deployment: `advise` judges a file of writes, and `plan` calculates the needs of
//! a hot key.

mod advise;
mod plan;
mod report;

use std::error::Error;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use cli::output::{exit_code, write_out};

use advise::AdviseOptions;
use plan::PlanOptions;
use report::OutputFormat;

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
    Advise(Formatted<AdviseOptions>),
    /// Calculate the shards that a hot key needs, if any, and their costs
    Plan(Formatted<PlanOptions>),
}

#[derive(Args)]
struct Formatted<O: Args> {
    #[command(flatten)]
    options: O,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

/// Runs the command of the command line. Returns its exit code.
#[must_use]
pub fn run() -> ExitCode {
    exit_code(run_command(&Cli::parse().command))
}

fn run_command(command: &Command) -> Result<ExitCode, Box<dyn Error>> {
    let (report, format) = match command {
        Command::Advise(of) => (advise::report(&of.options)?, of.format),
        Command::Plan(of) => (plan::plan(&of.options).report(), of.format),
    };
    write_out(&report.formatted(format))?;
    Ok(ExitCode::SUCCESS)
}
