//! The record of a run: every write of an item that reached the tables, to explain a violation, the
//! changes of the keys, and the counts.

use std::collections::BTreeMap;
use std::fmt;
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
    at: Duration,
    instance: usize,
    is_late: bool,
    shard_key: String,
    sort_key: String,
    what: String,
    response: String,
}

/// The last known metadata of a key.
#[derive(Debug, Default)]
struct Key {
    generation: u64,
    era: u64,
    width: u64,
    stopped_at: u64,
    is_draining: bool,
    /// The instance that made the current close.
    closer: Option<usize>,
    /// The instance that works on the current drain.
    drainer: Option<usize>,
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
            let arrival = Arrival {
                at,
                instance,
                is_late,
                shard_key: text("partition_key"),
                sort_key: text("sort_key"),
                what: write_text(operation, &request),
                response: response_text(response),
            };
            locked(&self.state).arrivals.push(arrival);
        } else if response.status == 200 {
            let key = json!({"partition_key": written["partition_key"]});
            let get =
                json!({"TableName": request["TableName"], "ConsistentRead": true, "Key": key});
            self.changed(instance, &ask(engine, "GetItem", &get).unwrap_or_default()["Item"]);
        }
    }

    /// Records new metadata of a key.
    fn changed(&self, instance: usize, metadata: &Value) {
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
        if key.era > 0 && era > key.era {
            *(if width > key.width { &mut totals.growths } else { &mut totals.lowered }) += 1;
            totals.opened_by_others +=
                u64::from(key.closer.is_some_and(|closer| closer != instance));
        }
        key.closer = number("closing").map(|_| instance);
        let stopped_at = number("drain_stopped_at").unwrap_or(0);
        totals.cut_off +=
            u64::from(key.is_draining && key.closer.is_some() && stopped_at > key.stopped_at);
        // "began busy_until emptied_at": `-` before any instance has begun.
        let drain = metadata["drain"]["S"].as_str();
        key.drainer = match drain.and_then(|drain| drain.split(' ').nth(1)) {
            None | Some("-" | "0") => None,
            Some(_) => {
                totals.taken_over +=
                    u64::from(key.drainer.is_some_and(|drainer| drainer != instance));
                Some(instance)
            }
        };
        (key.generation, key.era, key.width, key.stopped_at) = (generation, era, width, stopped_at);
        key.is_draining = drain.is_some();
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
        of_item.map(|arrival| format!("\n  {arrival}")).collect()
    }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, instance, is_late, shard_key, what, response, .. } = self;
        let late = if *is_late { ", late" } else { "" };
        write!(
            f,
            "{:>9.3} s  instance {instance}  {shard_key}  {what}{late}: {response}",
            at.as_secs_f64()
        )
    }
}

/// The effect and the condition of a write.
fn write_text(operation: &str, request: &Value) -> String {
    let item = &request["Item"];
    let stored = match (operation, item["_sh:d"].is_null()) {
        ("PutItem", true) => format!("put {}", item["value"]["N"].as_str().unwrap_or("?")),
        ("PutItem", false) => "tombstone".to_owned(),
        ("UpdateItem", _) => {
            format!("update {}", request["UpdateExpression"].as_str().unwrap_or_default())
        }
        _ => "remove".to_owned(),
    };
    let version =
        item["_sh:v"]["N"].as_str().map(|version| format!(" {version}")).unwrap_or_default();
    let condition = request["ConditionExpression"].as_str().unwrap_or("always");
    let values = &request["ExpressionAttributeValues"];
    format!("{stored}{version} if {condition} {values}")
}

fn response_text(response: &Response) -> String {
    if response.status == 200 {
        return "applied".to_owned();
    }
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let kind = body["__type"].as_str().unwrap_or("?");
    kind.rsplit('#').next().unwrap_or(kind).to_owned()
}
