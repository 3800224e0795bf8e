//! The served tables and the server behind them: which table a request means, how a request passes
//! as it came, and what it then shows of its keys, which are not armed.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;
use sharding::CapacityScope;
use sharding::internal::{MAX_PARTITION_KEY_BYTES, Patterns, write_units};
use tokio::time::Instant;

use crate::item;
use crate::observed::Observed;
use crate::query::partition_key;
use crate::reply::{Failure, Members, Reply};
use crate::table::ServedTable;
use crate::upstream::{Upstream, answered};

/// A request, and when its answer is due.
pub(crate) struct Call<'a> {
    pub(crate) operation: &'a str,
    pub(crate) headers: &'a HeaderMap,
    /// The body as it came.
    pub(crate) raw: Bytes,
    pub(crate) body: Members,
    pub(crate) deadline: Instant,
}

impl Call<'_> {
    pub(crate) fn table(&self) -> &str {
        item::text(&self.body, "TableName").unwrap_or_default()
    }
}

/// The served tables, the server behind them, and what was seen of keys that are not armed.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) tables: Vec<ServedTable>,
    pub(crate) upstream: Upstream,
    pub(crate) observed: Observed,
}

impl Service {
    /// Passes a request as it came, while these patterns may be relied on. Of a request about a
    /// served table, its keys are observed.
    pub(crate) async fn pass(
        &self,
        call: &Call<'_>,
        patterns: Vec<Patterns>,
    ) -> Result<Reply, Failure> {
        let lasts = || patterns.iter().all(Patterns::last);
        let reply = answered(self.upstream.send(call.headers, call.raw.clone(), &lasts).await)?;
        if !patterns.is_empty() {
            self.note(call.operation, &call.body, &reply);
        }
        Ok(reply)
    }

    /// Notes the keys of a request that passed, which are not armed.
    pub(crate) fn note(&self, operation: &str, body: &Members, reply: &Reply) {
        // What DynamoDB refuses is no load, but a condition that does not hold was evaluated.
        let evaluated = ["ConditionalCheckFailedException", "TransactionCanceledException"];
        let is_evaluated = || evaluated.contains(&reply.error_type().as_str());
        if !reply.is_ok() && reply.throttled().is_none() && !is_evaluated() {
            return;
        }
        let observed = &self.observed;
        let note_unknown = |key: (&str, &str)| {
            for name in item::unknown_members(operation, body) {
                observed.note_refused(key, name);
            }
        };
        let table_of = |name: &str| self.table(name);
        let named = |members: &Members| item::text(members, "TableName").and_then(table_of);
        match operation {
            "GetItem" | "PutItem" | "UpdateItem" | "DeleteItem" => {
                let of = if operation == "PutItem" { "Item" } else { "Key" };
                let Some((key, units)) = keyed(named(body), body.get(of)) else { return };
                if operation != "GetItem" {
                    observed.note(key, units, reply.throttled());
                }
                note_unknown(key);
            }
            "Query" => {
                let Some(table) = named(body) else { return };
                if let Ok(Some(key)) = partition_key(table, body) {
                    note_unknown((&table.name, &key));
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

    /// The served table that a request means by this name.
    pub(crate) fn table(&self, name: &str) -> Option<&ServedTable> {
        self.tables.iter().find(|table| table.is_named(name))
    }

    /// The served table of a name, with its patterns. `None` if it is another table.
    pub(crate) async fn patterns_of(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<(&ServedTable, Patterns)>, Failure> {
        if self.tables.iter().any(|table| !table.is_named(name) && table.is_arn(name)) {
            return Err(Failure::validation(format!(
                "{name} is a table of another account or region; this endpoint signs for its own \
                 (sharding-endpoint)"
            )));
        }
        let Some(table) = self.table(name) else { return Ok(None) };
        Ok(Some((table, table.engine.patterns(deadline).await?)))
    }
}

/// The table and the partition key of an item, and its write units. An update or a deletion counts
/// by its key, because its item is not known. `None` if DynamoDB cannot have the key.
fn keyed<'a>(
    table: Option<&'a ServedTable>,
    item: Option<&'a Value>,
) -> Option<((&'a str, &'a str), u64)> {
    let (table, item) = (table?, item?.as_object()?);
    let key = table.key_text(item).filter(|key| key.len() <= MAX_PARTITION_KEY_BYTES)?;
    let bytes: usize = item.values().map(|value| value.to_string().len()).sum();
    Some(((table.name.as_str(), key), write_units(bytes)))
}
