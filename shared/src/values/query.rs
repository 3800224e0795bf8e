//! A query for a page of items.

use std::collections::BTreeSet;

use crate::values::key::{PartitionKey, SortKey};

/// The order of a query's items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Lowest sort key first.
    #[default]
    Ascending,
    /// Highest sort key first.
    Descending,
}

impl Order {
    /// Compares two sort keys, or two of anything else, in this order.
    pub fn compare<K: Ord + ?Sized>(self, one: &K, other: &K) -> std::cmp::Ordering {
        match self {
            Self::Ascending => one.cmp(other),
            Self::Descending => other.cmp(one),
        }
    }

    /// The opposite order.
    pub const fn reversed(self) -> Self {
        match self {
            Self::Ascending => Self::Descending,
            Self::Descending => Self::Ascending,
        }
    }
}

/// A page over all shards of one key, in sort-key order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageQuery {
    /// The logical key.
    pub partition_key: PartitionKey,
    /// The largest number of items on the page: 1 to 1,000.
    pub limit: usize,
    /// Continue after this sort key.
    pub after: Option<SortKey>,
    /// The order.
    pub order: Order,
    /// The lowest sort key, itself included.
    pub from: Option<SortKey>,
    /// The highest sort key, itself included.
    pub to: Option<SortKey>,
    /// Only sort keys with this prefix. Not together with `from` or `to`.
    pub prefix: Option<String>,
    /// Whether the page must contain every write that was acknowledged before.
    pub consistent: bool,
    /// Only these attributes of the items, besides their keys; `None` for all.
    pub fields: Option<BTreeSet<String>>,
}

impl PageQuery {
    /// The largest number of items of one page.
    pub const MAX_LIMIT: usize = 1_000;

    /// After this position, or `None` for the beginning of the range. There is no start if the
    /// position is beyond the range; DynamoDB would refuse it.
    pub(crate) fn start(&self) -> Option<Option<SortKey>> {
        let Some(after) = &self.after else { return Some(None) };
        let (first, last) = match self.order {
            Order::Ascending => (&self.from, &self.to),
            Order::Descending => (&self.to, &self.from),
        };
        if last.as_ref().is_some_and(|last| self.order.compare(after, last).is_ge()) {
            return None;
        }
        let mut is_before =
            first.as_ref().is_some_and(|first| self.order.compare(after, first).is_lt());
        if let (Some(prefix), SortKey::String(text)) = (&self.prefix, after)
            && !text.starts_with(prefix.as_str())
        {
            is_before = self.order.compare(&**text, prefix.as_str()).is_lt();
            if !is_before {
                return None;
            }
        }
        Some((!is_before).then(|| after.clone()))
    }

    /// At most 100 items, in ascending order, eventually consistent.
    pub const fn new(partition_key: PartitionKey) -> Self {
        Self {
            partition_key,
            limit: 100,
            after: None,
            order: Order::Ascending,
            from: None,
            to: None,
            prefix: None,
            consistent: false,
            fields: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::{key, text};

    #[test]
    fn a_place_outside_the_range_starts_at_its_beginning_or_nowhere() {
        let all = PageQuery::new(key("k"));
        let range = PageQuery { from: Some(text("d")), to: Some(text("m")), ..all.clone() };
        let prefix = PageQuery { prefix: Some("d".into()), ..all };
        let (up, down) = (Order::Ascending, Order::Descending);
        for (query, order, after, expected) in [
            (&range, up, "a", Some(None)),
            (&range, up, "d", Some(Some("d"))),
            (&range, up, "f", Some(Some("f"))),
            (&range, up, "m", None),
            (&range, up, "z", None),
            (&range, down, "z", Some(None)),
            (&range, down, "f", Some(Some("f"))),
            (&range, down, "d", None),
            (&range, down, "a", None),
            (&prefix, up, "a", Some(None)),
            (&prefix, up, "dx", Some(Some("dx"))),
            (&prefix, up, "e", None),
            (&prefix, down, "e", Some(None)),
            (&prefix, down, "a", None),
        ] {
            let start = PageQuery { order, after: Some(text(after)), ..query.clone() }.start();
            let expected = expected.map(|place: Option<&str>| place.map(text));
            assert_eq!(start, expected, "{order:?} {after}");
        }
    }
}
