//! `demo`: a key turns hot and is relieved, in about a minute, beside the same load on a key that is not sharded.
//!
//! Both sides are whole editions in this process, each with an engine of its own; the load goes through the functions' handlers.

mod check;
mod report;
mod screen;
mod side;

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sharding::internal::ShardCount;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub use check::Checked;
pub use report::{render_svg, table};
use screen::Screen;
use side::Side;
pub use side::{Outcome, Second};

/// The key of the story.
const KEY: &str = "hot";
/// Writes a second before the step, in parts of those after it.
const CALM_PART: u32 = 10;

/// How the story is played.
#[derive(Debug, Clone, Args)]
pub struct DemoOptions {
    /// Seconds of the whole story; the load steps up after a sixth of them
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(20..=600))]
    pub seconds: u32,
    /// Writes a second after the step, of 1 KB each
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    pub writes: u32,
    /// Physical partitions of each table at the beginning; by default as many as a new on-demand table has
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub partitions: u32,
    /// Write units a second of each partition
    #[arg(long, default_value_t = 50, value_name = "UNITS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub partition_write_units: u32,
    /// Partitions that each table may be given when they are short (MAX_WARM_WRITE_UNITS, in thousands); 0 for none
    #[arg(long, default_value_t = 40, value_name = "PARTITIONS", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub budget: u32,
    /// Seconds that it takes to give them (DynamoDB takes minutes)
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub warming: u32,
    /// Draw the story to this SVG file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// What the story came to.
#[derive(Debug)]
pub struct Story {
    /// The options that it was played with.
    pub options: DemoOptions,
    /// The key that this product shards.
    pub sharded: Outcome,
    /// The key that stays on one shard.
    pub single: Outcome,
}

impl Story {
    /// What reads found wrong, in words; nothing where they found nothing wrong.
    #[must_use]
    pub fn faults(&self) -> Option<String> {
        let (sharded, single) = (&self.sharded.checked, &self.single.checked);
        let (missing, misplaced) = (sharded.missing + single.missing, sharded.misplaced + single.misplaced);
        (missing + misplaced > 0).then(|| {
            format!(
                "reads are wrong: {missing} look-ups did not find an acknowledged item, and {misplaced} times an item came twice or out of order"
            )
        })
    }
}

impl DemoOptions {
    /// The second at which the load steps up.
    #[must_use]
    pub const fn step_at(&self) -> u32 {
        self.seconds / 6
    }
}

/// Plays the story; `tell` receives what happens, a line each, where the terminal has no live bars.
///
/// # Errors
/// Where the picture could not be written later, an edition cannot start, or `tell` fails.
pub async fn play(options: DemoOptions, tell: impl Fn(&str) -> io::Result<()>) -> Result<Story, Box<dyn Error>> {
    if let Some(path) = &options.svg {
        report::check_writable(path)?;
    }
    let mut sharded = Side::start(&options, None).await?;
    let mut single = Side::start(&options, ShardCount::new(1)).await?;
    let screen = Screen::new(&options);
    let began = Instant::now();
    let say = |at: u32, text: &str| screen.say(&format!("{at:>3} s  {text}"), &tell);
    let calm = (options.writes / CALM_PART).max(1);
    say(0, &format!("both keys take {calm} writes a second: calm"))?;
    sharded.load(calm);
    single.load(calm);
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    for second in 1..=options.seconds {
        ticks.tick().await;
        let at = u32::try_from(began.elapsed().as_secs()).unwrap_or(u32::MAX);
        for line in sharded.look().await? {
            say(at, &line)?;
        }
        single.look().await?;
        screen.show(sharded.last(), single.last());
        if second == options.step_at() {
            let units = options.partition_write_units;
            say(at, &format!("the load steps to {} writes a second; a partition takes {units}", options.writes))?;
            sharded.load(options.writes);
            single.load(options.writes);
        }
    }
    screen.finish();
    Ok(Story { sharded: sharded.end(options.step_at()), single: single.end(options.step_at()), options })
}
