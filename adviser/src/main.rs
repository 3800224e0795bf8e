//! The command line of the adviser.

use std::error::Error;
use std::process::ExitCode;

use adviser::advise::{self, AdviseOptions, OutputFormat};
use adviser::plan::{self, PlanOptions};
use clap::{Parser, Subcommand};
use cli::output::{exit_code, write_out};

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
    exit_code(match Cli::parse().command {
        Command::Advise(options) => run_advice(&options),
        Command::Plan(options) => run_plan(&options),
    })
}

fn run_advice(options: &AdviseOptions) -> Result<ExitCode, Box<dyn Error>> {
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

fn run_plan(options: &PlanOptions) -> Result<ExitCode, Box<dyn Error>> {
    let report = plan::plan(options)?;
    write_out(&match options.format {
        plan::Format::Text => report.to_string(),
        plan::Format::Json => serde_json::to_string_pretty(&report)? + "\n",
    })?;
    Ok(ExitCode::SUCCESS)
}
