//! The demo on a terminal, live.

use std::io;

use cli::output::bar_style;
use indicatif::{MultiProgress, ProgressBar};

use super::{DemoOptions, Second};

/// Two bars for each key: accepted writes and throttled attempts.
pub(super) struct Screen {
    bars: MultiProgress,
    sides: [[ProgressBar; 2]; 2],
}

impl Screen {
    pub(super) fn new(options: &DemoOptions) -> Self {
        let bars = MultiProgress::new();
        let bar = |name: &str, colour: &str| {
            let template = format!("{{prefix:<22}} {{bar:40.{colour}}} {{msg}}");
            let bar = ProgressBar::new(u64::from(options.writes)).with_style(bar_style(&template));
            bars.add(bar.with_prefix(name.to_owned()))
        };
        let sides = ["sharded", "one shard"].map(|name| {
            let accepted = bar(&format!("{name:<11}accepted/s"), "green");
            [accepted, bar("          throttled/s", "yellow")]
        });
        Self { bars, sides }
    }

    pub(super) fn show(&self, sharded: Option<&Second>, single: Option<&Second>) {
        for ([accepted, throttled], second) in self.sides.iter().zip([sharded, single]) {
            let Some(second) = second else { continue };
            let shards = if second.shards == 1 { "shard" } else { "shards" };
            accepted.set_position(second.accepted.round() as u64);
            accepted.set_message(format!("{:>5.0}  {} {shards}", second.accepted, second.shards));
            let length = throttled.length().unwrap_or(u64::MAX);
            throttled.set_position((second.throttled.round() as u64).min(length));
            throttled.set_message(format!("{:>5.0}", second.throttled));
        }
    }

    /// Prints a line above the bars. Without a terminal, `print` receives it.
    pub(super) fn say(&self, line: &str, print: impl Fn(&str) -> io::Result<()>) -> io::Result<()> {
        if self.bars.is_hidden() || self.bars.println(line).is_err() {
            print(line)?;
        }
        Ok(())
    }

    pub(super) fn finish(&self) {
        for bar in self.sides.iter().flatten() {
            bar.abandon();
        }
    }
}
