//! The limits that requests exceeded, the table's and its indexes', and their remedies.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::event::AlarmMetric;

/// A limit that requests exceeded, and the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// Partitions exceed their limit of writes: more shards.
    HotWrites,
    /// Partitions exceed their limit of reads: replicas or a cache, never more shards of a key that
    /// is read as a whole.
    HotReads,
    /// The table's provisioned write units are used up: more units.
    ProvisionedWrites,
    /// The table's provisioned read units are used up: more units.
    ProvisionedReads,
    /// The maximum that the owner set for on-demand throughput: only the owner can raise it.
    OnDemandMaximum,
    /// The account's quota for one table: only a higher quota.
    Account,
}

impl Cause {
    /// Every metric of `AWS/DynamoDB` that names its cause. (DynamoDB developer guide, "Metrics and
    /// dimensions".)
    const METRICS: [(&'static str, Self); 8] = [
        ("WriteKeyRangeThroughputThrottleEvents", Self::HotWrites),
        ("ReadKeyRangeThroughputThrottleEvents", Self::HotReads),
        ("WriteProvisionedThroughputThrottleEvents", Self::ProvisionedWrites),
        ("ReadProvisionedThroughputThrottleEvents", Self::ProvisionedReads),
        ("WriteMaxOnDemandThroughputThrottleEvents", Self::OnDemandMaximum),
        ("ReadMaxOnDemandThroughputThrottleEvents", Self::OnDemandMaximum),
        ("WriteAccountLimitThrottleEvents", Self::Account),
        ("ReadAccountLimitThrottleEvents", Self::Account),
    ];

    /// The operator's remedy, if the shard-scaler has none.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::HotWrites => "more shards relieve the keys",
            Self::HotReads => {
                "add read replicas (READ_REPLICAS), read with consistent=false, or put a cache before the reader"
            }
            Self::ProvisionedWrites => {
                "raise the provisioned write units, or MAX_WRITE_UNITS so that the shard-scaler may"
            }
            Self::ProvisionedReads => {
                "raise the provisioned read units, or MAX_READ_UNITS so that the shard-scaler may"
            }
            Self::OnDemandMaximum => {
                "raise the maximum on-demand throughput that is set on the table; more shards do not help"
            }
            Self::Account => "ask for a higher account quota; more shards do not help",
        }
    }

    /// The same for an index. A replica has the table's own keys, so the remedy for the table's
    /// partitions helps its own.
    pub(crate) const fn advice_of_index(self, is_replica: bool) -> &'static str {
        match self {
            Self::HotWrites | Self::HotReads if !is_replica => {
                "give the index a partition key with more distinct values; more shards of the table's key need not help"
            }
            Self::ProvisionedWrites => {
                "raise the index's provisioned write units; the shard-scaler raises the table's only"
            }
            Self::ProvisionedReads => {
                "raise the index's provisioned read units; the shard-scaler raises the table's only"
            }
            Self::OnDemandMaximum => {
                "raise the maximum on-demand throughput that is set on the index; more shards do not help"
            }
            Self::HotWrites | Self::HotReads | Self::Account => self.advice(),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) table: BTreeSet<Cause>,
    /// By the index's name. The metrics of the table do not count the throttles of its indexes.
    pub(crate) indexes: BTreeMap<String, BTreeSet<Cause>>,
}

impl Limits {
    /// The limits that an alarm's metrics name. If they name none (metric math, composite alarms,
    /// `WriteThrottleEvents`): hot partitions of the indexes that the alarm is about, or else of the
    /// table.
    pub(crate) fn of(metrics: &[&AlarmMetric]) -> Self {
        let mut limits = Self::default();
        for metric in metrics {
            let named = Cause::METRICS.iter().find(|(name, _)| *name == metric.name);
            if let Some((_, cause)) = named {
                limits.add(metric.index.as_deref(), *cause);
            }
        }
        if limits.is_empty() {
            let about = metrics.iter().filter_map(|metric| metric.index.as_deref());
            about.for_each(|index| limits.add(Some(index), Cause::HotWrites));
        }
        if limits.is_empty() {
            limits.add(None, Cause::HotWrites);
        }
        limits
    }

    fn is_empty(&self) -> bool {
        self.table.is_empty() && self.indexes.is_empty()
    }

    fn add(&mut self, index: Option<&str>, cause: Cause) {
        match index {
            Some(index) => self.indexes.entry(index.to_owned()).or_default().insert(cause),
            None => self.table.insert(cause),
        };
    }
}
