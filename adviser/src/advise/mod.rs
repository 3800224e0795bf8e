//! `advise`: judges how a partition key spreads the writes of a file, and advises what to do.
//!
//! A good partition key has many values that are written evenly ("Designing partition keys to
//! distribute your workload in DynamoDB",
//! <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html>).
//! This command measures both for the user's own data. It reads the file twice in bounded memory.
//! The first pass counts the keys. The second pass finds the peaks of the hottest keys. Of what an
//! endpoint has observed, it advises on the keys that were throttled.

mod advice;
mod counts;
mod moments;
mod observed;
mod over_time;
mod passes;
mod picture;
mod report;
mod seconds;
mod shown;
mod source;
mod time;
mod verdict;
mod write;

use std::error::Error;
use std::path::PathBuf;

use clap::Args;

use crate::report::Report;
use advice::Advice;
use passes::Bounds;
use picture::render_svg;
use source::Source;

#[derive(Debug, Clone, Args)]
pub(crate) struct AdviseOptions {
    /// File of writes, a JSON object in each line; plain or gzip; '-' for standard input
    file: PathBuf,
    #[command(flatten)]
    writes: Option<WriteOptions>,
    /// The file has what endpoints have observed: one line of `GET /observed` from each
    #[arg(long, conflicts_with = "WriteOptions")]
    observed: bool,
}

/// How to read writes, and whether to draw them.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct WriteOptions {
    /// Field that holds the partition key
    #[arg(long, value_name = "FIELD", required_unless_present = "observed")]
    pub(crate) partition_key: String,
    /// Field that holds the time of the write: epoch seconds or milliseconds, or RFC 3339. Enables
    /// the search for peaks
    #[arg(long, value_name = "FIELD")]
    pub(crate) time: Option<String>,
    /// Field that holds the size of the item in bytes [default: the length of the line]
    #[arg(long, value_name = "FIELD")]
    pub(crate) size: Option<String>,
    /// Draw the hottest keys and their rates to this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[cfg(test)]
impl WriteOptions {
    fn of(partition_key: &str) -> Self {
        Self { partition_key: partition_key.to_owned(), ..Self::default() }
    }
}

/// Reads the file, and reports the advice. Draws the picture, if it is asked for.
pub(crate) fn report(options: &AdviseOptions) -> Result<Report, Box<dyn Error>> {
    let source = Source::open(&options.file)?;
    if options.observed {
        return Ok(observed::report(&observed::observed(&source)?));
    }
    let writes = options.writes.as_ref().ok_or("--partition-key is missing")?;
    let advice = advise(&source, writes, &Bounds::default())?;
    if let Some(path) = &writes.svg {
        render_svg(&advice, path)?;
    }
    Ok(advice.report())
}

/// Reads the file and judges its partition key. Fails if the file cannot be read, has an invalid
/// line, or has no item.
fn advise(
    source: &Source,
    options: &WriteOptions,
    bounds: &Bounds,
) -> Result<Advice, Box<dyn Error>> {
    let totals = passes::count(source, options, bounds)?;
    if totals.items == 0 {
        return Err(format!("{}: the file has no item", source.path.display()).into());
    }
    let (keys, rates) = passes::analyze_hottest(source, options, bounds, &totals)?;
    Ok(advice::advice(source, totals, &keys, rates.as_ref()))
}

#[cfg(test)]
mod tests;
