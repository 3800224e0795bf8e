//! The verdict of a plan: whether to shard the key.

use serde::Serialize;
use sharding::PARTITION_WRITE_UNITS;
use sharding::internal::policy::rules::ScalingPolicy;

use super::case::Case;
use super::policy::{self, Enough};
use super::throttling::{MOST_SHARDS, NEGLIGIBLE, throttled};
use cli::numbers::{counted, dollars, percent, whole};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum VerdictKind {
    /// One partition serves the demand. Leave the key as it is.
    Leave,
    Shard,
    /// The table has too few partitions for any number of shards. Add partitions first, and then
    /// shard the key.
    ShortOfPartitions,
    /// The demand exceeds the most shards that this product gives a key.
    TooMuch,
    /// One partition serves the writes, but not the reads.
    ReadsOverrun,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) kind: VerdictKind,
    pub(crate) text: String,
}

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    let (kind, text) = if case.unsharded() < NEGLIGIBLE {
        unthrottled(case)
    } else if case.demand.units_per_key() > f64::from(MOST_SHARDS) * case.rate() {
        (VerdictKind::TooMuch, too_much(case))
    } else if case.shards.fewest.is_none() {
        (VerdictKind::ShortOfPartitions, short_of_partitions(case))
    } else {
        (VerdictKind::Shard, shard(case))
    };
    let is_sharded = !matches!(kind, VerdictKind::Leave | VerdictKind::ReadsOverrun);
    let also = case.read_overrun("each shard").filter(|_| is_sharded);
    let also = also.map(|reads| format!(" Reads also exceed a partition: {reads}"));
    Verdict { kind, text: text + &also.unwrap_or_default() }
}

impl Case<'_> {
    /// The write units per second of a partition.
    fn rate(&self) -> f64 {
        self.partitions.write_units
    }

    /// What a key needs, in words.
    fn need(&self) -> String {
        let whose =
            if self.demand.keys == 1 { "this key needs" } else { "each of these keys needs" };
        format!("{whose} {}", whole(self.demand.units_per_key()))
    }

    /// The throttled share of the first attempts with one shard.
    fn unsharded(&self) -> f64 {
        throttled(self.demand, 1, self.partitions.count)
    }

    /// The sentences about the reads of a key or a shard; `None` if a partition serves them.
    fn read_overrun(&self, whose: &str) -> Option<String> {
        let (options, page, rate) = (self.options, self.page, self.partitions.read_units);
        let of_page = match page.shards {
            1 => page.units.unsharded,
            shards => page.units.uneven / f64::from(shards),
        };
        let units = f64::from(options.read_rate) / f64::from(options.keys) * of_page;
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
}

fn unthrottled(case: &Case<'_>) -> (VerdictKind, String) {
    let is_over = case.demand.units_per_key() > case.rate();
    let over = if is_over { " Retries absorb the small excess." } else { "" };
    let (rate, need) = (whole(case.rate()), case.need());
    let writes = format!("one partition takes {rate} write units a second, and {need}.{over}");
    let whose = match (case.shards.judged, case.demand.keys) {
        // If the user requested shards, they share the reads.
        (2.., _) => "each shard",
        (_, 1) => "the key",
        (_, _) => "each key",
    };
    if let Some(reads) = case.read_overrun(whose) {
        let text = format!("Reads exceed a partition: {reads} Writes need no change: {writes}");
        return (VerdictKind::ReadsOverrun, text);
    }
    let text = format!("Leave it: {writes} This product would keep it at one shard.");
    (VerdictKind::Leave, text)
}

fn too_much(case: &Case<'_>) -> String {
    let need = case.need();
    format!(
        "Too much for one key: {need} write units a second. This product gives a key at most {}, which take {}. Divide the items \
         among several keys.",
        counted(MOST_SHARDS, "shard"),
        whole(f64::from(MOST_SHARDS) * case.rate()),
    )
}

fn short_of_partitions(case: &Case<'_>) -> String {
    let enough = policy::enough(case.demand, case.partitions.count);
    let enough = enough.map_or_else(String::new, |Enough { shards, partitions }| {
        let units = u64::from(partitions) * PARTITION_WRITE_UNITS;
        let added = u64::from(partitions.saturating_sub(case.partitions.count));
        let usd =
            case.prices.dynamodb_warm_write_units.of((added * PARTITION_WRITE_UNITS) as f64);
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
        "Short of partitions: {} {} {} write units a second, and even with {} of each key more than 2 % of \
         {} is throttled.{enough}",
        counted(case.partitions.count, "partition"),
        if case.partitions.count == 1 { "gives" } else { "give" },
        whole(f64::from(case.partitions.count) * case.rate()),
        counted(MOST_SHARDS, "shard"),
        whole(case.demand.write_units_per_second),
    )
}

fn shard(case: &Case<'_>) -> String {
    let (rate, need) = (whole(case.rate()), case.need());
    let is_over = case.demand.units_per_key() > case.rate();
    let why = if is_over { ", so" } else { ", but keys share partitions:" };
    let more = case.shards.fewest.filter(|fewest| *fewest > case.shards.judged);
    format!(
        "Shard it: {need} write units a second, one partition takes {rate}{why} {} of the writes are throttled. \
         With {} it is {}{}.",
        percent(case.unsharded()),
        counted(case.shards.judged, "shard"),
        percent(case.shards.throttled),
        more.map_or_else(String::new, |fewest| {
            format!(", and under 2 % with {fewest}{}", raised(fewest))
        }),
    )
}

/// The condition for this number of shards, if it is above the default of MAX_SHARDS.
pub(super) fn raised(shards: u32) -> String {
    let most = ScalingPolicy::default().max_shards.get();
    if shards > most { format!(" (if MAX_SHARDS is raised: it is {most})") } else { String::new() }
}
