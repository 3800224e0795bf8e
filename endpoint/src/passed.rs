//! What a request that passed as it came shows of its keys, which are not armed.

use serde_json::Value;
use sharding::CapacityScope;
use sharding::internal::{MAX_PARTITION_KEY_BYTES, write_units};

use crate::item;
use crate::observed::Observed;
use crate::query::partition_key;
use crate::reply::{Members, Reply};
use crate::served::Service;
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

impl Service {
    /// Notes the keys of a request that passed, which are not armed.
    pub(crate) fn note(&self, operation: &str, body: &Members, reply: &Reply) {
        // What DynamoDB refuses is no load, but a condition that does not hold was evaluated.
        let evaluated = ["ConditionalCheckFailedException", "TransactionCanceledException"];
        let is_evaluated = || evaluated.contains(&reply.error_type().as_str());
        if !reply.is_ok() && reply.throttled().is_none() && !is_evaluated() {
            return;
        }
        let observed = &self.observed;
        let table_of = |name: &str| self.table(name);
        let named = |members: &Members| item::text(members, "TableName").and_then(table_of);
        match operation {
            "GetItem" | "PutItem" | "UpdateItem" | "DeleteItem" => {
                let of = if operation == "PutItem" { "Item" } else { "Key" };
                let Some((key, units)) = keyed(named(body), body.get(of)) else { return };
                if operation != "GetItem" {
                    observed.note(key, units, reply.throttled());
                }
                note_old(observed, key, body);
            }
            "Query" => {
                let Some(table) = named(body) else { return };
                if let Ok(Some(key)) = partition_key(table, body) {
                    note_old(observed, (&table.name, &key), body);
                }
            }
            "BatchWriteItem" => {
                let unprocessed = item::map(&reply.members(), "UnprocessedItems");
                let of_tables = body.get("RequestItems").and_then(Value::as_object);
                for (name, writes) in of_tables.into_iter().flatten() {
                    let left = item::list(&unprocessed, name);
                    for write in writes.as_array().into_iter().flatten() {
                        // A batch does not say which limit it was.
                        let limit = left.contains(write).then_some(CapacityScope::KeyRange);
                        let put = write.pointer("/PutRequest/Item");
                        let item = put.or_else(|| write.pointer("/DeleteRequest/Key"));
                        if let Some((key, units)) = keyed(table_of(name), item) {
                            observed.note(key, units, limit.or(reply.throttled()));
                        }
                    }
                }
            }
            "TransactWriteItems" => {
                let reasons = item::list(&reply.members(), "CancellationReasons");
                let parts = body.get("TransactItems").and_then(Value::as_array);
                for (index, part) in parts.into_iter().flatten().enumerate() {
                    let part = part.as_object().and_then(|part| part.values().next()?.as_object());
                    let Some(part) = part else { continue };
                    let item = part.get("Item").or_else(|| part.get("Key"));
                    let Some((key, units)) = keyed(named(part), item) else { continue };
                    let code = reasons.get(index).and_then(|reason| reason.get("Code")?.as_str());
                    let is_throttled =
                        matches!(code, Some("ThrottlingError" | "ProvisionedThroughputExceeded"));
                    let limit = is_throttled.then_some(CapacityScope::KeyRange);
                    // A transactional write takes two units for each.
                    observed.note(key, 2 * units, limit);
                    observed.note_refused(key, "TransactWriteItems");
                }
            }
            _ => {}
        }
    }
}

/// The table and the partition key of an item, and its write units. An update or a deletion counts
/// by its key, because its item is not known. `None` if DynamoDB cannot have the key.
fn keyed<'a>(
    table: Option<&'a ServedTable>,
    item: Option<&'a Value>,
) -> Option<((&'a str, &'a str), u64)> {
    let (table, item) = (table.filter(|table| table.can_be_armed)?, item?.as_object()?);
    let key = table.key_text(item).filter(|key| key.len() <= MAX_PARTITION_KEY_BYTES)?;
    let bytes: usize = item.values().map(|value| value.to_string().len()).sum();
    Some(((table.name.as_str(), key), write_units(bytes)))
}

fn note_old(observed: &Observed, key: (&str, &str), body: &Members) {
    for old in OLD_PARAMETERS.into_iter().filter(|old| body.contains_key(*old)) {
        observed.note_refused(key, old);
    }
}
