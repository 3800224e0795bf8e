//! The verdict of a plan: whether to shard the key.

use cli::numbers::{counted, dollars, percent, whole};
use sharding::internal::policy::rules::ScalingPolicy;
use sharding::{PARTITION_READ_UNITS, PARTITION_WRITE_UNITS};

use super::demand::PARTITION;
use super::figures::Plan;
use super::policy::{Enough, MAX_SHARDS, NEGLIGIBLE, enough, throttled};

impl Plan {
    pub(super) fn verdict(&self) -> String {
        if self.unsharded() < NEGLIGIBLE {
            return self.unthrottled();
        }
        let text = if self.demand.write_units_per_second > f64::from(MAX_SHARDS) * PARTITION {
            self.too_much()
        } else if self.fewest.is_none() {
            self.short_of_partitions()
        } else {
            self.shard()
        };
        let reads = self.read_overrun("each shard");
        let also = reads.map(|reads| format!(" Reads also exceed a partition: {reads}"));
        text + &also.unwrap_or_default()
    }

    /// What the key needs, in words.
    fn need(&self) -> String {
        format!("this key needs {}", whole(self.demand.write_units_per_second))
    }

    /// The throttled share of the first attempts with one shard.
    fn unsharded(&self) -> f64 {
        throttled(&self.demand, 1, self.partitions)
    }

    /// The sentences about the reads of the key or a shard; `None` if a partition serves them.
    fn read_overrun(&self, whose: &str) -> Option<String> {
        let (options, page, rate) = (&self.options, &self.page, PARTITION_READ_UNITS as f64);
        let of_page = match self.shards {
            1 => page.units.unsharded,
            shards => page.units.uneven / f64::from(shards),
        };
        let units = f64::from(options.read_rate) * of_page;
        if units <= rate {
            return None;
        }
        let eventually = if options.consistent {
            format!(" Without strong consistency, they take {}.", whole(units / 2.0))
        } else {
            String::new()
        };
        Some(format!(
            "the pages of {whose} take {} read units a second, and one partition serves {}, so {} are throttled.\
             {eventually} This product does not shard for reads by itself; docs/operations.md has what helps (\"A hot \
             read key\").",
            whole(units),
            whole(rate),
            percent(1.0 - rate / units),
        ))
    }

    /// A partition takes the writes.
    fn unthrottled(&self) -> String {
        let is_over = self.demand.write_units_per_second > PARTITION;
        let over = if is_over { " Retries absorb the small excess." } else { "" };
        let (rate, need) = (whole(PARTITION), self.need());
        let writes = format!("one partition takes {rate} write units a second, and {need}.{over}");
        // If the user requested shards, they share the reads.
        let whose = if self.shards == 1 { "the key" } else { "each shard" };
        if let Some(reads) = self.read_overrun(whose) {
            return format!("Reads exceed a partition: {reads} Writes need no change: {writes}");
        }
        format!("Leave it: {writes} This product would keep it at one shard.")
    }

    /// The demand exceeds the most shards that this product gives a key.
    fn too_much(&self) -> String {
        let need = self.need();
        format!(
            "Too much for one key: {need} write units a second. This product gives a key at most {}, which take {}. Divide the items \
             among several keys.",
            counted(MAX_SHARDS, "shard"),
            whole(f64::from(MAX_SHARDS) * PARTITION),
        )
    }

    /// The table has too few partitions for any number of shards.
    fn short_of_partitions(&self) -> String {
        let enough = enough(&self.demand, self.partitions);
        let enough = enough.map_or_else(String::new, |Enough { shards, partitions }| {
            let units = u64::from(partitions) * PARTITION_WRITE_UNITS;
            let added = u64::from(partitions.saturating_sub(self.partitions));
            let usd =
                self.prices.dynamodb_warm_write_units.of((added * PARTITION_WRITE_UNITS) as f64);
            format!(
                " {} on {} would be enough{}: before the peak, raise the table's warm throughput to {} write units a \
                 second (about {}, charged once).",
                counted(shards, "shard"),
                counted(partitions, "partition"),
                raised(shards),
                whole(units as f64),
                dollars(usd),
            )
        });
        format!(
            "Short of partitions: {} {} {} write units a second, and even with {} more than 2 % of {} is \
             throttled.{enough}",
            counted(self.partitions, "partition"),
            if self.partitions == 1 { "gives" } else { "give" },
            whole(f64::from(self.partitions) * PARTITION),
            counted(MAX_SHARDS, "shard"),
            whole(self.demand.write_units_per_second),
        )
    }

    fn shard(&self) -> String {
        let (rate, need) = (whole(PARTITION), self.need());
        let more = self.fewest.filter(|fewest| *fewest > self.shards);
        format!(
            "Shard it: {need} write units a second, one partition takes {rate}, so {} of the writes are throttled. \
             With {} it is {}{}.",
            percent(self.unsharded()),
            counted(self.shards, "shard"),
            percent(self.throttled),
            more.map_or_else(String::new, |fewest| {
                format!(", and under 2 % with {fewest}{}", raised(fewest))
            }),
        )
    }
}

/// The condition for this number of shards, if it is above the default of MAX_SHARDS.
pub(super) fn raised(shards: u32) -> String {
    let most = ScalingPolicy::default().max_shards.get();
    if shards > most { format!(" (if MAX_SHARDS is raised: it is {most})") } else { String::new() }
}
