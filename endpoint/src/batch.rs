//! `BatchGetItem` and `BatchWriteItem`: items of armed keys one by one, all others as they came.

use std::collections::HashSet;

use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use sharding::internal::Patterns;
use sharding::{MAX_ITEM_BYTES, PartitionKey};
use tokio::time::Instant;

use crate::item;
use crate::read::get;
use crate::reply::{Failure, Members, Reply};
use crate::request::ClientWrite;
use crate::served::{Call, Service};
use crate::table::ServedTable;
use crate::upstream::answered;

/// The items of one request that are worked on at once.
const CONCURRENCY: usize = 32;
/// The largest number of items of a batch. (DynamoDB API reference, `BatchWriteItem`.)
const MAX_WRITES: usize = 25;
const MAX_READS: usize = 100;
/// The largest response. (DynamoDB developer guide, "BatchGetItem".)
const MAX_BATCH_BYTES: usize = 16 * 1_024 * 1_024;

/// A part of a batch that is an armed key's.
struct Part<'a> {
    table: &'a ServedTable,
    /// The table as the client names it.
    name: String,
    key: PartitionKey,
    operation: &'static str,
    body: Members,
    /// What the client sent, for what stays unprocessed.
    sent: Value,
}

impl Part<'_> {
    fn write(&self, deadline: Instant) -> Result<ClientWrite<'_>, Failure> {
        ClientWrite::read(self.table, self.operation, &self.key, &self.body, deadline)
    }

    async fn reply(&self, deadline: Instant) -> Result<Reply, Failure> {
        let reply = match self.operation {
            "GetItem" => get(self.table, &self.key, &self.body, deadline).await,
            _ => self.write(deadline)?.run().await,
        };
        reply.and_then(Reply::success)
    }

    /// Leaves this part unprocessed. A key to read has the members for all keys of its table.
    fn leave(&self, unprocessed: &mut Members) {
        if self.operation != "GetItem" {
            push(unprocessed, &self.name, [self.sent.clone()]);
            return;
        }
        let of_table = unprocessed.entry(self.name.as_str()).or_insert_with(|| {
            let mut how = self.body.clone();
            how.retain(|name, _| !["TableName", "Key"].contains(&name.as_str()));
            Value::Object(how)
        });
        if let Some(of_table) = of_table.as_object_mut() {
            push(of_table, "Keys", [self.sent.clone()]);
        }
    }
}

/// Adds to the list of a table.
fn push(lists: &mut Members, table: &str, values: impl IntoIterator<Item = Value>) {
    let list = lists.entry(table).or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut() {
        list.extend(values);
    }
}

/// A batch, divided by whether keys are armed.
#[derive(Default)]
struct Divided<'a> {
    parts: Vec<Part<'a>>,
    /// The items of keys that are not armed, in the form of the request, and by which patterns.
    native: Members,
    patterns: Vec<Patterns>,
}

impl<'a> Divided<'a> {
    /// Divides a batch, and refuses one with too many items. Without a part, it passes as it came.
    async fn of(service: &'a Service, call: &Call<'_>, most: usize) -> Result<Self, Failure> {
        let (operation, mut divided, mut count) = (call.operation, Self::default(), 0);
        let is_read = operation == "BatchGetItem";
        for (name, of_table) in item::map(&call.body, "RequestItems") {
            // A read has its keys beside members for all of them.
            let mut how = of_table.as_object().cloned().unwrap_or_default();
            let keys = how.remove("Keys");
            let requests = if is_read { keys.as_ref() } else { Some(&of_table) };
            let requests = requests.and_then(Value::as_array).cloned().unwrap_or_default();
            count += requests.len();
            let Some((table, patterns)) = service.patterns_of(&name, call.deadline).await? else {
                divided.native.insert(name, of_table);
                continue;
            };
            let mut left = Vec::new();
            for request in requests {
                let put = request.pointer("/PutRequest/Item");
                let (operation, of, item) = match put {
                    _ if is_read => ("GetItem", "Key", Some(&request)),
                    Some(_) => ("PutItem", "Item", put),
                    None => ("DeleteItem", "Key", request.pointer("/DeleteRequest/Key")),
                };
                let item = item.and_then(Value::as_object).cloned().unwrap_or_default();
                let Some(key) = table.armed(&patterns, &item)? else {
                    left.push(request);
                    continue;
                };
                let mut body = how.clone();
                body.insert("TableName".to_owned(), Value::from(table.name.as_str()));
                body.insert(of.to_owned(), Value::Object(item));
                let name = name.clone();
                divided.parts.push(Part { table, name, key, operation, body, sent: request });
            }
            divided.patterns.push(patterns);
            if left.is_empty() {
                continue;
            }
            let mut left = Value::Array(left);
            if is_read {
                how.insert("Keys".to_owned(), left);
                left = Value::Object(how);
            }
            divided.native.insert(name, left);
        }
        if !divided.parts.is_empty() {
            if count > most {
                let why = format!("Too many items requested for the {operation} call");
                return Err(Failure::validation(why));
            }
            let known = ["RequestItems", "ReturnConsumedCapacity"];
            if let Some(name) = call.body.keys().find(|name| !known.contains(&name.as_str())) {
                return Err(Failure::unsupported(&format!("{name} of {operation}")));
            }
        }
        Ok(divided)
    }

    /// The answer to the items of keys that are not armed, and what the member `left` says is
    /// unprocessed. All of them are if they were throttled, and the answer is empty.
    async fn native_answer(
        &self,
        service: &Service,
        call: &Call<'_>,
        left: &str,
    ) -> Result<(Members, Members, Option<Failure>), Failure> {
        if self.native.is_empty() {
            return Ok((Members::new(), Members::new(), None));
        }
        let mut request = call.body.clone();
        request.insert("RequestItems".to_owned(), Value::Object(self.native.clone()));
        let lasts = || self.patterns.iter().all(Patterns::last);
        let reply = answered(service.upstream.call(call.operation, &request, &lasts).await)?;
        service.note(call.operation, &request, &reply);
        if reply.throttled().is_some() {
            return Ok((Members::new(), self.native.clone(), Some(Failure::of(reply))));
        }
        let answer = reply.success()?.members();
        let left = item::map(&answer, left);
        Ok((answer, left, None))
    }
}

/// The parts about different items. DynamoDB refuses two writes of one item, and two equal keys to
/// read. Of two spellings of a number to read, it returns the item once.
fn different(parts: Vec<Part<'_>>) -> Result<Vec<Part<'_>>, Failure> {
    let (mut items, mut spelled, mut different) = (HashSet::new(), HashSet::new(), Vec::new());
    for part in parts {
        let is_read = part.operation == "GetItem";
        let item = item::map(&part.body, if part.operation == "PutItem" { "Item" } else { "Key" });
        let name = if is_read { &part.name } else { &part.table.name };
        let of_key = (name.clone(), part.key.clone());
        let spelling = item.get(part.table.sort_key_name()).map(Value::to_string);
        let is_spelled_anew = spelled.insert((of_key.clone(), spelling));
        if items.insert((of_key, part.table.sort_key(&item)?)) {
            different.push(part);
        } else if !is_read || !is_spelled_anew {
            return Err(Failure::validation("Provided list of item keys contains duplicates"));
        }
    }
    Ok(different)
}

/// Refuses an item that DynamoDB would refuse, before anything of the batch is stored.
fn check_item(part: &Part<'_>) -> Result<(), Failure> {
    let Some(item) = part.body.get("Item").and_then(Value::as_object) else { return Ok(()) };
    let attributes = part.table.attributes(item).ok_or_else(|| {
        Failure::validation("Supplied AttributeValue has a wrong type, or more than one")
    })?;
    if attributes.size() + part.key.as_str().len() > MAX_ITEM_BYTES {
        return Err(Failure::validation("Item size has exceeded the maximum allowed size"));
    }
    Ok(())
}

/// `BatchGetItem` or `BatchWriteItem`.
pub(crate) async fn answer(service: &Service, call: &Call<'_>) -> Result<Reply, Failure> {
    let is_read = call.operation == "BatchGetItem";
    let (most, left) =
        if is_read { (MAX_READS, "UnprocessedKeys") } else { (MAX_WRITES, "UnprocessedItems") };
    let mut batch = Divided::of(service, call, most).await?;
    if batch.parts.is_empty() {
        return service.pass(call, batch.patterns).await;
    }
    batch.parts = different(batch.parts)?;
    for part in batch.parts.iter().filter(|_| !is_read) {
        part.write(call.deadline)?;
        check_item(part)?;
    }
    // First, so that DynamoDB refuses it before anything is stored.
    let (mut answer, mut unprocessed, mut throttled) =
        batch.native_answer(service, call, left).await?;
    let mut responses = item::map(&answer, "Responses");
    let (mut is_begun, mut bytes, mut failed) = (!answer.is_empty(), 0, None);
    let replies: Vec<_> = batch.parts.iter().map(|it| it.reply(call.deadline).boxed()).collect();
    let replies: Vec<_> = stream::iter(replies).buffered(CONCURRENCY).collect().await;
    for (part, reply) in batch.parts.iter().zip(replies) {
        match reply {
            // The client asks for the rest in another request.
            Ok(reply) if bytes + reply.body.len() > MAX_BATCH_BYTES => part.leave(&mut unprocessed),
            Ok(reply) => {
                (is_begun, bytes) = (true, bytes + reply.body.len());
                if is_read {
                    push(&mut responses, &part.name, reply.members().remove("Item"));
                }
            }
            Err(failure) if failure.is_throttled() => {
                part.leave(&mut unprocessed);
                throttled = Some(failure);
            }
            Err(failure) => failed = Some(failure),
        }
    }
    if let Some(failure) = failed.or_else(|| throttled.filter(|_| !is_begun)) {
        return Err(failure);
    }
    if is_read {
        answer.insert("Responses".to_owned(), Value::Object(responses));
    }
    answer.insert(left.to_owned(), Value::Object(unprocessed));
    Ok(Reply::ok(answer))
}
