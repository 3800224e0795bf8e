//! `load`: stores JSON Lines through the API.
//!
//! The file is read twice: first every line is checked, so that a malformed one is found before anything is stored; then the
//! lines are stored in batches, and what is throttled is sent again.

mod lines;
mod send;

use std::path::PathBuf;

use clap::Args;

pub use lines::LoadError;
pub use send::Summary;

/// What to load, and how.
#[derive(Debug, Clone, Args)]
pub struct LoadOptions {
    /// JSON Lines, plain or gzip
    pub file: PathBuf,
    /// Field that holds the partition key
    #[arg(long, value_name = "FIELD")]
    pub partition_key: String,
    /// Field that holds the sort key; given more than once, the fields are joined by '#'
    #[arg(long, value_name = "FIELD", required = true)]
    pub sort_key: Vec<String>,
    /// The API
    #[arg(long, default_value = "http://127.0.0.1:3000")]
    pub url: String,
    /// Items of one request
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub batch: u16,
    /// Requests at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// How often an item is sent before it counts as failed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub attempts: u16,
}

/// Checks the file, stores it, and says what became of every line.
///
/// # Errors
/// [`LoadError`] where the file cannot be read or has a malformed line; then nothing was stored.
pub async fn load(options: &LoadOptions) -> Result<Summary, LoadError> {
    let fields = lines::Fields { partition_key: options.partition_key.clone(), sort_key: options.sort_key.clone() };
    let total = lines::check(&options.file, &fields)?;
    send::store(options, fields, total).await
}
