//! The options of `plan`.

use clap::{Args, ValueEnum};
use serde::Serialize;

#[derive(Debug, Clone, Args)]
pub(crate) struct PlanOptions {
    /// Writes per second of all hot keys together
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) write_rate: u32,
    /// Bytes of a stored item: names and values, the sharded key, and this product's own attributes
    /// (20 bytes; on further shards some 35 and the partition key again)
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=409_600))]
    pub(crate) item_size: u32,
    /// Pages read per second from all hot keys together; 0 if they are not read
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) read_rate: u32,
    /// Items of a page
    #[arg(long, value_name = "ITEMS", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) page_size: u32,
    /// Physical partitions of the table, about one for each 1,000 write units of its warm
    /// throughput [default: those of an on-demand table that has served this demand before]
    #[arg(long, value_name = "P", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) partitions: Option<u32>,
    /// Hot keys that share the rates evenly
    #[arg(long, value_name = "K", default_value_t = 1, allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) keys: u32,
    /// Read pages with strong consistency, which doubles the units
    #[arg(long)]
    pub(crate) consistent: bool,
    /// Judge this number of shards for each key [default: the number that this product's policy
    /// gives it]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) shards: Option<u32>,
    /// Capacity mode of the table
    #[arg(long, value_enum, default_value_t = CapacityMode::OnDemand)]
    pub(crate) capacity: CapacityMode,
    /// Items stored by one HTTP request (POST /items/batch)
    #[arg(long, value_name = "ITEMS", default_value_t = 1, allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) items_per_request: u32,
    /// Profile of the template, for the parts of the functions' bill that follow from it: stored logs
    /// and X-Ray [default: without these parts]
    #[arg(long, value_enum)]
    pub(crate) profile: Option<ProfileName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CapacityMode {
    /// Pay for each request.
    OnDemand,
    /// Pay by the hour for provisioned units per second, used or not.
    Provisioned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// Cheap, for tests.
    Development,
    /// The default of the template.
    Standard,
    /// Traced, with a canary and long logs.
    Production,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    /// Options with items of 1,000 bytes, and 20 pages of 100 items per second.
    pub(in crate::plan) fn options(write_rate: u32, partitions: Option<u32>) -> PlanOptions {
        PlanOptions {
            write_rate,
            item_size: 1_000,
            read_rate: 20,
            page_size: 100,
            partitions,
            keys: 1,
            consistent: false,
            shards: None,
            capacity: CapacityMode::OnDemand,
            items_per_request: 1,
            profile: None,
        }
    }

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: PlanOptions,
    }

    /// Parses options at their limits, of which one is replaced.
    fn parse(option: &str, value: &str) -> Result<PlanOptions, String> {
        let least = ["--write-rate=1", "--item-size=409600", "--read-rate=0", "--page-size=1000"];
        let others = least.into_iter().filter(|other| !other.starts_with(option));
        let words = std::iter::once("plan").chain(others).map(str::to_owned);
        let words = words.chain([format!("{option}={value}")]);
        Cli::try_parse_from(words).map(|cli| cli.options).map_err(|error| error.to_string())
    }

    #[test]
    fn wrong_values_are_refused_by_option_value_and_what_is_allowed() {
        let rows = [
            ("--write-rate", "0", "1..=1000000"),
            ("--write-rate", "-5", "1..=1000000"),
            ("--item-size", "409601", "1..=409600"),
            ("--read-rate", "-1", "0..=1000000"),
            ("--page-size", "1001", "1..=1000"),
            ("--partitions", "0", "1..=100000"),
            ("--keys", "0", "1..=1000"),
            ("--shards", "1001", "1..=1000"),
            ("--items-per-request", "501", "1..=500"),
            ("--capacity", "free", "on-demand, provisioned"),
        ];
        for (option, value, allowed) in rows {
            let error = parse(option, value).unwrap_err();
            for part in [option, &format!("'{value}'"), allowed] {
                assert!(error.contains(part), "{option} {value}: {error}");
            }
        }
        assert!(parse("--keys", "1000").is_ok());
    }
}
