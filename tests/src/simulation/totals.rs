//! The counts of a run.

use std::fmt;

/// Declares the counts, each with its name in the table, which also documents it.
macro_rules! totals {
    ($($count:ident: $name:literal,)*) => {
        /// Counts of one run, or of several.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct Totals {
            $(#[doc = $name] pub $count: u64,)*
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
    acknowledged: "plain puts: acknowledged",
    refused: "plain puts: rejected",
    unknown: "plain puts: unknown outcome",
    appended: "appends: acknowledged",
    appended_again: "  of these, after a throttle",
    point_writes: "writes of registers: acknowledged",
    deleted: "  of these, deletions",
    existed: "writes of registers: the item exists",
    refused_point_writes: "writes of registers: rejected",
    unknown_point_writes: "writes of registers: unknown outcome",
    repeated: "requests repeated with their key",
    changed: "changes with If-Match: made",
    differed: "changes with If-Match: another state",
    unknown_changes: "changes with If-Match: unknown outcome",
    added: "additions: acknowledged",
    unknown_additions: "additions: unknown outcome",
    repeated_additions: "additions repeated with their key",
    native_applied: "writes through an endpoint: applied",
    native_refused: "writes through an endpoint: refused",
    native_unknown: "writes through an endpoint: unknown",
    native_reads: "reads through an endpoint",
    reads: "reads checked",
    registers: "registers checked",
    undecided: "  of these, with too many orders to decide",
    failed_reads: "reads without a response in time",
    growths: "growths",
    lowered: "changes to a lower width",
    opened_by_others: "changes opened by another instance",
    shrinks: "shrinks completed",
    settlings: "settlings completed",
    cut_off: "drains cut off by a change",
    taken_over: "drains taken over",
    interrupted: "calls of drains interrupted",
    raised: "additions of copies of pages",
    repaired: "entries of pages repaired at the end",
    late_requests: "late arrivals of writes",
    very_late_requests: "  of these, more than a minute late",
    crowd_writes: "writes of a crowd: acknowledged",
    slow_changes: "changes while the metadata is slow",
    restored: "items found after a restore",
    deaths: "instances that died",
    // Of all kinds, including late arrivals and deaths.
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
