//! Counts a table's writes by key, as Contributor Insights counts accessed and throttled keys.

use std::collections::HashMap;

use crate::request::bare_key;

/// The most keys counted between two calls of [`KeyHeats::take`]. Further keys are dropped.
const MOST_KEYS: usize = 10_000;

/// The writes of a stored key.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KeyHeat {
    /// Write units consumed.
    pub write_units: f64,
    /// Rejected writes.
    pub throttled: u64,
}

/// The writes by table and stored key. Counting starts with the first [`KeyHeats::take`] of a
/// table.
#[derive(Debug, Default)]
pub(crate) struct KeyHeats(HashMap<String, HashMap<String, KeyHeat>>);

impl KeyHeats {
    pub(crate) fn note(&mut self, table: &str, key: &str, write_units: f64, throttled: u64) {
        let Some(keys) = self.0.get_mut(table) else { return };
        let key = bare_key(key);
        if keys.len() < MOST_KEYS || keys.contains_key(&key) {
            let heat = keys.entry(key).or_default();
            heat.write_units += write_units;
            heat.throttled += throttled;
        }
    }

    /// Returns and clears the counts since the last call.
    pub(crate) fn take(&mut self, table: &str) -> HashMap<String, KeyHeat> {
        std::mem::take(self.0.entry(table.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_starts_at_the_first_take_and_each_take_clears_it() {
        let mut heats = KeyHeats::default();
        heats.note("items", r#"{"S":"k.1"}"#, 2.0, 0);
        assert!(heats.take("items").is_empty());
        heats.note("items", r#"{"S":"k.1"}"#, 2.0, 0);
        heats.note("items", r#"{"S":"k.1"}"#, 1.0, 1);
        let heat = heats.take("items");
        assert_eq!(heat.get("k.1"), Some(&KeyHeat { write_units: 3.0, throttled: 1 }), "{heat:?}");
        assert!(heats.take("items").is_empty());
    }
}
