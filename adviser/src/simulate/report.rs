//! Reports the outcomes as a table and as CSV.

use std::error::Error;
use std::path::Path;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use super::metadata::MetadataLoad;
use super::outcome::Outcome;

/// Formats the outcomes as a table, with one row for each.
///
/// *metadata partition* is the load of the busiest partition of the metadata table over the run, as
/// a share of its 3,000 read units per second. The brackets have the worst second of any partition,
/// and the name of that partition. *no view* is the share of the time in which instances had no
/// view, so requests waited.
#[must_use]
pub fn table(outcomes: &[Outcome]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "demand units/s",
        "partitions",
        "policy",
        "relieved after s",
        "accepted %",
        "final width",
        "metadata writes (tried)",
        "page copies",
        "metadata partition % (worst second)",
        "no view %",
    ]);
    for outcome in outcomes {
        let scenario = &outcome.scenario;
        table.add_row([
            scenario.demand.to_string(),
            scenario.partitions.to_string(),
            scenario.policy.to_owned(),
            outcome
                .relieved_after
                .map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.0}")),
            format!("{:.1}", outcome.accepted * 100.0),
            outcome.final_width.to_string(),
            format!("{} ({})", outcome.updates_made, outcome.updates_tried),
            of_metadata(outcome, |load| load.copies.to_string()),
            of_metadata(outcome, |load| {
                format!(
                    "{:.1} ({:.0}, {})",
                    load.mean * 100.0,
                    load.worst * 100.0,
                    load.worst_partition
                )
            }),
            of_metadata(outcome, |_| format!("{:.1}", outcome.without_view * 100.0)),
        ]);
    }
    for column in [0, 1, 3, 4, 5, 6, 7, 8, 9] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// A cell about the metadata table; `-` if the run does not use it.
fn of_metadata(outcome: &Outcome, cell: impl Fn(&MetadataLoad) -> String) -> String {
    outcome.metadata.as_ref().map_or_else(|| "-".to_owned(), cell)
}

/// Writes every second of every run to a CSV file.
///
/// # Errors
/// The file cannot be written.
pub fn write_csv(outcomes: &[Outcome], path: &Path) -> Result<(), Box<dyn Error>> {
    let mut writer = csv::Writer::from_path(path)?;
    writer.write_record([
        "demand",
        "partitions",
        "policy",
        "second",
        "throttled",
        "width",
        "metadata_partition",
    ])?;
    for outcome in outcomes {
        let scenario = &outcome.scenario;
        for (second, (throttled, width)) in outcome.by_second.iter().enumerate() {
            let busiest = outcome.metadata.as_ref().and_then(|load| load.by_second.get(second));
            writer.write_record([
                scenario.demand.to_string(),
                scenario.partitions.to_string(),
                scenario.policy.to_owned(),
                second.to_string(),
                format!("{throttled:.4}"),
                width.to_string(),
                busiest.map_or_else(String::new, |share| format!("{share:.4}")),
            ])?;
        }
    }
    writer.flush()?;
    Ok(())
}
