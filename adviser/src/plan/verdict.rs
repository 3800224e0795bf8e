//! The verdict of a plan: whether to shard the key.

use serde::Serialize;
use sharding::PARTITION_WRITE_UNITS;
use sharding::internal::policy::rules::ScalingPolicy;

use super::demand::Demand;
use super::figures::ShardChoice;
use super::partitions::TablePartitions;
use super::policy::Enough;
use super::throttling::{MOST_SHARDS, NEGLIGIBLE};
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

pub(super) struct Case<'a> {
    pub(super) demand: &'a Demand,
    pub(super) partitions: &'a TablePartitions,
    pub(super) shards: &'a ShardChoice,
    /// The throttled share of the first attempts with one shard.
    pub(super) unsharded: f64,
    /// Partitions and shards that would be enough, on a table with more partitions.
    pub(super) enough: Option<Enough>,
    /// The one-time price of a write unit of warm throughput in dollars.
    pub(super) usd_per_warm_unit: f64,
    pub(super) reads: &'a Reads,
}

/// The read units that pages take from one partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reads {
    /// Read units per second of one of the judged shards.
    pub(super) of_shard: f64,
    pub(super) rate: f64,
    pub(super) consistent: bool,
}

impl Reads {
    /// The sentences about reads; `None` if a partition serves them.
    fn overrun(&self, whose: &str) -> Option<String> {
        let units = self.of_shard;
        if units <= self.rate {
            return None;
        }
        let rate = whole(self.rate);
        let eventually = if self.consistent {
            format!(" Without strong consistency, they take {}.", whole(units / 2.0))
        } else {
            String::new()
        };
        Some(format!(
            "the pages of {whose} take {} read units a second, and one partition serves {rate}, so {} are throttled.\
             {eventually} This product does not shard for reads by itself; docs/operations.md has what helps (\"A hot \
             read key\").",
            whole(units),
            percent(1.0 - self.rate / units),
        ))
    }
}

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    let (kind, text) = if case.unsharded < NEGLIGIBLE {
        unthrottled(case)
    } else if case.demand.units_per_key() > f64::from(MOST_SHARDS) * case.rate() {
        (VerdictKind::TooMuch, too_much(case))
    } else if case.shards.fewest.is_none() {
        (VerdictKind::ShortOfPartitions, short_of_partitions(case))
    } else {
        (VerdictKind::Shard, shard(case))
    };
    let is_sharded = !matches!(kind, VerdictKind::Leave | VerdictKind::ReadsOverrun);
    let also = case.reads.overrun("each shard").filter(|_| is_sharded);
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
    if let Some(reads) = case.reads.overrun(whose) {
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
    let enough = case.enough.map_or_else(String::new, |Enough { shards, partitions }| {
        let units = u64::from(partitions) * PARTITION_WRITE_UNITS;
        let added = partitions.saturating_sub(case.partitions.count);
        let usd = f64::from(added) * PARTITION_WRITE_UNITS as f64 * case.usd_per_warm_unit;
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
        percent(case.unsharded),
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
