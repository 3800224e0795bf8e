//! Restores: at the end of a run, a table is replaced by a backup from the run, and its metadata is
//! rebuilt, as the documents say. Afterwards every acknowledged item of the backup must be there.

use std::collections::BTreeSet;
use std::time::Duration;

use embedded_dynamodb::Engine;
use serde_json::{Value, json};
use sharding::internal::Deadline;
use sharding::{Conditions, ETags, ShardCount, WriteErrorKind};
use tokio::time::sleep;

use super::ending::{drain, newcomer, patiently, soon};
use super::failure::{Failure, Finding};
use super::reading::{scan, split};
use super::world::World;
use super::{KEYS, MAX_SHARDS, key, sort_key};
use crate::{survey, valued_item};

/// The time for which nothing is sent before a rebuild: until every view has expired.
const QUIET: Duration = Duration::from_secs(70);
/// The number of items of each key that a creation must find.
const CREATED: usize = 40;

/// The rows of both tables at one instant, and the plain items that were acknowledged before.
pub(super) struct Backup {
    items: Vec<Value>,
    metadata: Vec<Value>,
    acknowledged: [BTreeSet<String>; KEYS],
}

/// The tables that are restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restored {
    Items,
    Metadata,
    Both,
}

/// Sends a request to the engine, past the network and its faults.
pub(super) fn ask(engine: &Engine, operation: &str, request: &Value) -> Value {
    crate::ask(engine, "DynamoDB_20120810", operation, request)
}

fn rows(engine: &Engine, table: &str) -> Vec<Value> {
    let (mut rows, mut request) = (Vec::new(), json!({"TableName": table, "ConsistentRead": true}));
    loop {
        let page = ask(engine, "Scan", &request);
        rows.extend(page["Items"].as_array().into_iter().flatten().cloned());
        if page["LastEvaluatedKey"].is_null() {
            return rows;
        }
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"].clone();
    }
}

fn replace(engine: &Engine, table: &str, backup: &[Value]) {
    for row in rows(engine, table) {
        let names = ["partition_key", "sort_key"].into_iter();
        let names = names.filter(|name| !row[name].is_null());
        let key: serde_json::Map<_, _> =
            names.map(|name| (name.to_owned(), row[name].clone())).collect();
        ask(engine, "DeleteItem", &json!({"TableName": table, "Key": key}));
    }
    for row in backup {
        ask(engine, "PutItem", &json!({"TableName": table, "Item": row}));
    }
}

fn acknowledged(world: &World) -> [BTreeSet<String>; KEYS] {
    std::array::from_fn(|which| world.history(which).all_acknowledged())
}

pub(super) fn back_up(engine: &Engine, world: &World) -> Backup {
    Backup {
        items: rows(engine, "items"),
        metadata: rows(engine, "items-metadata"),
        acknowledged: acknowledged(world),
    }
}

/// Settles every key under a higher width, restores, rebuilds, and checks all items of the backup.
pub(super) async fn restore(world: &World, backup: &Backup) -> Result<(), Failure> {
    let engine = &world.network.engine;
    engine.set_limits([]);
    let restored =
        [Restored::Items, Restored::Metadata, Restored::Both][(world.plan.seed % 3) as usize];
    let before = newcomer(world, 2);
    for which in 0..KEYS {
        let look = async || before.shards(&key(which), soon()).await;
        let width = patiently(world, which, "reading metadata", look).await?;
        let wider = width.map_or(1, |metadata| metadata.number_of_shards.get()) + 3;
        let wider = ShardCount::new(wider.min(MAX_SHARDS)).expect("at least one");
        let grow = async || before.set_shards(&key(which), wider, soon()).await;
        patiently(world, which, "a growth before a restore", grow).await?;
        let settle = async || before.begin_settle(&key(which), soon()).await;
        patiently(world, which, "settling before a restore", settle).await?;
        drain(&before, world, which).await?;
    }
    let mut expected = acknowledged(world);
    if restored != Restored::Metadata {
        expected.clone_from(&backup.acknowledged);
        replace(engine, "items", &backup.items);
    }
    if restored != Restored::Items {
        replace(engine, "items-metadata", &backup.metadata);
        world.network.record.metadata_was_restored();
    }
    sleep(QUIET).await;
    rebuild(world).await?;
    for (which, expected) in expected.iter().enumerate() {
        check(world, which, expected, restored).await?;
    }
    Ok(())
}

/// Rebuilds the metadata, as the command `rebuild` does.
async fn rebuild(world: &World) -> Result<(), Failure> {
    let table = newcomer(world, 3);
    let survey = survey(&table).await;
    for (key, findings) in survey.keys() {
        let rebuilt = table.rebuild(key, findings, soon()).await;
        rebuilt.map_err(|error| Failure::Violation(format!("I6: a rebuild fails: {error}")))?;
    }
    let rebuilt = table.rebuild_directory(soon()).await;
    rebuilt.map_err(|error| Failure::Violation(format!("I6: a rebuild fails: {error}")))?;
    Ok(())
}

/// Checks that reads and creations find every item.
async fn check(
    world: &World,
    which: usize,
    expected: &BTreeSet<String>,
    restored: Restored,
) -> Result<(), Failure> {
    let table = newcomer(world, 4);
    let violation = |wanted: &str, what: &str| {
        let what = format!("I6: after a restore of {restored:?}: {wanted}: {what}");
        Err(world.violation(which, Finding::of(wanted, what)))
    };
    let look = async || scan(&table, which, 1_000, false).await;
    let seen = patiently(world, which, "a scan after a restore", look).await?;
    let (plain, _) = split(seen.ok_or_else(|| Failure::harness("too many pages"))?);
    let seen: BTreeSet<String> = plain.into_iter().map(|(sort_key, _)| sort_key).collect();
    if let Some(missed) = expected.difference(&seen).next() {
        let what =
            format!("a scan misses {} of {}", expected.difference(&seen).count(), expected.len());
        return violation(missed, &what);
    }
    for wanted in expected.iter().take(CREATED) {
        let get = async || table.get(&key(which), &sort_key(wanted), true, soon()).await;
        if patiently(world, which, "a read after a restore", get).await?.is_none() {
            return violation(wanted, "a point read misses it");
        }
        let item = valued_item(key(which), wanted, 0);
        let absent = Conditions { matches: None, differs: Some(ETags::Any) };
        let created = table.put_if(&item, &absent, Deadline::now() + Duration::from_secs(20)).await;
        match created.map_err(|error| error.kind) {
            Err(WriteErrorKind::Precondition) => {}
            Ok(_) => return violation(wanted, "it is created again"),
            Err(error) => return violation(wanted, &format!("a creation fails: {error}")),
        }
    }
    world.count(|totals| totals.restored += expected.len() as u64);
    Ok(())
}
