//! The result of the demo, as a table and as a chart.

use std::error::Error;
use std::fs::OpenOptions;
use std::path::Path;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use indicatif::HumanCount;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::side::FULL_LOAD_SHARE;
use super::{Checked, Client, Outcome, Second, Story};

const OURS: RGBColor = RGBColor(0, 114, 178);
const THEIRS: RGBColor = RGBColor(213, 94, 0);
const WANTED: RGBColor = RGBColor(150, 150, 150);

/// The two keys side by side.
#[must_use]
pub fn table(story: &Story) -> String {
    let mut table = two_sides("since the load rose");
    let mut row = |name: &str, value: fn(&Outcome) -> String| {
        table.add_row([name.to_owned(), value(&story.sharded), value(&story.single)]);
    };
    row("less than 1 % throttled after", |outcome| {
        outcome
            .relieved_after
            .map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.0} s"))
    });
    row("writes sent", |outcome| HumanCount(outcome.sent).to_string());
    row("writes stored", |outcome| HumanCount(outcome.stored).to_string());
    row("writes rejected, nothing stored", |outcome| HumanCount(outcome.failed).to_string());
    row("writes without a response at the end", |outcome| HumanCount(outcome.pending).to_string());
    row("throttled attempts", |outcome| HumanCount(outcome.throttled).to_string());
    row("latency of a write, last third: median", |outcome| milliseconds(outcome, 0));
    row("99th percentile", |outcome| milliseconds(outcome, 1));
    row("shards at the end", |outcome| {
        outcome.seconds.last().map_or(1, |second| second.shards).to_string()
    });
    let mut text = numbers_to_the_right(table) + "\n\n" + &reads(story) + "\n";
    for (name, outcome) in [("sharded", &story.sharded), ("one shard", &story.single)] {
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

/// The results of the read checks, which run from the first second on.
fn reads(story: &Story) -> String {
    let mut table = two_sides("reads, from second 0 on");
    let mut row = |name: &str, value: fn(&Checked) -> u64| {
        let count = |outcome: &Outcome| HumanCount(value(&outcome.checked)).to_string();
        table.add_row([name.to_owned(), count(&story.sharded), count(&story.single)]);
    };
    row("look-ups of acknowledged items, each several times", |checked| checked.lookups);
    row("look-ups that did not find the item", |checked| checked.missing);
    row("items returned twice or out of order", |checked| checked.misplaced);
    row("checks aborted: a page without a response", |checked| checked.aborted);
    numbers_to_the_right(table)
}

fn two_sides(what: &str) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([what, "sharded", "one shard"]);
    table
}

fn numbers_to_the_right(mut table: Table) -> String {
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// Describes a load that was smaller than requested.
fn offered_only(story: &Story, outcome: &Outcome) -> Option<String> {
    let wanted = story.options.writes;
    let is_less = outcome.offered < FULL_LOAD_SHARE * f64::from(wanted);
    let offered = HumanCount(outcome.offered.round() as u64);
    is_less.then(|| {
        let who = match story.options.client {
            Client::Api => "the machine",
            Client::Boto3 | Client::Crate => "the program, which waits for responses,",
        };
        format!("{who} could offer only {offered} of {} writes a second", HumanCount(wanted.into()))
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
///
/// # Errors
/// Fails if the file cannot be written.
pub fn render_svg(story: &Story, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut svg = String::new();
    draw(story, &mut svg)?;
    std::fs::write(path, svg).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(())
}

fn draw(story: &Story, svg: &mut String) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::with_string(svg, (900, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let (top, bottom) = area.split_vertically(250);
    draw_writes(story, &top)?;
    let seconds = f64::from(story.options.seconds);
    let (left, right) = bottom.split_horizontally(450);
    let throttled = |second: &Second| second.throttled;
    let most = [&story.sharded, &story.single]
        .into_iter()
        .flat_map(|outcome| outcome.seconds.iter().map(throttled));
    let most = most.fold(1.0, f64::max) * 1.1;
    panel(
        &left,
        "throttled attempts a second",
        seconds,
        most,
        &[(&story.sharded, OURS, throttled), (&story.single, THEIRS, throttled)],
    )?;
    let shards = |second: &Second| f64::from(second.shards);
    let widest = story.sharded.seconds.iter().map(shards).fold(1.0, f64::max) * 1.2;
    panel(
        &right,
        "shards of the key",
        seconds,
        widest,
        &[(&story.sharded, OURS, shards), (&story.single, THEIRS, shards)],
    )?;
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
    let mut chart = axes(area, (&caption, 16), None, seconds, highest)?;
    let steps = [(0.0, calm), (step, calm), (step, offered), (seconds, offered)];
    chart
        .draw_series(LineSeries::new(steps, WANTED.stroke_width(1)))?
        .label("wanted")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 14, y)], WANTED));
    for (outcome, name, colour) in
        [(&story.sharded, "sharded", OURS), (&story.single, "one shard", THEIRS)]
    {
        let points = outcome.seconds.iter().map(|second| (second.at, second.accepted.min(highest)));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 12))
        .draw()?;
    Ok(())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the plot's own signature")]
fn whole(value: &f64) -> String {
    format!("{value:.0}")
}

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A chart over the demo's seconds. Without a description, the chart below labels the seconds.
fn axes<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    (caption, size): (&str, u32),
    description: Option<&str>,
    seconds: f64,
    highest: f64,
) -> Result<Chart<'a>, Box<dyn Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", size))
        .margin(8)
        .x_label_area_size(if description.is_some() { 30 } else { 8 })
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..seconds, 0.0..highest)?;
    chart
        .configure_mesh()
        .x_desc(description.unwrap_or_default())
        .disable_x_mesh()
        .light_line_style(WHITE)
        .y_labels(5)
        .x_label_formatter(&whole)
        .y_label_formatter(&whole)
        .draw()?;
    Ok(chart)
}

type Line<'a> = (&'a Outcome, RGBColor, fn(&Second) -> f64);

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    caption: &str,
    seconds: f64,
    highest: f64,
    lines: &[Line<'_>],
) -> Result<(), Box<dyn Error>> {
    let mut chart = axes(area, (caption, 14), Some("seconds"), seconds, highest)?;
    for (outcome, colour, value) in lines {
        let points = outcome.seconds.iter().map(|second| (second.at, value(second)));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::demo::DemoOptions;

    fn story(offered: f64, checked: Checked) -> Story {
        let outcome = Outcome {
            seconds: Vec::new(),
            relieved_after: None,
            sent: 17_000,
            offered,
            stored: 16_000,
            failed: 0,
            pending: 1_000,
            throttled: 0,
            latency_ms: None,
            checked,
        };
        let options = DemoOptions { writes: 5_000, ..DemoOptions::parse_from(["demo"]) };
        Story { options, single: Outcome { offered: 5_000.0, ..outcome.clone() }, sharded: outcome }
    }

    #[test]
    fn a_load_that_the_machine_could_not_offer_is_reported() {
        let text = table(&story(1_000.4, Checked::default()));
        let few = "\nsharded: the machine could offer only 1,000 of 5,000 writes a second";
        assert!(text.contains(few), "{text}");
        assert!(!text.contains("\none shard: the machine"), "{text}");
        assert!(!table(&story(4_800.0, Checked::default())).contains("could offer"));
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
