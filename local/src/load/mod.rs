//! `load`: stores the items of a JSON Lines file through the API.
//!
//! The file is read twice. The first pass checks every line, so that a malformed line is reported
//! before anything is stored. The second pass stores the lines in batches, and retries throttled
//! items.

mod lines;
mod send;

use std::path::PathBuf;

use clap::Parser;

pub use lines::LoadError;
pub use send::Summary;

/// The options of a load.
#[derive(Debug, Clone, Parser)]
pub struct LoadOptions {
    /// JSON Lines file, plain or gzip
    pub file: PathBuf,
    /// Field that holds the partition key
    #[arg(long, value_name = "FIELD")]
    pub partition_key: String,
    /// Field that holds the sort key; several fields are joined by '#'
    #[arg(long, value_name = "FIELD", required = true)]
    pub sort_key: Vec<String>,
    /// URL of the API
    #[arg(long, default_value = "http://127.0.0.1:3000")]
    pub url: String,
    /// Items per request
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub batch: u16,
    /// Number of concurrent requests
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// Maximum attempts per item, before it counts as failed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub attempts: u16,
}

/// Checks the file, stores its items, and returns the outcome of every line.
///
/// # Errors
/// [`LoadError`] if the file cannot be read or has a malformed line. Nothing was stored, unless it is
/// [`LoadError::Changed`].
pub async fn load(options: &LoadOptions) -> Result<Summary, LoadError> {
    let total = lines::check(options)?;
    send::store(options, total).await
}
