//! Which limit a throttled request met.
//!
//! The exception's class says little: one class stands for several limits, and one limit comes in several classes. The reason
//! says which limit it was, and only one of them is cured by more shards. (DynamoDB developer guide, "Diagnosing throttling".)

/// The limit behind a capacity error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityScope {
    /// One partition of the table is over its ceiling: more shards help.
    KeyRange,
    /// A partition of an index is over its ceiling: more shards of the table's key need not help.
    IndexKeyRange,
    /// The table or index is over what was provisioned for it.
    Table,
    /// The account's quota for one table.
    Account,
    /// The maximum that the owner set for on-demand throughput.
    OnDemandMaximum,
    /// No reason was given: repeat it as a single write to learn one.
    Unknown,
}

impl CapacityScope {
    /// Reads one reason, for example `TableWriteKeyRangeThroughputExceeded`.
    ///
    /// ```
    /// use sharding::internal::CapacityScope;
    /// assert_eq!(CapacityScope::from_reason("TableWriteKeyRangeThroughputExceeded"), CapacityScope::KeyRange);
    /// assert_eq!(CapacityScope::from_reason("something new"), CapacityScope::Unknown);
    /// ```
    #[must_use]
    pub fn from_reason(reason: &str) -> Self {
        let words = ["Table", "Index", "Read", "Write"];
        match words.into_iter().fold(reason, |rest, word| rest.trim_start_matches(word)) {
            "KeyRangeThroughputExceeded" if reason.starts_with("Index") => Self::IndexKeyRange,
            "KeyRangeThroughputExceeded" => Self::KeyRange,
            "ProvisionedThroughputExceeded" => Self::Table,
            "AccountLimitExceeded" => Self::Account,
            "MaxOnDemandThroughputExceeded" => Self::OnDemandMaximum,
            _ => Self::Unknown,
        }
    }

    /// The scope of a whole error: a key range where any reason is one, else the first reason that is known.
    #[must_use]
    pub fn from_reasons<'a>(reasons: impl IntoIterator<Item = &'a str>) -> Self {
        reasons.into_iter().map(Self::from_reason).min().unwrap_or(Self::Unknown)
    }

    /// Whether more shards of the key help.
    #[must_use]
    pub const fn is_cured_by_shards(self) -> bool {
        matches!(self, Self::KeyRange)
    }

    /// A word for messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyRange => "key-range",
            Self::IndexKeyRange => "index-key-range",
            Self::Table => "table",
            Self::Account => "account",
            Self::OnDemandMaximum => "on-demand-maximum",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sixteen_documented_reasons_have_their_scope() {
        for (resource, key_range) in [("Table", CapacityScope::KeyRange), ("Index", CapacityScope::IndexKeyRange)] {
            for (limit, scope) in [
                ("KeyRangeThroughputExceeded", key_range),
                ("ProvisionedThroughputExceeded", CapacityScope::Table),
                ("AccountLimitExceeded", CapacityScope::Account),
                ("MaxOnDemandThroughputExceeded", CapacityScope::OnDemandMaximum),
            ] {
                let of = |access: &str| CapacityScope::from_reason(&format!("{resource}{access}{limit}"));
                assert_eq!((of("Read"), of("Write")), (scope, scope));
            }
        }
        // A key range wins, and no reason is unknown.
        let both = ["TableWriteAccountLimitExceeded", "TableWriteKeyRangeThroughputExceeded"];
        assert_eq!(CapacityScope::from_reasons(both), CapacityScope::KeyRange);
        assert_eq!(CapacityScope::from_reasons([]), CapacityScope::Unknown);
    }
}
