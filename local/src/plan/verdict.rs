//! Whether to shard at all.

use serde::Serialize;

use super::demand::Demand;
use super::heat::{SortKeyOrder, SplitForHeat};
use super::text::{counted, percent, whole};
use super::throttling::{MOST_SHARDS, NEGLIGIBLE};

/// The advice in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// One partition bears it: leave it.
    Leave,
    /// DynamoDB's own split bears it after a while: decide whether that is soon enough.
    SplitForHeat,
    /// Shard.
    Shard,
    /// Shard, and give the table partitions first: on these, no number of shards suffices.
    ShortOfPartitions,
    /// More than the most shards that this product gives a key.
    TooMuch,
}

/// The advice, with its reasons.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// In a word.
    pub kind: VerdictKind,
    /// In sentences.
    pub text: String,
    /// What DynamoDB's split for heat does, in sentences.
    pub split_for_heat: String,
}

/// What there is to judge.
pub(super) struct Case<'a> {
    pub(super) demand: &'a Demand,
    /// Write units a second that one partition gives.
    pub(super) rate: f64,
    pub(super) partitions: u32,
    /// The throttled part of the first attempts with one shard.
    pub(super) unsharded: f64,
    /// Shards that are judged, and what is throttled with them.
    pub(super) shards: u32,
    pub(super) throttled: f64,
    pub(super) fewest_shards: Option<u32>,
    /// So many shards would do on so many partitions.
    pub(super) would_do: Option<(u32, u32)>,
    pub(super) heat: &'a SplitForHeat,
}

/// Judges.
pub(super) fn judge(case: &Case<'_>) -> Verdict {
    let of_key = format!("{} write units a second", whole(case.demand.units_per_key()));
    let rate = whole(case.rate);
    let whose = if case.demand.keys == 1 { "this key needs" } else { "each of these keys needs" };
    let (kind, text) = if case.unsharded < NEGLIGIBLE {
        let over = if case.demand.units_per_key() > case.rate {
            " Repetitions carry the little that is too much."
        } else {
            ""
        };
        let text = format!(
            "Leave it: one partition takes {rate} write units a second, and {whose} {}.{over} This product would keep it at one shard.",
            whole(case.demand.units_per_key()),
        );
        (VerdictKind::Leave, text)
    } else if case.demand.units_per_key() > f64::from(MOST_SHARDS) * case.rate {
        let text = format!(
            "Too much for one key: {whose} {of_key}, and the {} that this product gives a key at most take {}. \
             Part the key's items over several keys.",
            counted(MOST_SHARDS, "shard"),
            whole(f64::from(MOST_SHARDS) * case.rate),
        );
        (VerdictKind::TooMuch, text)
    } else if case.fewest_shards.is_none() {
        let would_do = case.would_do.map_or_else(String::new, |(shards, partitions)| {
            format!(" {} on {} would do.", counted(shards, "shard"), counted(partitions, "partition"))
        });
        let text = format!(
            "Short of partitions: {} give {} write units a second, and even with {} of each key more than 1 % of \
             {} is throttled.{would_do} \
             Before the peak, give the table a warm throughput of {rate} write units for each partition.",
            counted(case.partitions, "partition"),
            whole(f64::from(case.partitions) * case.rate),
            counted(MOST_SHARDS, "shard"),
            whole(case.demand.write_units_per_second),
        );
        (VerdictKind::ShortOfPartitions, text)
    } else if let (SortKeyOrder::Scattered, Some(after)) = (case.heat.sort_key_order, case.heat.relieved_after_seconds)
    {
        let text = format!(
            "DynamoDB's own split would do after about {} minutes; until then {} of the writes are throttled. Shard the key if that is too \
             late, if the peak is shorter than that, or if the table has a local secondary index, which forbids the split.",
            minutes(after),
            percent(case.heat.throttled_in_five_minutes),
        );
        (VerdictKind::SplitForHeat, text)
    } else {
        let text = format!(
            "Shard it: {whose} {of_key}, one partition takes {rate}, so {} of the writes are throttled. With {} it is {}{}.",
            percent(case.unsharded),
            counted(case.shards, "shard"),
            percent(case.throttled),
            case.fewest_shards
                .filter(|fewest| *fewest > case.shards)
                .map_or_else(String::new, |fewest| format!(", and under 1 % with {fewest}")),
        );
        (VerdictKind::Shard, text)
    };
    Verdict { kind, text, split_for_heat: heat(case) }
}

fn heat(case: &Case<'_>) -> String {
    let heat = case.heat;
    if case.unsharded < NEGLIGIBLE {
        return "Nothing is hot enough to split.".to_owned();
    }
    let begins = format!(
        "A partition splits only after minutes of heat ({} here; AWS names no number); till then {} are throttled.",
        minutes(u32::try_from(heat.splits_after_seconds).unwrap_or(u32::MAX)),
        percent(heat.throttled_in_five_minutes),
    );
    let ends = match (heat.sort_key_order, heat.relieved_after_seconds) {
        (SortKeyOrder::Rising, None) => format!(
            "Where sort keys only rise, it does not help a key: all new items go to the same end, and {} are \
             throttled for as long as the demand lasts.",
            percent(heat.throttled_in_the_end),
        ),
        (SortKeyOrder::Rising, Some(after)) => {
            format!(
                "It parts the hot keys of one partition, and under 1 % are throttled after {} minutes.",
                minutes(after)
            )
        }
        (SortKeyOrder::Scattered, Some(after)) => format!(
            "With scattered sort keys it goes on until, after {} minutes, under 1 % are throttled ({} partitions, {} before).",
            minutes(after),
            heat.partitions_after,
            heat.partitions_before,
        ),
        (SortKeyOrder::Scattered, None) => format!(
            "With scattered sort keys it goes on, but after half an hour {} are still throttled ({} partitions, {} before).",
            percent(heat.throttled_in_the_end),
            heat.partitions_after,
            heat.partitions_before,
        ),
    };
    format!("{begins} {ends}")
}

fn minutes(seconds: u32) -> u32 {
    seconds.div_ceil(60)
}
