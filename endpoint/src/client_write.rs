//! A write of one item of an armed key, as the client sent it: read and checked.

use sharding::{PartitionKey, SortKey};
use tokio::time::Instant;

use crate::expression::{self, Clauses, Placeholders};
use crate::item::{self, check_members};
use crate::reply::{Failure, Members};
use crate::table::{ServedTable, check_is_key};

/// The members of a write of an armed key. Any other is refused.
const MEMBERS: [&str; 11] = [
    "TableName",
    "Item",
    "Key",
    "UpdateExpression",
    "ConditionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "ReturnValues",
    "ReturnConsumedCapacity",
    "ReturnItemCollectionMetrics",
    "ReturnValuesOnConditionCheckFailure",
];

/// A write of one item of an armed key, as the client sent it.
#[derive(Debug)]
pub(crate) struct ClientWrite<'a> {
    pub(crate) table: &'a ServedTable,
    pub(crate) operation: &'a str,
    pub(crate) key: &'a PartitionKey,
    pub(crate) sort_key: SortKey,
    pub(crate) body: &'a Members,
    /// The clauses of an update.
    pub(crate) clauses: Clauses,
    pub(crate) deadline: Instant,
}

impl<'a> ClientWrite<'a> {
    /// Reads a client's request.
    pub(crate) fn read(
        table: &'a ServedTable,
        operation: &'a str,
        key: &'a PartitionKey,
        body: &'a Members,
        deadline: Instant,
    ) -> Result<Self, Failure> {
        check_members(operation, body, &[&MEMBERS])?;
        let of = if operation == "PutItem" { "Item" } else { "Key" };
        let item = item::map(body, of);
        item::check_names(item.keys().map(String::as_str))?;
        let sort_key = if of == "Key" {
            check_is_key(&item)?;
            table.sort_key(&item)?
        } else {
            table.sort_key_to_put(&item)?
        };
        let shown = item::text(body, "ReturnValuesOnConditionCheckFailure").unwrap_or("NONE");
        if !["NONE", "ALL_OLD"].contains(&shown) {
            return Err(Failure::validation(format!(
                "1 validation error detected: Value '{shown}' at \
                 'returnValuesOnConditionCheckFailure' failed to satisfy constraint: Member must \
                 satisfy enum value set: [ALL_OLD, NONE]"
            )));
        }
        let placeholders = Placeholders::of(body);
        for name in ["ConditionExpression", "UpdateExpression"] {
            expression::check(body, name, &placeholders)?;
        }
        let clauses = Clauses::parse(item::text(body, "UpdateExpression").unwrap_or_default())
            .ok_or_else(|| Failure::validation("Invalid UpdateExpression: Syntax error"))?;
        let keys = [table.partition_key_name(), table.sort_key_name()];
        if clauses.read(&placeholders).iter().any(|name| keys.contains(name)) {
            return Err(Failure::unsupported("a key name on the right-hand side of an update"));
        }
        Ok(Self { table, operation, key, sort_key, body, clauses, deadline })
    }
}
