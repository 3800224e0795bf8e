//! `demo`: a key turns hot and is relieved, in about a minute. A second key with the same load is
//! not sharded, for comparison.
//!
//! Both sides are complete editions in this process, each with its own engine. The load goes
//! through the functions' handlers, or from a Python program through the endpoint.

mod boto3;
mod check;
mod report;
mod side;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use cli::output::{bar_style, write_out};
use indicatif::ProgressBar;
use sharding::ShardCount;
use tokio::time::Instant;

use crate::wake::ticks;
use side::{Outcome, Side};

const KEY: &str = "hot";
const ITEM_BYTES: u32 = 1_000;
/// The load before the step is the load after it, divided by this number.
const CALM_DIVISOR: u32 = 10;

/// Who writes.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Client {
    /// Clients of the HTTP API that do not wait for each other
    Api,
    /// A Python program with boto3 and 64 threads, through the endpoint; it needs python3 and boto3
    Boto3,
}

/// The options of the demo.
#[derive(Debug, Clone, Parser)]
pub struct DemoOptions {
    /// Duration of the demo in seconds; the load rises after a sixth of it
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(20..=600))]
    pub seconds: u32,
    /// Writes per second after the rise, of 1 KB each
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    pub writes: u32,
    /// Initial physical partitions of each table; the default is that of a new on-demand table
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub partitions: u32,
    /// Write units per second of each partition
    #[arg(long, default_value_t = 50, value_name = "UNITS",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub partition_write_units: u32,
    /// Who writes
    #[arg(long, value_enum, default_value_t = Client::Api)]
    pub client: Client,
    /// Draw the result to this SVG file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// The result of the demo.
struct Story {
    options: DemoOptions,
    sharded: Outcome,
    /// The result of the key that stays on one shard.
    single: Outcome,
}

impl Story {
    /// Describes the errors that the reads found. Returns `None` if they found none.
    fn faults(&self) -> Option<String> {
        let (sharded, single) = (&self.sharded.checked, &self.single.checked);
        let (missing, misplaced) =
            (sharded.missing + single.missing, sharded.misplaced + single.misplaced);
        (missing + misplaced > 0).then(|| {
            format!(
                "reads are wrong: {missing} look-ups did not find an acknowledged item, \
                 and {misplaced} items were returned twice or out of order"
            )
        })
    }
}

impl DemoOptions {
    /// The second at which the load rises.
    const fn step_at(&self) -> u32 {
        self.seconds / 6
    }
}

/// Runs the demo, prints its events and its result, and draws the picture.
///
/// # Errors
/// Fails if the SVG file is not writable, if an edition cannot start, or if reads are wrong.
pub async fn play(options: DemoOptions) -> Result<(), Box<dyn Error>> {
    if let Some(path) = &options.svg {
        report::check_writable(path)?;
    }
    let mut sharded = Side::start(&options, None).await?;
    let mut single = Side::start(&options, ShardCount::new(1)).await?;
    let bar = ProgressBar::new(options.seconds.into())
        .with_style(bar_style("{pos:>3} s  {msg} {wide_bar}"));
    let began = Instant::now();
    let say = |at: u32, text: &str| bar.suspend(|| write_out(&format!("{at:>3} s  {text}\n")));
    let calm = (options.writes / CALM_DIVISOR).max(1);
    say(0, &format!("both keys get {calm} writes a second: calm"))?;
    sharded.load(calm).await?;
    single.load(calm).await?;
    let mut ticks = ticks(Duration::from_secs(1)).await;
    for second in 1..=options.seconds {
        ticks.tick().await;
        let at = u32::try_from(began.elapsed().as_secs()).unwrap_or(u32::MAX);
        for line in sharded.record_second().await? {
            say(at, &line)?;
        }
        single.record_second().await?;
        let [ours, theirs] = [&sharded, &single].map(Side::accepted);
        bar.set_message(format!("accepted a second: {ours:.0} sharded, {theirs:.0} on one shard"));
        bar.set_position(second.into());
        if second == options.step_at() {
            let (writes, units) = (options.writes, options.partition_write_units);
            let rise = format!("the load rises to {writes} writes a second");
            say(at, &format!("{rise}; a partition's limit is {units}"))?;
            sharded.load(writes).await?;
            single.load(writes).await?;
        }
    }
    bar.finish_and_clear();
    let (sharded, single) = (sharded.end(options.step_at()), single.end(options.step_at()));
    let story = Story { options, sharded, single };
    write_out(&format!("\n{}", report::table(&story)))?;
    if let Some(path) = &story.options.svg {
        report::render_svg(&story, path)?;
    }
    story.faults().map_or(Ok(()), |faults| Err(faults.into()))
}
