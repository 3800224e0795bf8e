//! The counts of a run.

use std::fmt;

/// Declares the counts, each with its name in the table.
macro_rules! totals {
    ($($(#[doc = $doc:literal])* $count:ident: $name:literal,)*) => {
        /// Counts of one run, or of several.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct Totals {
            $($(#[doc = $doc])* pub $count: u64,)*
            /// The widest key at the end.
            pub widest: u32,
        }

        impl Totals {
            /// The sums of both.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($count: self.$count + other.$count,)* widest: self.widest.max(other.widest) }
            }

            fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$count),)* ("shards of the widest key at the end", self.widest.into())]
            }
        }
    };
}

totals! {
    /// Puts of plain items that were acknowledged.
    acknowledged: "plain puts: acknowledged",
    /// Puts of plain items that were rejected: certainly not applied.
    refused: "plain puts: rejected",
    /// Puts of plain items with an unknown outcome.
    unknown: "plain puts: unknown outcome",
    /// Appends that were acknowledged.
    appended: "appends: acknowledged",
    /// Of these, those that were throttled before.
    appended_again: "  of these, after a throttle",
    /// Writes of registers that were acknowledged: puts, deletions, create-only and keyed ones.
    point_writes: "writes of registers: acknowledged",
    /// Of these, deletions.
    deleted: "  of these, deletions",
    /// Create-only writes that found an existing item.
    existed: "writes of registers: the item exists",
    /// Writes of registers that were rejected: certainly not applied.
    refused_point_writes: "writes of registers: rejected",
    /// Writes of registers with an unknown outcome.
    unknown_point_writes: "writes of registers: unknown outcome",
    /// Requests that a client repeated under their idempotency key.
    repeated: "requests repeated with their key",
    /// Changes under `If-Match` that were made.
    changed: "changes with If-Match: made",
    /// Changes under `If-Match` that found another state.
    differed: "changes with If-Match: another state",
    /// Changes under `If-Match` with an unknown outcome.
    unknown_changes: "changes with If-Match: unknown outcome",
    /// Additions to counters that were acknowledged.
    added: "additions: acknowledged",
    /// Additions to counters whose last request had an unknown outcome.
    unknown_additions: "additions: unknown outcome",
    /// Requests of additions that were sent again under their key.
    repeated_additions: "additions repeated with their key",
    /// Writes of registers through an endpoint that were applied.
    native_applied: "writes through an endpoint: applied",
    /// Those whose condition did not hold.
    native_refused: "writes through an endpoint: refused",
    /// Those with an unknown outcome.
    native_unknown: "writes through an endpoint: unknown",
    /// Reads through an endpoint that were checked.
    native_reads: "reads through an endpoint",
    /// Scans and point reads that were checked.
    reads: "reads checked",
    /// Registers whose whole history was checked.
    registers: "registers checked",
    /// Of these, those that allow too many orders to decide.
    undecided: "  of these, with too many orders to decide",
    /// Reads without a response in time.
    failed_reads: "reads without a response in time",
    /// Changes to a higher width.
    growths: "growths",
    /// Changes to a lower width.
    lowered: "changes to a lower width",
    /// Changes that another instance opened than the one that closed.
    opened_by_others: "changes opened by another instance",
    /// Shrinks that were completed.
    shrinks: "shrinks completed",
    /// Settlings that were completed.
    settlings: "settlings completed",
    /// Drains that were cut off by a change of the width.
    cut_off: "drains cut off by a change",
    /// Drains that one instance took over from another.
    taken_over: "drains taken over",
    /// Calls that begin or continue a drain and were interrupted in the middle.
    interrupted: "calls of drains interrupted",
    /// Completed additions of copies of the directory's pages.
    raised: "additions of copies of pages",
    /// Entries of copies of pages that were behind at the end.
    repaired: "entries of pages repaired at the end",
    /// Writes that arrived after their sender had given up.
    late_requests: "late arrivals of writes",
    /// Of these, those that arrived more than a minute late.
    very_late_requests: "  of these, more than a minute late",
    /// Writes of many instances that wait for the same change, acknowledged.
    crowd_writes: "writes of a crowd: acknowledged",
    /// Changes of a width while the metadata answers late.
    slow_changes: "changes while the metadata is slow",
    /// Items that were found after a restore and a rebuild.
    restored: "items found after a restore",
    /// Instances that died.
    deaths: "instances that died",
    /// Faults of all kinds, including late arrivals and deaths.
    faults: "faults injected",
}

impl fmt::Display for Totals {
    /// Writes one count per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows()
            .into_iter()
            .try_for_each(|(name, count)| writeln!(f, "  {name:<38} {count:>10}"))
    }
}
