//! `advise`: whether a file's partition key spreads its writes, and what to do if not.
//!
//! The guide's table of good and bad partition keys asks two things: are there many values, and are they written evenly? This command
//! answers both for the user's own data. The file is read twice in bounded memory: once to count the keys, then to look closely at
//! the hottest ones: their peaks, and how each placement would spread them over shards.

mod capacity;
mod counts;
mod csv_rows;
mod evenness;
mod moments;
mod passes;
mod picture;
mod report;
mod rows;
mod seconds;
mod series;
mod source;
mod text;
mod time;
mod verdict;
mod write;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub use evenness::Evenness;
pub use picture::render_svg;
pub use report::{
    Advice, BreakingRate, HotKey, KeySpread, OverTime, Overload, PartitionKeys, Peak, PlacementSpread, RateSeries,
};
pub use rows::FileFormat;
pub use text::text;
pub(crate) use time::rfc3339;
pub use verdict::{Uniformity, Verdict};

use cli::records::RecordsError;
use passes::Bounds;
use source::Source;
use write::Roles;

/// What to look at.
#[derive(Debug, Clone, Args)]
pub struct AdviseOptions {
    /// JSON Lines, or CSV with a header; plain or gzip; '-' is standard input
    pub file: PathBuf,
    /// Field that holds the partition key
    #[arg(long, value_name = "FIELD")]
    pub partition_key: String,
    /// Field that holds the sort key; given more than once, the fields are joined by '#'. With it, placements are compared
    #[arg(long, value_name = "FIELD")]
    pub sort_key: Vec<String>,
    /// Field that holds the time of the write: epoch seconds or milliseconds, or RFC 3339. With it, peaks are found
    #[arg(long, value_name = "FIELD")]
    pub time: Option<String>,
    /// Field that holds the item's bytes [default: the length of the line]
    #[arg(long, value_name = "FIELD")]
    pub size: Option<String>,
    /// How to answer
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub format: OutputFormat,
    /// Draw the hottest keys and their rates to this SVG file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Numbers of shards to compare placements at
    #[arg(long, value_delimiter = ',', default_values_t = [10, 200], value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub shards: Vec<u32>,
}

impl AdviseOptions {
    /// The options of a command line that names nothing but a file and the field of its partition key.
    #[must_use]
    pub fn of(file: PathBuf, partition_key: String) -> Self {
        Self {
            file,
            partition_key,
            sort_key: Vec::new(),
            time: None,
            size: None,
            format: OutputFormat::Text,
            svg: None,
            shards: vec![10, 200],
        }
    }
}

/// How to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    Text,
    /// One JSON object, for programs
    Json,
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// The file cannot be read, or a line of it is not what it should be.
    #[error(transparent)]
    Records(RecordsError),
    /// There is nothing to judge.
    #[error("{path}: there is no item in it")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the file and judges its partition key.
///
/// # Errors
/// [`AdviseError`] where the file cannot be read, has no item, or has a line that is not one.
pub fn advise(options: &AdviseOptions) -> Result<Advice, AdviseError> {
    advise_within(options, &Bounds::default())
}

fn advise_within(options: &AdviseOptions, bounds: &Bounds) -> Result<Advice, AdviseError> {
    let roles = Roles::new(options);
    let source = Source::open(&options.file).map_err(AdviseError::Records)?;
    let totals = passes::count(&source, &roles, bounds).map_err(AdviseError::Records)?;
    if totals.items == 0 {
        return Err(AdviseError::Empty { path: source.path().to_owned() });
    }
    let close = passes::look_closely(&source, &roles, options, bounds, &totals).map_err(AdviseError::Records)?;
    Ok(report::advice(&source, &totals, close))
}

#[cfg(test)]
mod tests;
