//! The writer: it parses requests, chooses shards and writes items.

mod shard_scaler;
pub mod shortage;

use api::{
    ItemJson, NewItem, Operation, Problem, Request, Response, SortKeyJson, attributes_body,
    item_body, items_body, json, no_route, route,
};
use futures_util::{StreamExt, stream};
use lambda_http::http::HeaderValue;
use serde::Serialize;
use sharding::{PartitionKey, ShardedTable, SortKey, WriteError, Writes, Written};
use tokio::time::Instant as Deadline;

pub use shard_scaler::{ShardScaler, VARIABLES};

/// The number of attempts, for all items of the request.
pub const ATTEMPTS_HEADER: &str = "x-attempts";
/// The number of throttled attempts.
pub const THROTTLED_HEADER: &str = "x-throttled-attempts";
/// Items of a batch that are under way at once.
const CONCURRENCY: usize = 64;
/// The number of items with a throttled attempt.
pub const THROTTLED_ITEMS_HEADER: &str = "x-throttled-items";

#[derive(Serialize)]
struct Stored<'a> {
    partition_key: &'a str,
    sort_key: SortKeyJson<'a>,
    shard: u32,
    number_of_shards: u32,
}

#[derive(Serialize)]
struct BatchResponse {
    written: usize,
    failed: Vec<FailedItem>,
}

#[derive(Serialize)]
struct FailedItem {
    index: usize,
    code: &'static str,
    detail: String,
    retryable: bool,
}

type Handled = Result<Response<lambda_http::Body>, Problem>;

/// Handles one request of the writer's routes.
pub async fn handle(
    table: &ShardedTable,
    request: Request,
    deadline: Deadline,
) -> Response<lambda_http::Body> {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let result = match route(method, path).map(|(_, operation)| operation) {
        Some(Operation::StoreItem) => post_item(table, &request, deadline).await,
        Some(Operation::StoreItems) => post_batch(table, &request, deadline).await,
        Some(Operation::ReplaceItem) => put_item(table, &request, deadline).await,
        Some(Operation::UpdateItem) => patch_item(table, &request, deadline).await,
        Some(Operation::DeleteItem) => delete_item(table, &request, deadline).await,
        Some(Operation::GetItem | Operation::GetItems | Operation::GetShards) | None => {
            Err(no_route(method, path))
        }
    };
    result.unwrap_or_else(Problem::into_response)
}

async fn post_item(table: &ShardedTable, request: &Request, deadline: Deadline) -> Handled {
    api::Parameters::of(request, &[])?;
    let idempotency_key = api::idempotency_key(request)?;
    let create_only = api::create_only(request)?;
    let item = item_body(request, table, idempotency_key.as_ref(), create_only)?;
    let partition_key = item.partition_key.clone();
    let written = if create_only {
        let sort_key = item.sort_key.unwrap_or_else(|| table.make_sort_key());
        let create = table.create(&partition_key, &sort_key, item.attributes).deadline(deadline);
        match &idempotency_key {
            Some(key) => create.idempotency_key(key.as_str()).await,
            None => create.await,
        }
    } else {
        store(table, item, idempotency_key.is_some(), deadline).await
    };
    Ok(respond_stored(201, &partition_key, written))
}

/// Stores an item: under the sort key that it has, or under one that the table makes.
async fn store(
    table: &ShardedTable,
    NewItem { partition_key, sort_key, attributes }: NewItem,
    once: bool,
    deadline: Deadline,
) -> Result<Written, WriteError> {
    match sort_key {
        Some(key) => table.put(partition_key, key, attributes).once(once).deadline(deadline).await,
        None => table.append(partition_key, attributes).deadline(deadline).await,
    }
}

async fn put_item(table: &ShardedTable, request: &Request, deadline: Deadline) -> Handled {
    let conditions = api::conditions(request)?;
    api::no_idempotency_key(request)?;
    let (partition_key, sort_key) = item_keys(table, request)?;
    let attributes = attributes_body(request, table, &partition_key, &sort_key)?;
    check_point_writes(table)?;
    let put = table.put(&partition_key, &sort_key, attributes).deadline(deadline);
    let written = put.conditions(conditions).await;
    Ok(respond_stored(200, &partition_key, written))
}

async fn patch_item(table: &ShardedTable, request: &Request, deadline: Deadline) -> Handled {
    let conditions = api::conditions(request)?;
    let idempotency_key = api::idempotency_key(request)?;
    let (partition_key, sort_key) = item_keys(table, request)?;
    let patch = api::patch_body(request, table, &partition_key, &sort_key)?;
    check_point_writes(table)?;
    let update = table.update(&partition_key, &sort_key).patch(patch).conditions(conditions);
    let update = match &idempotency_key {
        Some(key) => update.idempotency_key(key.as_str()),
        None => update,
    };
    let updated = update.deadline(deadline).await;
    Ok(respond(
        updated,
        |updated| &updated.written,
        |updated| {
            let (partition_key, sort_key) = (&partition_key, &sort_key);
            let item = ItemJson { partition_key, sort_key, attributes: &updated.attributes };
            api::tagged(api::item(200, item), Some(&updated.tag))
        },
    ))
}

async fn delete_item(table: &ShardedTable, request: &Request, deadline: Deadline) -> Handled {
    let conditions = api::conditions(request)?;
    api::no_idempotency_key(request)?;
    let (partition_key, sort_key) = item_keys(table, request)?;
    check_point_writes(table)?;
    let deleted =
        table.delete(&partition_key, &sort_key).conditions(conditions).deadline(deadline).await;
    Ok(respond(deleted, |written| written, |_| api::no_content()))
}

fn item_keys(table: &ShardedTable, request: &Request) -> Result<(PartitionKey, SortKey), Problem> {
    let parameters = api::Parameters::of(request, &["partition_key", "sort_key"])?;
    let partition_key = api::partition_key(&parameters, table)?;
    Ok((partition_key, api::sort_key("sort_key", parameters.required("sort_key")?, table)?))
}

fn check_point_writes(table: &ShardedTable) -> Result<(), Problem> {
    if table.config().writes() == Writes::Items { Ok(()) } else { Err(Problem::append_only("GET")) }
}

fn respond<T>(
    result: Result<T, WriteError>,
    written: impl FnOnce(&T) -> &Written,
    success: impl FnOnce(&T) -> Response<lambda_http::Body>,
) -> Response<lambda_http::Body> {
    let effort = Effort::of(result.as_ref().map(written));
    let mut response = match result {
        Ok(done) => success(&done),
        Err(error) => {
            let sort_key = error.sort_key.clone();
            Problem::from_write(error).about(sort_key.as_deref()).into_response()
        }
    };
    effort.add_headers(&mut response);
    response
}

fn respond_stored(
    status: u16,
    partition_key: &PartitionKey,
    written: Result<Written, WriteError>,
) -> Response<lambda_http::Body> {
    let stored = |done: &Written| {
        let stored = Stored {
            partition_key: partition_key.as_str(),
            sort_key: SortKeyJson(&done.sort_key),
            shard: done.shard,
            number_of_shards: done.number_of_shards,
        };
        api::tagged(json(status, &stored), done.tag.as_ref())
    };
    respond(written, |written| written, stored)
}

async fn post_batch(table: &ShardedTable, request: &Request, deadline: Deadline) -> Handled {
    api::Parameters::of(request, &[])?;
    api::unconditional(request)?;
    let idempotency_key = api::idempotency_key(request)?;
    let items = items_body(request, table, idempotency_key.as_ref())?;
    let once = idempotency_key.is_some();
    let stored = items
        .into_iter()
        .enumerate()
        .map(|(index, item)| async move { (index, store(table, item, once, deadline).await) });
    let mut results: Vec<_> = stream::iter(stored).buffer_unordered(CONCURRENCY).collect().await;
    results.sort_unstable_by_key(|(index, _)| *index);
    let mut effort = Effort::default();
    let mut body = BatchResponse { written: 0, failed: Vec::new() };
    for (index, result) in results {
        effort.add(&Effort::of(result.as_ref()));
        match result {
            Ok(_) => body.written += 1,
            Err(error) => {
                let sort_key = error.sort_key.clone();
                let problem = Problem::from_write(error).about(sort_key.as_deref());
                let (code, retryable) = (problem.code(), problem.is_retryable());
                let detail = problem.detail().to_owned();
                body.failed.push(FailedItem { index, code, detail, retryable });
            }
        }
    }
    let status = if body.failed.is_empty() { 200 } else { 207 };
    let mut response = json(status, &body);
    effort.add_headers(&mut response);
    if body.failed.iter().any(|failed| failed.retryable) {
        response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
    }
    Ok(response)
}

/// The attempts of a request. Headers report them, so that a client sees throttling even if a retry
/// succeeded.
#[derive(Default)]
struct Effort {
    attempts: u32,
    throttled: u32,
    throttled_items: u32,
}

impl Effort {
    fn of(result: Result<&Written, &WriteError>) -> Self {
        let (attempts, throttled) = match result {
            Ok(done) => (done.attempts, done.throttled),
            Err(error) => (error.attempts, error.throttled),
        };
        Self { attempts, throttled, throttled_items: u32::from(throttled > 0) }
    }

    const fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.throttled += other.throttled;
        self.throttled_items += other.throttled_items;
    }

    fn add_headers(&self, response: &mut Response<lambda_http::Body>) {
        let headers = [
            (ATTEMPTS_HEADER, self.attempts),
            (THROTTLED_HEADER, self.throttled),
            (THROTTLED_ITEMS_HEADER, self.throttled_items),
        ];
        for (name, value) in headers {
            response.headers_mut().insert(name, value.into());
        }
    }
}
