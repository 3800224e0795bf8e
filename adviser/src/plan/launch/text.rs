//! The launch plan as text.

use std::fmt;

use super::{LaunchPlan, Warming};
use crate::plan::prices::Evidence;
use crate::plan::tables::table;
use cli::numbers::{counted, decimal, dollars, percent, whole};

impl fmt::Display for LaunchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = if self.is_new_table { "from a new table" } else { "from the given partitions" };
        writeln!(f, "Before launch day, {} ({now}):\n", self.at)?;
        self.write_warming(f)?;
        self.write_choices(f)?;
        self.write_steps(f)
    }
}

impl LaunchPlan {
    fn write_warming(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = table(&[
            "warm throughput, units/s",
            "writes now",
            "writes then",
            "reads now",
            "reads then",
            "once",
        ]);
        for Warming { index, from, to, usd } in &self.warming {
            let name = index.as_deref().unwrap_or("the table").to_owned();
            let units = [from.write_units, to.write_units, from.read_units, to.read_units];
            table.add_row(
                [name]
                    .into_iter()
                    .chain(units.map(|units| whole(units as f64)))
                    .chain([dollars(*usd)]),
            );
        }
        writeln!(f, "{table}")?;
        let unsure = match self.price_of_warming {
            Evidence::Transcript => "",
            Evidence::ThirdParty => " That price is not verified, see adviser/prices.json.",
        };
        writeln!(
            f,
            "The demand of the table's other keys comes on top. Added units are charged once and cannot be removed \
             again.{unsure}\n"
        )
    }

    fn write_choices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            "partitions",
            "writes then",
            "shards of a key",
            "throttled",
            "units of a page",
            "once",
            "an hour, crate",
            "functions",
        ];
        let mut table = table(&names);
        for choice in &self.choices {
            let mark = if *choice == self.chosen { "> " } else { "" };
            table.add_row([
                format!("{mark}{}", whole(f64::from(choice.partitions))),
                whole(choice.warm.write_units as f64),
                whole(f64::from(choice.shards_per_key)),
                percent(choice.throttled),
                decimal(choice.page_read_units),
                dollars(choice.warming_usd),
                dollars(choice.hour.own_service_usd),
                dollars(choice.hour.functions_usd),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "On more partitions, a key needs fewer shards and pages cost less: choose with --warm-write-units. The \
             shards are those of the policy, with a reserve, because a single key may be unlucky.\n"
        )
    }

    fn write_steps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return writeln!(f, "Nothing to prepare: the table and one shard serve the demand.");
        }
        if self.is_late {
            writeln!(
                f,
                "There is less than an hour left. The first minutes may be throttled while the table warms."
            )?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            let by =
                step.by.as_deref().map_or_else(|| "At once".to_owned(), |by| format!("By {by}"));
            writeln!(f, "{}. {by}. {}", number + 1, step.what)?;
            for command in &step.commands {
                writeln!(f, "     {command}")?;
            }
            for setting in &step.settings {
                writeln!(f, "     {setting}")?;
            }
        }
        let shards = counted(self.chosen.shards_per_key, "shard");
        writeln!(
            f,
            "MAIN-TABLE and SHARD-SCALER are the outputs MainTableName and ShardScalerFunctionName of the stack; KEY \
             is the partition key that gets {shards}."
        )
    }
}
