//! The keys that a table's writes go to, as Contributor Insights counts accessed and throttled keys.

use std::collections::HashMap;

use crate::request::bare_key;

/// The most keys between two looks; further ones are not counted.
const MOST_KEYS: usize = 10_000;

/// Writes of a stored key.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KeyHeat {
    /// Write units consumed.
    pub write_units: f64,
    /// Rejected writes.
    pub throttled: u64,
}

/// By table and stored key. A table is watched from the first look at it on.
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

    /// What was noted since the last look.
    pub(crate) fn take(&mut self, table: &str) -> HashMap<String, KeyHeat> {
        std::mem::take(self.0.entry(table.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_watched_from_the_first_look_on_and_each_look_starts_anew() {
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
