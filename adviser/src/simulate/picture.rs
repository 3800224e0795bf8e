//! Draws the outcomes.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::outcome::Outcome;

/// The seconds of a run that the picture shows.
const SECONDS: usize = 60;
/// The colours of the policies.
const COLOURS: [RGBColor; 4] = [
    RGBColor(120, 120, 120),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
];

/// Draws the share of new writes that was throttled or waited in the first minute, with one panel
/// for each demand and table, and one line for each policy.
///
/// # Errors
/// The file cannot be drawn.
pub fn render_svg(outcomes: &[Outcome], path: &Path) -> Result<(), Box<dyn Error>> {
    let panels = panels(outcomes);
    let columns = panels.len().clamp(1, 3);
    let rows = panels.len().div_ceil(columns).max(1);
    let size = (u32::try_from(columns * 380)?, u32::try_from(rows * 260)?);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    for (panel, area) in panels.iter().zip(area.split_evenly((rows, columns))) {
        draw_panel(panel, &area)?;
    }
    area.present()?;
    Ok(())
}

/// Groups the outcomes by demand and table.
fn panels(outcomes: &[Outcome]) -> Vec<Vec<&Outcome>> {
    let mut panels: Vec<Vec<&Outcome>> = Vec::new();
    for outcome in outcomes {
        let same = |panel: &&mut Vec<&Outcome>| {
            panel.first().is_some_and(|first| {
                (first.scenario.demand, first.scenario.partitions)
                    == (outcome.scenario.demand, outcome.scenario.partitions)
            })
        };
        match panels.iter_mut().find(same) {
            Some(panel) => panel.push(outcome),
            None => panels.push(vec![outcome]),
        }
    }
    panels
}

fn draw_panel(
    panel: &[&Outcome],
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn Error>> {
    let Some(first) = panel.first() else { return Ok(()) };
    let caption =
        format!("{} units/s on {} partitions", first.scenario.demand, first.scenario.partitions);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(32)
        .y_label_area_size(42)
        .build_cartesian_2d(0..SECONDS, 0.0..1.0)?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc("new writes not taken at once")
        .light_line_style(WHITE)
        .draw()?;
    for (outcome, colour) in panel.iter().zip(COLOURS) {
        let points = outcome
            .by_second
            .iter()
            .take(SECONDS)
            .enumerate()
            .map(|(second, (throttled, _))| (second, *throttled));
        let line = chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        line.label(outcome.scenario.policy)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 11))
        .draw()?;
    Ok(())
}
