//! The advice as an SVG picture.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use indicatif::HumanDuration;
use plotters::coord::Shift;
use plotters::coord::types::{RangedCoordf64, RangedCoordi64};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::advice::Advice;
use super::over_time::{OverTime, RateSeries};
use super::shown::{one_line, plain};
use super::time::rfc3339;
use cli::numbers::{count, counted, percent};
use sharding::PARTITION_WRITE_UNITS;

const WIDTH: u32 = 960;
const SHARES_HEIGHT: u32 = 380;
const TOTAL_HEIGHT: u32 = 190;
const KEYS_HEIGHT: u32 = 300;
const NAMES_WIDTH: i32 = 320;
const LEGEND_WIDTH: i32 = 240;
const LEGEND_CHARACTERS: usize = 30;
const GREY: RGBColor = RGBColor(120, 120, 120);
const LIGHT: RGBColor = RGBColor(205, 205, 205);
const BAR: RGBColor = RGBColor(0, 114, 178);
const LIMIT: RGBColor = RGBColor(213, 94, 0);
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the shares of the hottest keys as bars and, if times are given, the busiest seconds over
/// time.
pub(crate) fn render_svg(advice: &Advice, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut svg = String::new();
    draw(advice, &mut svg)?;
    Ok(std::fs::write(path, svg).map_err(|error| format!("{}: {error}", path.display()))?)
}

fn draw(advice: &Advice, svg: &mut String) -> Result<(), Box<dyn Error>> {
    let over_time = advice.over_time.as_ref();
    let height = SHARES_HEIGHT + over_time.map_or(0, |_| TOTAL_HEIGHT + KEYS_HEIGHT);
    let area = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let (shares, below) = area.split_vertically(SHARES_HEIGHT);
    draw_shares(advice, &shares)?;
    if let Some(over_time) = over_time {
        let (total, keys) = below.split_vertically(TOTAL_HEIGHT);
        draw_total(over_time, &total)?;
        draw_keys(over_time, &keys)?;
    }
    area.present()?;
    Ok(())
}

fn draw_shares(advice: &Advice, area: &Area<'_>) -> Result<(), Box<dyn Error>> {
    let (keys, drawn) = (advice.totals.ranking.distinct, advice.hottest_keys.len() as u64);
    let units = counted(advice.totals.units, "write unit");
    let of = counted(keys, "partition key");
    title(area, &format!("The hottest of {of}, by share of {units}"))?;
    let bars = advice.hottest_keys.iter().map(|key| (plain(&key.partition_key), key.share, true));
    let others = keys.saturating_sub(drawn);
    // The row of the other keys has only the number, because its bar would dwarf all others.
    let share_of_others = 1.0 - advice.ten_hottest_share();
    let rest = (format!("{} together", counted(others, "other key")), share_of_others, false);
    let widest = advice.hottest_share().max(f64::MIN_POSITIVE);
    let room = f64::from(WIDTH) - f64::from(NAMES_WIDTH) - 90.0;
    for (row, (name, share, has_bar)) in (0..).zip(bars.chain((others > 0).then_some(rest))) {
        let (top, middle) = (48 + row * 29, 59 + row * 29);
        let length = if has_bar { (share / widest * room) as i32 } else { 0 };
        let end = NAMES_WIDTH + length;
        area.draw(&Rectangle::new([(NAMES_WIDTH, top), (end, top + 22)], BAR.filled()))?;
        area.draw(&Text::new(name, (NAMES_WIDTH - 8, middle), label(HPos::Right)))?;
        let share = percent(share.max(0.0));
        area.draw(&Text::new(share, (end + 8, middle), label(HPos::Left)))?;
    }
    Ok(())
}

fn draw_total(over_time: &OverTime, area: &Area<'_>) -> Result<(), Box<dyn Error>> {
    title(area, &format!("Write units a second of all keys together, {}", bucket(over_time)))?;
    let Some(total) = over_time.series.first() else { return Ok(()) };
    let mut chart = chart(over_time, area, total.highest() as f64)?;
    chart.draw_series(AreaSeries::new(steps(total, over_time), 0.0, GREY.mix(0.6)))?;
    Ok(())
}

fn draw_keys(over_time: &OverTime, area: &Area<'_>) -> Result<(), Box<dyn Error>> {
    title(area, &format!("The highest peaks among the hottest keys, {}", bucket(over_time)))?;
    let limit = PARTITION_WRITE_UNITS as f64;
    let keys = || over_time.series.iter().skip(1).zip(COLOURS);
    let highest = keys().map(|(series, _)| series.highest()).max().unwrap_or(0) as f64;
    // The limit is drawn only if the peaks are near enough.
    let is_near = highest * 4.0 >= limit;
    let mut chart = chart(over_time, area, if is_near { highest.max(limit) } else { highest })?;
    // The highest series is drawn last, on top of the others.
    for (series, colour) in keys().collect::<Vec<_>>().into_iter().rev() {
        chart.draw_series(LineSeries::new(steps(series, over_time), colour.stroke_width(1)))?;
    }
    let limit_name = format!("limit of a partition: {}", count(PARTITION_WRITE_UNITS));
    if is_near {
        let line = [(over_time.from, limit), (last(over_time), limit)];
        chart.draw_series(LineSeries::new(line, LIMIT.stroke_width(2)))?;
    }
    let names = keys().map(|(series, colour)| {
        let name = plain(series.partition_key.as_deref().unwrap_or_default());
        (one_line(&name, LEGEND_CHARACTERS), colour)
    });
    let left = i32::try_from(WIDTH)? - LEGEND_WIDTH + 12;
    for (row, (name, colour)) in (0..).zip(names.chain(is_near.then_some((limit_name, LIMIT)))) {
        let middle = 60 + row * 22;
        area.draw(&Rectangle::new([(left, middle - 5), (left + 12, middle + 5)], colour.filled()))?;
        area.draw(&Text::new(name, (left + 20, middle), label(HPos::Left)))?;
    }
    Ok(())
}

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordi64, RangedCoordf64>>;

/// Axes of time and write units, with room for a legend.
fn chart<'a>(
    over_time: &OverTime,
    area: &Area<'a>,
    highest: f64,
) -> Result<Chart<'a>, Box<dyn Error>> {
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_top(40)
        .margin_right(LEGEND_WIDTH)
        .x_label_area_size(30)
        .y_label_area_size(64)
        .build_cartesian_2d(over_time.from..last(over_time), 0.0..highest.max(1.0) * 1.08)?;
    let days = over_time.to - over_time.from >= 3 * 86_400;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(LIGHT.mix(0.6))
        .axis_style(GREY)
        .x_labels(6)
        .x_label_formatter(&|second| {
            let at = rfc3339(*second);
            let (day, time) = at.split_once('T').unwrap_or((&at, ""));
            if days {
                day.to_owned()
            } else {
                format!("{} {}", day.get(5..).unwrap_or(day), time.trim_end_matches('Z'))
            }
        })
        .y_labels(5)
        .y_label_formatter(&|units| count(units.round() as u64))
        .label_style(("sans-serif", 12))
        .draw()?;
    Ok(chart)
}

/// The points of a step for each bucket, from its first second to its last.
fn steps(series: &RateSeries, over_time: &OverTime) -> Vec<(i64, f64)> {
    let width = i64::try_from(over_time.bucket_seconds).unwrap_or(i64::MAX);
    let last = last(over_time);
    let both = |(from, units): &(i64, u64)| {
        let units = *units as f64;
        [((*from).max(over_time.from), units), (from.saturating_add(width).min(last), units)]
    };
    series.peaks.iter().flat_map(both).collect()
}

fn last(over_time: &OverTime) -> i64 {
    over_time.to.max(over_time.from + 1)
}

fn title(area: &Area<'_>, text: &str) -> Result<(), Box<dyn Error>> {
    let style = ("sans-serif", 17).into_font().color(&BLACK);
    area.draw(&Text::new(text.to_owned(), (16, 14), style))?;
    Ok(())
}

fn label(side: HPos) -> TextStyle<'static> {
    ("sans-serif", 13).into_font().color(&BLACK).pos(Pos::new(side, VPos::Center))
}

fn bucket(over_time: &OverTime) -> String {
    match over_time.bucket_seconds {
        1 => "second by second".to_owned(),
        seconds => {
            let bucket = HumanDuration(Duration::from_secs(seconds));
            format!("the busiest second of each {bucket}")
        }
    }
}
