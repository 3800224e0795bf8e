//! What a caller asks a page of.

use super::key::{PartitionKey, SortKey};

/// The order of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Lowest sort key first.
    #[default]
    Ascending,
    /// Highest sort key first.
    Descending,
}

impl Order {
    /// Which of two sort keys comes first.
    #[must_use]
    pub fn compare(self, one: &SortKey, other: &SortKey) -> std::cmp::Ordering {
        match self {
            Self::Ascending => one.cmp(other),
            Self::Descending => other.cmp(one),
        }
    }

    /// As the HTTP contract writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ascending => "asc",
            Self::Descending => "desc",
        }
    }
}

/// A page over all shards of one key, in sort-key order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageQuery {
    /// The logical key.
    pub partition_key: PartitionKey,
    /// The most items on the page; 1 to 1,000.
    pub limit: usize,
    /// Continue after this sort key.
    pub after: Option<SortKey>,
    /// The order.
    pub order: Order,
    /// The lowest sort key, itself included.
    pub from: Option<SortKey>,
    /// The highest sort key, itself included.
    pub to: Option<SortKey>,
    /// Only sort keys that begin with this; string tables only, and instead of `from` and `to`.
    pub prefix: Option<String>,
    /// Whether every write acknowledged before must be seen; costs twice as much.
    pub consistent: bool,
}

impl PageQuery {
    /// The most items of one page.
    pub const MAX_LIMIT: usize = 1_000;
    /// The items of a page where nothing else is said.
    pub const DEFAULT_LIMIT: usize = 100;

    /// The first page of everything, in ascending order, eventually consistent.
    #[must_use]
    pub const fn new(partition_key: PartitionKey) -> Self {
        Self {
            partition_key,
            limit: Self::DEFAULT_LIMIT,
            after: None,
            order: Order::Ascending,
            from: None,
            to: None,
            prefix: None,
            consistent: false,
        }
    }
}
