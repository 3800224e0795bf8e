//! What a request that passed as it came shows of its keys, which are not armed.

use serde_json::Value;
use sharding::CapacityScope;

use crate::observed::Observed;
use crate::reply::{Members, Reply};
use crate::table::ServedTable;

/// Parameters that DynamoDB has replaced by expressions. Armed keys have only expressions.
const OLD_PARAMETERS: [&str; 6] = [
    "AttributeUpdates",
    "AttributesToGet",
    "ConditionalOperator",
    "Expected",
    "KeyConditions",
    "QueryFilter",
];

/// The longest partition key. (DynamoDB developer guide, "Constraints".)
const MAX_KEY_BYTES: usize = 2_048;

/// Notes the keys of a request and its answer.
pub(crate) fn note(
    (observed, tables): (&Observed, &[ServedTable]),
    (operation, body): (&str, &Members),
    reply: &Reply,
) {
    // What DynamoDB refuses is no load.
    let counts = reply.is_ok()
        || reply.throttled().is_some()
        || matches!(
            reply.error_type().as_str(),
            "ConditionalCheckFailedException" | "TransactionCanceledException"
        );
    if !counts {
        return;
    }
    let table_of = |name: &str| tables.iter().find(|table| table.is_named(name));
    let named =
        |members: &Members| members.get("TableName").and_then(Value::as_str).and_then(table_of);
    match operation {
        "PutItem" | "UpdateItem" | "DeleteItem" => {
            let of = if operation == "PutItem" { "Item" } else { "Key" };
            let (Some(table), Some(item)) = (named(body), object(body.get(of))) else { return };
            let Some(key) = key_of(table, item) else { return };
            observed.note((&table.name, key), units(item), reply.throttled());
            note_old((observed, &table.name, key), body);
        }
        "GetItem" | "Query" => {
            let Some(table) = named(body) else { return };
            let key = match operation {
                "GetItem" => {
                    object(body.get("Key")).and_then(|key| key_of(table, key)).map(str::to_owned)
                }
                _ => crate::query::partition_key(table, body).ok().flatten(),
            };
            if let Some(key) = key {
                note_old((observed, &table.name, &key), body);
            }
        }
        "BatchWriteItem" => {
            let answer = reply.members();
            let unprocessed = answer.get("UnprocessedItems");
            for (name, writes) in object(body.get("RequestItems")).into_iter().flatten() {
                let Some(table) = table_of(name) else { continue };
                let left = unprocessed.and_then(|left| left.get(name)?.as_array());
                for write in writes.as_array().into_iter().flatten() {
                    let is_left = left.is_some_and(|left| left.contains(write));
                    // A batch does not say which limit it was.
                    let limit = is_left.then_some(CapacityScope::KeyRange);
                    let item = object(write.pointer("/PutRequest/Item"))
                        .or_else(|| object(write.pointer("/DeleteRequest/Key")));
                    let Some(item) = item else { continue };
                    let Some(key) = key_of(table, item) else { continue };
                    observed.note((&table.name, key), units(item), limit.or(reply.throttled()));
                }
            }
        }
        "TransactWriteItems" => {
            let answer = reply.members();
            let reasons = answer.get("CancellationReasons").and_then(Value::as_array);
            let parts = body.get("TransactItems").and_then(Value::as_array);
            for (index, part) in parts.into_iter().flatten().enumerate() {
                let Some(part) = part.as_object().and_then(|part| part.values().next()) else {
                    continue;
                };
                let Some(part) = part.as_object() else { continue };
                let item = object(part.get("Item")).or_else(|| object(part.get("Key")));
                let (Some(table), Some(item)) = (named(part), item) else { continue };
                let Some(key) = key_of(table, item) else { continue };
                let code = reasons.and_then(|it| it.get(index)?.get("Code")?.as_str());
                let is_throttled =
                    matches!(code, Some("ThrottlingError" | "ProvisionedThroughputExceeded"));
                let limit = is_throttled.then_some(CapacityScope::KeyRange);
                // A transactional write takes two units for each.
                observed.note((&table.name, key), 2 * units(item), limit);
                observed.note_refused((&table.name, key), "TransactWriteItems");
            }
        }
        _ => {}
    }
}

fn object(value: Option<&Value>) -> Option<&Members> {
    value?.as_object()
}

/// The partition key, if DynamoDB can have it.
fn key_of<'a>(table: &ServedTable, item: &'a Members) -> Option<&'a str> {
    let key = item.get(table.partition_key_name())?.get("S")?.as_str();
    key.filter(|key| key.len() <= MAX_KEY_BYTES)
}

/// The write units of an item. An update or a deletion counts by its key, because its item is not
/// known.
fn units(item: &Members) -> u64 {
    let bytes: usize = item.values().map(|value| value.to_string().len()).sum();
    (bytes as u64).div_ceil(1_024).max(1)
}

fn note_old((observed, table, key): (&Observed, &str, &str), body: &Members) {
    for old in OLD_PARAMETERS.into_iter().filter(|old| body.contains_key(*old)) {
        observed.note_refused((table, key), old);
    }
}
