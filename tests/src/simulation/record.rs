//! The record of a run: every write of an item that reached the tables, to explain a violation, the
//! changes of the keys, and the counts.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use embedded_dynamodb::{Engine, Response};
use serde_json::{Value, json};

use super::locked;
use super::restoring::ask;
use super::totals::Totals;
use crate::metadata::entry_name;

/// The record of all instances of a run.
#[derive(Debug, Default)]
pub(super) struct Record {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    arrivals: Vec<Arrival>,
    keys: BTreeMap<String, Key>,
    /// For each copy of a page, the generation of each entry.
    pages: BTreeMap<String, BTreeMap<String, u64>>,
    /// The first rule of the directory that was broken.
    broken: Option<String>,
    totals: Totals,
}

/// A write of an item that reached the table.
#[derive(Debug)]
struct Arrival {
    shard_key: String,
    sort_key: String,
    /// When it arrived, from which instance, its request and its response.
    line: String,
}

/// The last known metadata of a key.
#[derive(Debug, Default)]
struct Key {
    generation: u64,
    era: u64,
    width: u64,
}

impl Record {
    /// Records a request of an instance, and its response.
    pub(super) fn arrived(
        &self,
        engine: &Engine,
        (instance, at, is_late): (usize, Duration, bool),
        (target, body): (&str, &[u8]),
        response: &Response,
    ) {
        let operation = target.rsplit('.').next().unwrap_or_default();
        if !["PutItem", "UpdateItem", "DeleteItem"].contains(&operation) {
            return;
        }
        let Ok(request) = serde_json::from_slice::<Value>(body) else { return };
        let written = if operation == "PutItem" { &request["Item"] } else { &request["Key"] };
        if request["TableName"] == "items" {
            let text = |name: &str| written[name]["S"].as_str().unwrap_or_default().to_owned();
            let (at, late) = (at.as_secs_f64(), if is_late { ", late" } else { "" });
            let line = format!(
                "{at:>9.3} s  instance {instance}{late}  {operation} {}: {}",
                String::from_utf8_lossy(body),
                response_text(response)
            );
            let (shard_key, sort_key) = (text("partition_key"), text("sort_key"));
            locked(&self.state).arrivals.push(Arrival { shard_key, sort_key, line });
        } else if response.status == 200 {
            let key = json!({"partition_key": written["partition_key"]});
            let get =
                json!({"TableName": request["TableName"], "ConsistentRead": true, "Key": key});
            self.changed(&ask(engine, "GetItem", &get)["Item"]);
        }
    }

    /// Records new metadata of a key.
    fn changed(&self, metadata: &Value) {
        let number =
            |name: &str| metadata[name]["N"].as_str().and_then(|number| number.parse::<u64>().ok());
        let Some(name) = metadata["partition_key"]["S"].as_str() else { return };
        if name.starts_with("_sharding:") {
            return self.page_written(name, metadata);
        }
        let State { keys, totals, .. } = &mut *locked(&self.state);
        let key = keys.entry(name.to_owned()).or_default();
        let (generation, era, width) = (
            number("generation").unwrap_or(0),
            number("era").unwrap_or(1),
            number("number_of_shards").unwrap_or(1),
        );
        // Writers record their load without any other change.
        if generation == key.generation {
            return;
        }
        if key.era > 0 && era > key.era && width > key.width {
            totals.growths += 1;
        }
        (key.generation, key.era, key.width) = (generation, era, width);
    }

    /// The metadata was replaced by an earlier state: pages may lack entries until they are rebuilt.
    pub(super) fn metadata_was_restored(&self) {
        locked(&self.state).pages.clear();
    }

    /// Records a written copy of a page. No entry is removed or lowered, and none is newer than its
    /// metadata item.
    fn page_written(&self, name: &str, page: &Value) {
        let State { keys, pages, broken, .. } = &mut *locked(&self.state);
        let entries = page.as_object().into_iter().flatten().filter_map(|(attribute, entry)| {
            let generation = entry["S"].as_str()?.split(' ').next()?.parse::<u64>().ok()?;
            attribute.starts_with("key:").then(|| (attribute.clone(), generation))
        });
        let now: BTreeMap<String, u64> = entries.collect();
        let before = pages.insert(name.to_owned(), now.clone()).unwrap_or_default();
        if let Some((key, _)) =
            before.iter().find(|(key, was)| now.get(*key).is_none_or(|is| is < *was))
        {
            broken.get_or_insert(format!(
                "I6: the entry of {key} in {name} was removed or lowered: {before:?}, {now:?}"
            ));
        }
        let items: BTreeMap<String, u64> =
            keys.iter().map(|(key, item)| (entry_name(key), item.generation)).collect();
        let is_ahead = |(key, is): &(&String, &u64)| items.get(*key).is_none_or(|item| item < *is);
        if let Some((key, is)) = now.iter().find(is_ahead) {
            broken.get_or_insert(format!(
                "I6: the entry of {key} in {name} has generation {is}, and its item is below"
            ));
        }
    }

    /// The first rule of the directory that was broken, or the counts of the run.
    pub(super) fn verdict(&self) -> Result<Totals, String> {
        let state = locked(&self.state);
        state.broken.clone().map_or_else(|| Ok(state.totals.clone()), Err)
    }

    pub(super) fn count<T>(&self, change: impl FnOnce(&mut Totals) -> T) -> T {
        change(&mut locked(&self.state).totals)
    }

    /// Counts a fault, besides what else it is.
    pub(super) fn fault(&self, count: impl FnOnce(&mut Totals)) {
        self.count(|totals| {
            totals.faults += 1;
            count(totals);
        });
    }

    /// The writes of one item that reached the table, one per line.
    pub(super) fn of_item(&self, key: &str, sort_key: &str) -> String {
        let is_of_key = |shard_key: &str| {
            shard_key == key || shard_key.split_once('\u{1f}').is_some_and(|(of, _)| of == key)
        };
        let state = locked(&self.state);
        let of_item =
            state.arrivals.iter().filter(|it| it.sort_key == sort_key && is_of_key(&it.shard_key));
        of_item.map(|arrival| format!("\n  {}", arrival.line)).collect()
    }
}

fn response_text(response: &Response) -> String {
    if response.status == 200 {
        return "applied".to_owned();
    }
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let kind = body["__type"].as_str().unwrap_or("?");
    kind.rsplit('#').next().unwrap_or(kind).to_owned()
}
