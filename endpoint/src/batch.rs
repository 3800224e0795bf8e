//! `BatchGetItem` and `BatchWriteItem`: items of armed keys one by one, all others as they came.

use std::collections::HashSet;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use sharding::internal::Patterns;
use sharding::{MAX_ITEM_BYTES, PartitionKey};
use tokio::time::Instant;

use crate::item;
use crate::read::get;
use crate::reply::{Failure, Members, Reply};
use crate::service::Service;
use crate::table::ServedTable;
use crate::upstream::answered;
use crate::write::{ClientWrite, check_members};

/// The items of one request that are worked on at once.
const CONCURRENCY: usize = 32;
/// The largest number of items of a batch. (DynamoDB API reference, `BatchWriteItem`.)
const MAX_WRITES: usize = 25;
const MAX_READS: usize = 100;
/// The largest response. (DynamoDB developer guide, "BatchGetItem".)
const MAX_BATCH_BYTES: usize = 16 * 1_024 * 1_024;

/// What became of a batch.
pub(crate) enum Batch {
    Answered(Reply),
    /// No key of it is armed, by these patterns: it passes as it came.
    Native(Vec<Patterns>),
}

/// A part of a batch that is an armed key's.
struct Part {
    table: ServedTable,
    /// The table as the client names it.
    name: String,
    key: PartitionKey,
    operation: &'static str,
    body: Members,
    /// What the client sent, for what stays unprocessed.
    sent: Value,
}

impl Part {
    fn written<'a>(
        &'a self,
        service: &'a Service,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Reply, Failure>> {
        let of = (&self.table, &service.upstream);
        let write = ClientWrite::read(of, self.operation, &self.key, &self.body, deadline);
        async move { write?.run().await }.boxed()
    }

    fn found<'a>(
        &'a self,
        service: &'a Service,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Reply, Failure>> {
        get((&self.table, &service.upstream), &self.key, &self.body, deadline).boxed()
    }
}

fn refused(operation: &str, sizes: usize, most: usize) -> Option<Failure> {
    let why = match sizes {
        0 => format!("{operation} cannot have a null or no requests set"),
        _ if sizes > most => format!("Too many items requested for the {operation} call"),
        _ => return None,
    };
    Some(Failure::validation(why))
}

/// Refuses two requests about one item of an armed key.
fn check_duplicates(parts: &[Part]) -> Result<(), Failure> {
    let mut different = HashSet::new();
    for part in parts {
        let item = part.body.get("Item").or_else(|| part.body.get("Key"));
        let item = item.and_then(Value::as_object).cloned().unwrap_or_default();
        let sort_key = item::sort_key(&part.table, &item)?;
        if !different.insert((part.table.name.as_str(), &part.key, sort_key)) {
            return Err(Failure::validation("Provided list of item keys contains duplicates"));
        }
    }
    Ok(())
}

/// The reads without those of the same item: DynamoDB refuses two equal keys, and of two spellings
/// of a number it returns the item once.
fn without_twins(parts: Vec<Part>) -> Result<Vec<Part>, Failure> {
    let (mut spelled, mut different) = (HashSet::new(), HashSet::new());
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        let key = part.body.get("Key").and_then(Value::as_object).cloned().unwrap_or_default();
        let sort_key = item::sort_key(&part.table, &key)?;
        let spelling = key.get(part.table.sort_key_name()).map(Value::to_string);
        if !spelled.insert((part.name.clone(), part.key.clone(), spelling)) {
            return Err(Failure::validation("Provided list of item keys contains duplicates"));
        }
        if different.insert((part.name.clone(), part.key.clone(), sort_key)) {
            kept.push(part);
        }
    }
    Ok(kept)
}

/// Refuses an item that DynamoDB would refuse, before anything of the batch is stored.
fn check_item(part: &Part) -> Result<(), Failure> {
    let Some(item) = part.body.get("Item").and_then(Value::as_object) else { return Ok(()) };
    let attributes = item::attributes(&part.table, item).ok_or_else(|| {
        Failure::validation("Supplied AttributeValue has a wrong type, or more than one")
    })?;
    if attributes.size() + part.key.as_str().len() > MAX_ITEM_BYTES {
        return Err(Failure::validation("Item size has exceeded the maximum allowed size"));
    }
    Ok(())
}

/// `BatchWriteItem`.
pub(crate) async fn write(
    service: &Service,
    body: &Members,
    deadline: Instant,
) -> Result<Batch, Failure> {
    let of_tables =
        body.get("RequestItems").and_then(Value::as_object).cloned().unwrap_or_default();
    let (mut native, mut parts, mut count) = (Members::new(), Vec::new(), 0);
    let mut lasting = Vec::new();
    for (name, requests) in of_tables {
        let requests = requests.as_array().cloned().unwrap_or_default();
        count += requests.len();
        let Some((table, patterns)) = service.patterns_of(&name, deadline).await? else {
            native.insert(name, Value::Array(requests));
            continue;
        };
        let mut left = Vec::new();
        for request in requests {
            let put = request.get("PutRequest").and_then(|it| it.get("Item"));
            let delete = request.get("DeleteRequest").and_then(|it| it.get("Key"));
            let item = put.or(delete).and_then(Value::as_object).cloned().unwrap_or_default();
            let armed = Service::armed(&table, &patterns, &item)?;
            let Some(key) = armed else {
                left.push(request);
                continue;
            };
            let (operation, of) =
                if put.is_some() { ("PutItem", "Item") } else { ("DeleteItem", "Key") };
            let mut body = Members::new();
            body.insert("TableName".to_owned(), Value::from(table.name.as_str()));
            body.insert(of.to_owned(), Value::Object(item));
            let (table, name) = (table.clone(), name.clone());
            parts.push(Part { table, name, key, operation, body, sent: request });
        }
        lasting.push(patterns);
        if !left.is_empty() {
            native.insert(name, Value::Array(left));
        }
    }
    if parts.is_empty() {
        return Ok(Batch::Native(lasting));
    }
    if let Some(failure) = refused("BatchWriteItem", count, MAX_WRITES) {
        return Err(failure);
    }
    check_members("BatchWriteItem", body, &["RequestItems", "ReturnConsumedCapacity"])?;
    check_duplicates(&parts)?;
    for part in &parts {
        let of = (&part.table, &service.upstream);
        ClientWrite::read(of, part.operation, &part.key, &part.body, deadline)?;
        check_item(part)?;
    }
    let (mut unprocessed, mut throttled, mut done) = (Members::new(), None, 0);
    let mut answer = Members::new();
    // First, so that DynamoDB refuses it before anything is stored.
    if !native.is_empty() {
        let mut request = body.clone();
        request.insert("RequestItems".to_owned(), Value::Object(native.clone()));
        let lasts = || lasting.iter().all(|patterns| patterns.last());
        let reply = answered(service.upstream.call("BatchWriteItem", &request, &lasts).await)?;
        service.observe(("BatchWriteItem", &request), &reply);
        if reply.is_ok() {
            done += 1;
            answer = reply.members();
            let left = answer.remove("UnprocessedItems");
            unprocessed.extend(left.and_then(|left| left.as_object().cloned()).unwrap_or_default());
        } else if reply.throttled().is_some() {
            throttled = Some(Failure::of(reply));
            unprocessed.extend(native);
        } else {
            return Err(Failure::of(reply));
        }
    }
    let writes: Vec<_> = parts.iter().map(|part| part.written(service, deadline)).collect();
    let written: Vec<Result<Reply, Failure>> =
        stream::iter(writes).buffered(CONCURRENCY).collect().await;
    let mut failed = None;
    for (part, result) in parts.iter().zip(written) {
        let failure = match result {
            Ok(reply) if reply.is_ok() => {
                done += 1;
                continue;
            }
            Ok(reply) => Failure::of(reply),
            Err(failure) => failure,
        };
        if failure.is_throttled() {
            let of_table = unprocessed.entry(part.name.clone()).or_insert_with(|| json!([]));
            of_table.as_array_mut().into_iter().for_each(|it| it.push(part.sent.clone()));
            throttled = Some(failure);
        } else {
            failed = Some(failure);
        }
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    if let (0, Some(failure)) = (done, throttled) {
        return Err(failure);
    }
    answer.insert("UnprocessedItems".to_owned(), Value::Object(unprocessed));
    Ok(Batch::Answered(Reply::ok(answer)))
}

/// `BatchGetItem`.
pub(crate) async fn read(
    service: &Service,
    body: &Members,
    deadline: Instant,
) -> Result<Batch, Failure> {
    let of_tables =
        body.get("RequestItems").and_then(Value::as_object).cloned().unwrap_or_default();
    let (mut native, mut parts, mut count) = (Members::new(), Vec::new(), 0);
    let mut lasting = Vec::new();
    for (name, of_table) in of_tables {
        let how = of_table.as_object().cloned().unwrap_or_default();
        let keys = how.get("Keys").and_then(Value::as_array).cloned().unwrap_or_default();
        count += keys.len();
        let Some((table, patterns)) = service.patterns_of(&name, deadline).await? else {
            native.insert(name, of_table);
            continue;
        };
        let mut left = Vec::new();
        for wanted in keys {
            let key = wanted.as_object().cloned().unwrap_or_default();
            let armed = Service::armed(&table, &patterns, &key)?;
            let Some(partition_key) = armed else {
                left.push(wanted);
                continue;
            };
            let mut body = how.clone();
            body.remove("Keys");
            body.insert("TableName".to_owned(), Value::from(table.name.as_str()));
            body.insert("Key".to_owned(), Value::Object(key));
            parts.push(Part {
                table: table.clone(),
                name: name.clone(),
                key: partition_key,
                operation: "GetItem",
                body,
                sent: wanted,
            });
        }
        lasting.push(patterns);
        if !left.is_empty() {
            let mut how = how;
            how.insert("Keys".to_owned(), Value::Array(left));
            native.insert(name, Value::Object(how));
        }
    }
    if parts.is_empty() {
        return Ok(Batch::Native(lasting));
    }
    if let Some(failure) = refused("BatchGetItem", count, MAX_READS) {
        return Err(failure);
    }
    check_members("BatchGetItem", body, &["RequestItems", "ReturnConsumedCapacity"])?;
    parts = without_twins(parts)?;
    let reads: Vec<_> = parts.iter().map(|part| part.found(service, deadline)).collect();
    let read: Vec<Result<Reply, Failure>> =
        stream::iter(reads).buffered(CONCURRENCY).collect().await;
    let (mut responses, mut unprocessed) = (Members::new(), Members::new());
    let (mut done, mut throttled, mut bytes) = (0, None, 0);
    for (part, result) in parts.iter().zip(read) {
        let failure = match result {
            Ok(reply) if reply.is_ok() && bytes + reply.body.len() <= MAX_BATCH_BYTES => {
                (done, bytes) = (done + 1, bytes + reply.body.len());
                let of_table = responses.entry(part.name.clone()).or_insert_with(|| json!([]));
                let item = reply.members().remove("Item");
                of_table.as_array_mut().into_iter().for_each(|it| it.extend(item.clone()));
                continue;
            }
            // The client asks for the rest in another request.
            Ok(reply) if reply.is_ok() => None,
            Ok(reply) => Some(Failure::of(reply)),
            Err(failure) => Some(failure),
        };
        match failure {
            Some(failure) if !failure.is_throttled() => return Err(failure),
            failure => throttled = failure.or(throttled),
        }
        let of_table = unprocessed.entry(part.name.clone()).or_insert_with(|| {
            let mut how = part.body.clone();
            for name in ["TableName", "Key"] {
                how.remove(name);
            }
            how.insert("Keys".to_owned(), json!([]));
            Value::Object(how)
        });
        let keys = of_table.get_mut("Keys").and_then(Value::as_array_mut);
        keys.into_iter().for_each(|it| it.push(part.sent.clone()));
    }
    let mut answer = Members::new();
    if !native.is_empty() {
        let mut request = body.clone();
        request.insert("RequestItems".to_owned(), Value::Object(native));
        let lasts = || lasting.iter().all(|patterns| patterns.last());
        let of_tables = request.get("RequestItems").cloned();
        let reply = answered(service.upstream.call("BatchGetItem", &request, &lasts).await)?;
        if reply.is_ok() {
            (done, answer) = (done + 1, reply.members());
        } else if reply.throttled().is_some() {
            throttled = Some(Failure::of(reply));
            answer.extend(of_tables.map(|left| ("UnprocessedKeys".to_owned(), left)));
        } else {
            return Err(Failure::of(reply));
        }
        for (name, items) in
            answer.remove("Responses").as_ref().and_then(Value::as_object).into_iter().flatten()
        {
            let of_table = responses.entry(name.clone()).or_insert_with(|| json!([]));
            let items = items.as_array().cloned().unwrap_or_default();
            of_table.as_array_mut().into_iter().for_each(|it| it.extend(items.clone()));
        }
        let left = answer.remove("UnprocessedKeys");
        for (name, of_table) in left.as_ref().and_then(Value::as_object).into_iter().flatten() {
            let keys = of_table.get("Keys").and_then(Value::as_array).cloned().unwrap_or_default();
            let merged = unprocessed.entry(name.clone()).or_insert_with(|| {
                let mut how = of_table.clone();
                how["Keys"] = json!([]);
                how
            });
            let merged = merged.get_mut("Keys").and_then(Value::as_array_mut);
            merged.into_iter().for_each(|it| it.extend(keys.clone()));
        }
    }
    if let (0, Some(failure)) = (done, throttled) {
        return Err(failure);
    }
    answer.insert("Responses".to_owned(), Value::Object(responses));
    answer.insert("UnprocessedKeys".to_owned(), Value::Object(unprocessed));
    Ok(Batch::Answered(Reply::ok(answer)))
}
