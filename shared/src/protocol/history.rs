//! The history of a key's widths, which says where items may be stored.

use std::collections::BTreeSet;

use crate::values::key::ShardCount;

/// One change of a width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryEntry {
    /// Epoch seconds.
    pub at: u64,
    /// The width from then on.
    pub count: ShardCount,
}

/// Oldest first. Stored as a string set of `"epoch_seconds:count"`.
///
/// ```
/// use dynamodb_write_sharding::maintenance::ShardHistory;
/// let history = ShardHistory::parse(["1562858912:2", "1561758912:1"])?;
/// assert_eq!(history.to_strings(), ["1561758912:1", "1562858912:2"]);
/// # Ok::<(), dynamodb_write_sharding::maintenance::HistoryError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ShardHistory(BTreeSet<HistoryEntry>);

/// An entry that is not `"epoch_seconds:count"`. The metadata is damaged: stop, and rebuild it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the history entry {0:?} is not epoch_seconds:count")]
pub struct HistoryError(String);

impl ShardHistory {
    /// Parses the entries of the string set, in any order.
    ///
    /// # Errors
    /// [`HistoryError`] names the first entry that cannot be read.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, HistoryError> {
        let read = |entry: &str| {
            let (at, count) = entry.split_once(':')?;
            let (at, count) = (at.parse().ok()?, ShardCount::new(count.parse().ok()?)?);
            Some(HistoryEntry { at, count })
        };
        let parsed = |entry: &str| read(entry).ok_or_else(|| HistoryError(entry.to_owned()));
        entries.into_iter().map(parsed).collect::<Result<_, _>>().map(Self)
    }

    pub fn with(mut self, at: u64, count: ShardCount) -> Self {
        self.0.insert(HistoryEntry { at, count });
        self
    }

    /// The entries, oldest first.
    pub fn entries(
        &self,
    ) -> impl DoubleEndedIterator<Item = HistoryEntry> + ExactSizeIterator + Clone + '_ {
        self.0.iter().copied()
    }

    /// Epoch seconds of the last change to this width.
    pub fn last(&self, count: ShardCount) -> Option<u64> {
        self.0.iter().rev().find(|entry| entry.count == count).map(|entry| entry.at)
    }

    /// The stored form.
    pub fn to_strings(&self) -> Vec<String> {
        self.0.iter().map(|entry| format!("{}:{}", entry.at, entry.count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_entry_is_named() {
        for entry in ["", ":", "1:", ":1", "1:0", "x:1", "1:1:1", "-1:1"] {
            assert_eq!(ShardHistory::parse(["5:1", entry]), Err(HistoryError(entry.to_owned())));
        }
    }
}
