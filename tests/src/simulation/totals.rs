//! The counts of a run.

use std::fmt;

/// Declares the counts, each with its name in the table, which also documents it.
macro_rules! totals {
    ($($count:ident: $name:literal,)*) => {
        /// Counts of one run, or of several.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct Totals {
            $(#[doc = $name] pub $count: u64,)*
        }

        impl Totals {
            /// The sums of both.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($count: self.$count + other.$count,)* }
            }

            fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$count),)*]
            }
        }
    };
}

totals! {
    acknowledged: "plain puts: acknowledged",
    appended: "appends: acknowledged",
    point_writes: "writes of registers: acknowledged",
    deleted: "  of these, deletions",
    existed: "writes of registers: the item exists",
    changed: "updates with If-Match: made",
    differed: "updates with If-Match: another state",
    added: "additions: acknowledged",
    repeated_additions: "additions repeated with their key",
    native_applied: "writes through an endpoint: applied",
    native_refused: "writes through an endpoint: refused",
    native_unknown: "writes through an endpoint: unknown",
    native_reads: "reads through an endpoint",
    reads: "reads checked",
    registers: "registers checked",
    undecided: "  of these, with too many orders to decide",
    changes: "changes of a number of shards",
    shrinks: "shrinks completed",
    settlings: "settlings completed",
    interrupted: "calls of drains interrupted",
    late_requests: "late arrivals of writes",
    very_late_requests: "  of these, more than a minute late",
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
