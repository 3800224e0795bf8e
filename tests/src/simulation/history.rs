//! The reference for plain items: the acknowledged writes, and whether a read is consistent with
//! them.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::failure::Finding;

/// The state of one sort key.
#[derive(Debug, Default, Clone)]
struct Written {
    /// Every value that was sent.
    sent: BTreeSet<u64>,
    /// When the first write was acknowledged.
    acknowledged: Option<Instant>,
}

/// All writes to one key.
#[derive(Debug, Default, Clone)]
pub(super) struct KeyHistory {
    written: BTreeMap<String, Written>,
    /// The values of the appends that may be stored, each with its sort key once that is known.
    appended: BTreeMap<u64, Option<String>>,
}

impl KeyHistory {
    pub(super) fn append_sent(&mut self, value: u64) {
        self.appended.insert(value, None);
    }

    /// An append ended. `None` if it is certainly not stored, otherwise its sort key.
    pub(super) fn append_ended(&mut self, value: u64, sort_key: Option<&str>) {
        match sort_key {
            Some(sort_key) => {
                self.appended.insert(value, Some(sort_key.to_owned()));
                self.sent(sort_key, value);
            }
            None => _ = self.appended.remove(&value),
        }
    }

    pub(super) fn sent(&mut self, sort_key: &str, value: u64) {
        self.written.entry(sort_key.to_owned()).or_default().sent.insert(value);
    }

    pub(super) fn acknowledged(&mut self, sort_key: &str) {
        let written = self.written.entry(sort_key.to_owned()).or_default();
        written.acknowledged.get_or_insert_with(Instant::now);
    }

    /// A sort key that was acknowledged before this instant, selected by an arbitrary number.
    pub(super) fn some_acknowledged(&self, before: Instant, pick: usize) -> Option<String> {
        let known: Vec<&String> = self.before(before, 0).collect();
        known.get(pick % known.len().max(1)).map(|key| (*key).clone())
    }

    /// The sort keys of at least this value that were acknowledged before an instant.
    pub(super) fn before(&self, instant: Instant, least: u64) -> impl Iterator<Item = &String> {
        self.written
            .iter()
            .filter(move |(_, written)| written.acknowledged.is_some_and(|at| at < instant))
            .filter(move |(_, written)| written.sent.iter().all(|value| *value >= least))
            .map(|(key, _)| key)
    }

    /// Checks a whole scan that began at `began`: I1 and I6. It shows items of at least the value
    /// `least`.
    pub(super) fn check_scan(
        &self,
        seen: &[(String, u64)],
        began: Instant,
        least: u64,
    ) -> Result<(), Finding> {
        for (sort_key, value) in seen {
            self.check_value(sort_key, *value)?;
            if *value < least {
                return Err(Finding::of(sort_key, format!("I6: a filter hides {sort_key}")));
            }
        }
        let mut values = BTreeSet::new();
        let is_appended = |value: &u64| self.appended.contains_key(value);
        let mut appended = seen.iter().filter(|(_, value)| is_appended(value));
        if let Some((twice, _)) = appended.find(|(_, value)| !values.insert(value)) {
            return Err(Finding::of(twice, format!("I2: an append is stored twice, as {twice}")));
        }
        let seen: BTreeSet<&String> = seen.iter().map(|(sort_key, _)| sort_key).collect();
        let Some(missed) = self.before(began, least).find(|sort_key| !seen.contains(sort_key))
        else {
            return Ok(());
        };
        let what = format!("I1: {missed} was acknowledged before the read began, and was missed");
        Err(Finding::of(missed, what))
    }

    /// Checks a read of one item that was acknowledged before it began.
    pub(super) fn check_get(&self, sort_key: &str, value: Option<u64>) -> Result<(), Finding> {
        let missed = || {
            format!("I1: {sort_key} was acknowledged before the point read began, and was missed")
        };
        match value {
            Some(value) => self.check_value(sort_key, value),
            None => Err(Finding::of(sort_key, missed())),
        }
    }

    fn check_value(&self, sort_key: &str, value: u64) -> Result<(), Finding> {
        let sent = match self.appended.get(&value) {
            // Its client does not know the sort key yet.
            Some(None) => true,
            Some(Some(of_append)) => of_append == sort_key,
            None => self.written.get(sort_key).is_some_and(|it| it.sent.contains(&value)),
        };
        let what = || format!("I6: {sort_key} has the value {value}, which was never written");
        if sent { Ok(()) } else { Err(Finding::of(sort_key, what())) }
    }
}
