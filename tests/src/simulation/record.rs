//! The record of a run: every write of an item that reached the tables, to explain a violation, the
//! changes of the keys, and the counts.

use std::collections::BTreeMap;
use std::time::Duration;

use embedded_dynamodb::{Engine, Response};
use serde_json::{Value, json};

use super::totals::Totals;
use crate::ask;
use crate::metadata::entry_name;

/// The record of all instances of a run.
#[derive(Debug, Default)]
pub(super) struct Record {
    arrivals: Vec<Arrival>,
    /// The generation of each key.
    keys: BTreeMap<String, u64>,
    /// For each copy of a page, the generation of each entry.
    pages: BTreeMap<String, BTreeMap<String, u64>>,
    /// The first rule of the directory that was broken.
    broken: Option<String>,
    pub(super) totals: Totals,
}

/// A write of an item that reached the table.
#[derive(Debug)]
struct Arrival {
    shard_key: String,
    sort_key: String,
    /// When it arrived, from which instance, its request and its response.
    line: String,
}

impl Record {
    /// Records a request of an instance, and its response.
    pub(super) fn arrived(
        &mut self,
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
            self.arrivals.push(Arrival { shard_key, sort_key, line });
        } else if response.status == 200 {
            let key = json!({"partition_key": written["partition_key"]});
            let get =
                json!({"TableName": request["TableName"], "ConsistentRead": true, "Key": key});
            let metadata = &ask(engine, "DynamoDB_20120810", "GetItem", &get)["Item"];
            let Some(name) = metadata["partition_key"]["S"].as_str() else { return };
            if name.starts_with("_sharding:") {
                return self.page_written(name, metadata);
            }
            let generation = metadata["generation"]["N"].as_str().unwrap_or("0");
            let generation = generation.parse().expect("a generation is a number");
            self.keys.insert(name.to_owned(), generation);
        }
    }

    /// Records a written copy of a page. No entry is removed or lowered, and none is newer than its
    /// metadata item.
    fn page_written(&mut self, name: &str, page: &Value) {
        let Self { keys, pages, broken, .. } = self;
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
            keys.iter().map(|(key, generation)| (entry_name(key), *generation)).collect();
        let is_ahead = |(key, is): &(&String, &u64)| items.get(*key).is_none_or(|item| item < *is);
        if let Some((key, is)) = now.iter().find(is_ahead) {
            broken.get_or_insert(format!(
                "I6: the entry of {key} in {name} has generation {is}, and its item is below"
            ));
        }
    }

    /// The first rule of the directory that was broken, or the counts of the run.
    pub(super) fn verdict(&self) -> Result<Totals, String> {
        self.broken.clone().map_or_else(|| Ok(self.totals.clone()), Err)
    }

    /// The writes of one item that reached the table, one per line.
    pub(super) fn of_item(&self, key: &str, sort_key: &str) -> String {
        let is_of_key = |shard_key: &str| {
            shard_key == key || shard_key.split_once('\u{1f}').is_some_and(|(of, _)| of == key)
        };
        let of_item =
            self.arrivals.iter().filter(|it| it.sort_key == sort_key && is_of_key(&it.shard_key));
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
