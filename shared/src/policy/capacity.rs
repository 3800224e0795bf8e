//! The limit that a throttled request exceeded.
//!
//! The exception's class says little: one class stands for several limits, and one limit occurs in
//! several classes. The reason names the limit. More shards help against only one of these limits.
//! (DynamoDB developer guide, "Diagnosing throttling".)

/// The limit behind a capacity error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CapacityScope {
    /// One partition of the table exceeds its limit: more shards help.
    KeyRange,
    /// A partition of an index exceeds its limit: more shards of the table's key may not help.
    IndexKeyRange,
    /// The table or index exceeds its provisioned capacity.
    Table,
    /// The account's quota for one table is exceeded.
    Account,
    /// The maximum that the owner set for on-demand throughput is exceeded.
    OnDemandMaximum,
    /// DynamoDB gave no reason. Repeat the request as a single write to get one.
    Unknown,
}

impl CapacityScope {
    /// Parses one reason, for example `TableWriteKeyRangeThroughputExceeded`. One that is not known
    /// is [`Unknown`](Self::Unknown).
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

    /// The scope of an error with several reasons: a key range if any reason is one, otherwise the
    /// first known reason.
    #[must_use]
    pub fn from_reasons<'a>(reasons: impl IntoIterator<Item = &'a str>) -> Self {
        reasons.into_iter().map(Self::from_reason).min().unwrap_or(Self::Unknown)
    }

    /// Whether more shards of the key help.
    #[must_use]
    pub const fn is_cured_by_shards(self) -> bool {
        matches!(self, Self::KeyRange)
    }

    /// The name in messages and metrics.
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
        for (resource, key_range) in
            [("Table", CapacityScope::KeyRange), ("Index", CapacityScope::IndexKeyRange)]
        {
            for (limit, scope) in [
                ("KeyRangeThroughputExceeded", key_range),
                ("ProvisionedThroughputExceeded", CapacityScope::Table),
                ("AccountLimitExceeded", CapacityScope::Account),
                ("MaxOnDemandThroughputExceeded", CapacityScope::OnDemandMaximum),
            ] {
                let of = |access: &str| {
                    CapacityScope::from_reason(&format!("{resource}{access}{limit}"))
                };
                assert_eq!((of("Read"), of("Write")), (scope, scope));
            }
        }
        // A key range takes precedence, and an empty list is unknown.
        let both = ["TableWriteAccountLimitExceeded", "TableWriteKeyRangeThroughputExceeded"];
        assert_eq!(CapacityScope::from_reasons(both), CapacityScope::KeyRange);
        assert_eq!(CapacityScope::from_reasons([]), CapacityScope::Unknown);
        assert_eq!(CapacityScope::from_reason("something new"), CapacityScope::Unknown);
    }
}
