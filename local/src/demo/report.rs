//! The result of the demo, as a table and as a chart.

use std::error::Error;
use std::fs::OpenOptions;
use std::path::Path;

use cli::numbers::{count, whole};
use cli::output;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::Story;
use super::side::{FULL_LOAD_SHARE, Outcome, Second};

const OURS: RGBColor = RGBColor(0, 114, 178);
const THEIRS: RGBColor = RGBColor(213, 94, 0);
const WANTED: RGBColor = RGBColor(150, 150, 150);

impl Story {
    /// The results of both keys, with their names and their colours.
    fn lines(&self) -> [(&Outcome, &'static str, RGBColor); 2] {
        [(&self.sharded, "sharded", OURS), (&self.single, "one shard", THEIRS)]
    }
}

/// The two keys side by side.
pub(super) fn table(story: &Story) -> String {
    let writes = two_sides(
        story,
        "since the load rose",
        &[
            ("less than 1 % throttled after", |outcome| {
                let seconds = outcome.relieved_after.map(|seconds| format!("{seconds:.0} s"));
                seconds.unwrap_or_else(|| "never".to_owned())
            }),
            ("writes sent", |outcome| count(outcome.totals.sent)),
            ("writes stored", |outcome| count(outcome.totals.stored)),
            ("writes rejected, nothing stored", |outcome| count(outcome.totals.failed)),
            ("writes without a response at the end", |outcome| count(outcome.totals.pending())),
            ("throttled attempts", |outcome| count(outcome.totals.throttled)),
            ("latency of a write, last third: median", |outcome| milliseconds(outcome, 0)),
            ("99th percentile", |outcome| milliseconds(outcome, 1)),
            ("shards at the end", |outcome| {
                outcome.seconds.last().map_or(1, |second| second.shards).to_string()
            }),
        ],
    );
    // The checks of reads run from the first second on.
    let reads = two_sides(
        story,
        "reads, from second 0 on",
        &[
            ("look-ups of acknowledged items, each several times", |it| count(it.checked.lookups)),
            ("look-ups that did not find the item", |it| count(it.checked.missing)),
            ("items returned twice or out of order", |it| count(it.checked.misplaced)),
            ("checks aborted: a page without a response", |it| count(it.checked.aborted)),
        ],
    );
    let mut text = format!("{writes}\n\n{reads}\n");
    for (outcome, name, _) in story.lines() {
        if let Some(offered) = offered_only(story, outcome) {
            text += &format!(
                "\n{name}: {offered}; its results are for that smaller load. Try fewer --writes.\n"
            );
        }
        if outcome.checked.lookups == 0 {
            text += &format!(
                "\n{name}: no check of its reads finished, so their correctness is unknown.\n"
            );
        }
    }
    text
}

/// A name, and a value of each side.
type Row = (&'static str, fn(&Outcome) -> String);

fn two_sides(story: &Story, what: &str, rows: &[Row]) -> String {
    let mut table = output::table(&[what, "sharded", "one shard"]);
    for (name, value) in rows {
        table.add_row([(*name).to_owned(), value(&story.sharded), value(&story.single)]);
    }
    table.to_string()
}

/// Describes a load that was smaller than requested.
fn offered_only(story: &Story, outcome: &Outcome) -> Option<String> {
    let wanted = story.options.writes;
    let is_less = outcome.offered < FULL_LOAD_SHARE * f64::from(wanted);
    is_less.then(|| {
        let (offered, wanted) = (whole(outcome.offered), count(wanted.into()));
        format!("only {offered} of {wanted} writes a second reached the table")
    })
}

fn milliseconds(outcome: &Outcome, quantile: usize) -> String {
    let value = outcome.latency_ms.and_then(|values| values.get(quantile).copied());
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} ms"))
}

/// Creates the file if it does not exist, so that an error in the path is reported before the demo
/// runs.
pub(super) fn check_writable(path: &Path) -> Result<(), String> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    file.map(drop).map_err(|error| format!("{}: {error}", path.display()))
}

/// Draws the accepted writes, the throttled attempts and the shards over time.
pub(super) fn render_svg(story: &Story, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut svg = String::new();
    draw(story, &mut svg)?;
    std::fs::write(path, svg).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(())
}

fn draw(story: &Story, svg: &mut String) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::with_string(svg, (900, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let (top, bottom) = area.split_vertically(250);
    let (left, right) = bottom.split_horizontally(450);
    draw_writes(story, &top)?;
    let all = story.sharded.seconds.iter().chain(&story.single.seconds);
    let most = all.map(|second| second.throttled).fold(1.0, f64::max) * 1.1;
    let caption = ("throttled attempts a second", 14);
    chart(&left, story, caption, Some("seconds"), most, |second| second.throttled)?;
    let shards = |second: &Second| f64::from(second.shards);
    let widest = story.sharded.seconds.iter().map(shards).fold(1.0, f64::max) * 1.2;
    chart(&right, story, ("shards of the key", 14), Some("seconds"), widest, shards)?;
    area.present()?;
    Ok(())
}

fn draw_writes(
    story: &Story,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn Error>> {
    let seconds = f64::from(story.options.seconds);
    let offered = f64::from(story.options.writes);
    let step = f64::from(story.options.step_at());
    let calm = offered / f64::from(super::CALM_DIVISOR);
    let times = offered / f64::from(story.options.partition_write_units);
    let caption = match offered_only(story, &story.sharded) {
        None => format!(
            "A key's load rises to {times:.0} times the limit of a partition: writes accepted a second"
        ),
        Some(offered) => format!("Writes accepted a second; {offered}"),
    };
    let highest = offered * 1.4;
    let mut chart = chart(area, story, (&caption, 16), None, highest, |second| second.accepted)?;
    let steps = [(0.0, calm), (step, calm), (step, offered), (seconds, offered)];
    chart
        .draw_series(LineSeries::new(steps, WANTED.stroke_width(1)))?
        .label("wanted")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 14, y)], WANTED));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 12))
        .draw()?;
    Ok(())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the plot's own signature")]
fn rounded(value: &f64) -> String {
    format!("{value:.0}")
}

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A chart of a value of both keys over the demo's seconds. Without a description, the chart below
/// labels the seconds.
fn chart<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    story: &Story,
    (caption, size): (&str, u32),
    description: Option<&str>,
    highest: f64,
    value: fn(&Second) -> f64,
) -> Result<Chart<'a>, Box<dyn Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", size))
        .margin(8)
        .x_label_area_size(if description.is_some() { 30 } else { 8 })
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..f64::from(story.options.seconds), 0.0..highest)?;
    chart
        .configure_mesh()
        .x_desc(description.unwrap_or_default())
        .disable_x_mesh()
        .light_line_style(WHITE)
        .y_labels(5)
        .x_label_formatter(&rounded)
        .y_label_formatter(&rounded)
        .draw()?;
    for (outcome, name, colour) in story.lines() {
        let points = outcome.seconds.iter();
        let points = points.map(|second| (second.at, value(second).min(highest)));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
    }
    Ok(chart)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::demo::DemoOptions;
    use crate::demo::check::Checked;

    fn story(offered: f64, checked: Checked) -> Story {
        let outcome = Outcome { offered, checked, ..Outcome::default() };
        let options = DemoOptions { writes: 5_000, ..DemoOptions::parse_from(["demo"]) };
        Story { options, single: Outcome { offered: 5_000.0, ..outcome.clone() }, sharded: outcome }
    }

    #[test]
    fn a_load_that_the_machine_could_not_offer_is_reported() {
        let text = table(&story(1_000.4, Checked::default()));
        let few = "\nsharded: only 1,000 of 5,000 writes a second reached the table";
        assert!(text.contains(few), "{text}");
        assert!(!text.contains("\none shard: only"), "{text}");
        assert!(!table(&story(4_800.0, Checked::default())).contains("reached the table"));
    }

    #[test]
    fn the_report_has_the_results_of_reads_and_their_faults() {
        let sound = Checked { lookups: 2_000, missing: 0, misplaced: 0, aborted: 7 };
        let text = table(&story(5_000.0, sound));
        let row = "| checks aborted: a page without a response          |       7 |         7 |";
        assert!(text.contains(row), "{text}");
        assert!(!text.contains("correctness is unknown"), "{text}");
        assert_eq!(story(5_000.0, sound).faults(), None);
        for wrong in [Checked { missing: 3, ..sound }, Checked { misplaced: 3, ..sound }] {
            let fault = story(5_000.0, wrong).faults().expect("a fault");
            assert!(fault.contains("6 "), "{fault}");
        }
        let empty = table(&story(5_000.0, Checked { aborted: 9, ..Checked::default() }));
        assert!(empty.contains("sharded: no check of its reads finished"), "{empty}");
    }
}
