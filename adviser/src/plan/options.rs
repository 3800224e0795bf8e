//! The options of `plan`.

use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PlanOptions {
    /// Writes per second of the hot key
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) write_rate: u32,
    /// Bytes of a stored item: names and values, the sharded key, and this product's own attributes
    /// (20 bytes; on further shards some 35 and the partition key again)
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=409_600))]
    pub(crate) item_size: u32,
    /// Pages read per second from the hot key; 0 if it is not read
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
    /// Read pages with strong consistency, which doubles the units
    #[arg(long)]
    pub(crate) consistent: bool,
    /// Judge this number of shards [default: the number that this product's policy gives the key]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) shards: Option<u32>,
    /// Capacity mode of the table
    #[arg(long, value_enum, default_value_t)]
    pub(crate) capacity: CapacityMode,
    /// Items stored by one HTTP request (POST /items/batch)
    #[arg(long, value_name = "ITEMS", default_value_t = 1, allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) items_per_request: u32,
    /// Days for which the functions' logs are stored (LogRetentionDays); 0 leaves their storage out
    #[arg(long, value_name = "DAYS", default_value_t = 0, allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(0..=3_653))]
    pub(crate) log_days: u32,
    /// X-Ray samples the functions (XRayTracing at Active)
    #[arg(long)]
    pub(crate) traced: bool,
}

#[cfg(test)]
impl PlanOptions {
    /// Creates options with items of 1,000 bytes, and 20 pages of 100 items per second.
    pub(super) fn of(write_rate: u32, partitions: Option<u32>) -> Self {
        Self {
            write_rate,
            item_size: 1_000,
            read_rate: 20,
            page_size: 100,
            partitions,
            items_per_request: 1,
            ..Self::default()
        }
    }
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum CapacityMode {
    /// Pay for each request.
    #[default]
    OnDemand,
    /// Pay by the hour for provisioned units per second, used or not.
    Provisioned,
}
