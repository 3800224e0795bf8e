//! The reader: it queries all shards of a partition key and merges the results.

use std::collections::BTreeSet;
use std::time::Duration;

use api::{ItemJson, Operation, Parameters, Problem, Request, Response, json, no_route, route};
use serde::Serialize;
use serde_json::value::RawValue;
use sharding::request::Query;
use sharding::{
    Attributes, Conditions, Counted, Order, Page, PartitionKey, ReadError, ShardedTable, Versioned,
};
use tokio::time::Instant as Deadline;

const MAX_FIELDS: usize = 100;
/// How long a response waits for its optional parts.
const OPTIONAL_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct PageResponse {
    items: Vec<Box<RawValue>>,
    cursor: Option<String>,
    previous: Option<String>,
    shards: usize,
    consumed_capacity: f64,
}

#[derive(Serialize)]
struct CountResponse {
    count: usize,
    cursor: Option<String>,
    shards: usize,
    consumed_capacity: f64,
}

#[derive(Serialize)]
struct ShardsResponse<'a> {
    partition_key: &'a str,
    number_of_shards: u32,
    read_shards: u32,
    grown: bool,
    last_updated: Option<u64>,
    shard_history: Vec<Change>,
    armed: bool,
    armed_from: Option<u64>,
    warm_throughput: Option<WarmThroughput>,
}

#[derive(Serialize)]
struct WarmThroughput {
    write_units: u64,
    read_units: u64,
}

#[derive(Serialize)]
struct Change {
    at: u64,
    count: u32,
}

type Handled = Result<Response<lambda_http::Body>, Problem>;

/// Handles one request of the reader's routes.
pub async fn handle(
    table: &ShardedTable,
    request: Request,
    deadline: Deadline,
) -> Response<lambda_http::Body> {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let result = match route(method, path).map(|(_, operation)| operation) {
        Some(Operation::GetItems) => get_items(table, &request, deadline).await,
        Some(Operation::GetItem) => get_item(table, &request, deadline).await,
        Some(Operation::GetShards) => get_shards(table, &request, deadline).await,
        Some(
            Operation::StoreItem
            | Operation::StoreItems
            | Operation::ReplaceItem
            | Operation::UpdateItem
            | Operation::DeleteItem,
        )
        | None => Err(no_route(method, path)),
    };
    result.unwrap_or_else(Problem::into_response)
}

async fn get_items(table: &ShardedTable, request: &Request, deadline: Deadline) -> Handled {
    let known = [
        "partition_key",
        "limit",
        "cursor",
        "order",
        "from",
        "to",
        "prefix",
        "consistent",
        "fields",
        "count",
    ];
    let parameters = Parameters::of(request, &known)?;
    let counts = api::flag(&parameters, "count")?;
    let key = api::partition_key(&parameters, table)?;
    let query = page_query(table, &key, &parameters, counts)?.deadline(deadline);
    if counts {
        let counted = query.count_page().await.map_err(read_problem)?;
        let Counted { items: count, cursor, shards, consumed_capacity, .. } = counted;
        return Ok(json(200, &CountResponse { count, cursor, shards, consumed_capacity }));
    }
    let mut page = query.await.map_err(read_problem)?;
    let mut items = api::fitting_items(page.as_read().map(|entry| ItemJson {
        partition_key: &key,
        sort_key: &entry.sort_key,
        attributes: &entry.value,
    }))?;
    page.keep(items.len());
    if page.is_backwards {
        items.reverse();
    }
    let Page { cursor, previous, shards, consumed_capacity, .. } = page;
    Ok(json(200, &PageResponse { items, cursor, previous, shards, consumed_capacity }))
}

/// The problem of a failed read. The crate checks the parameters that it knows.
fn read_problem(error: ReadError) -> Problem {
    let ReadError::Invalid(wrong) = &error else { return Problem::from_read(error) };
    match wrong.what() {
        "cursor" => Problem::bad("invalid_cursor", "cursor", wrong.why()),
        "from" => Problem::bad("invalid_range", "from", wrong.why()),
        what if what.starts_with("attribute ") => {
            Problem::bad("invalid_parameter", "fields", wrong)
        }
        what => Problem::bad("invalid_parameter", what, wrong.why()),
    }
}

fn page_query(
    table: &ShardedTable,
    key: &PartitionKey,
    parameters: &Parameters,
    counts: bool,
) -> Result<Query<Attributes>, Problem> {
    let mut query = table.query(key);
    if let Some(fields) = fields(parameters)? {
        if counts {
            let why = "it cannot be combined with count=true";
            return Err(Problem::bad("invalid_parameter", "fields", why));
        }
        query = query.fields(fields);
    }
    if let Some(limit) = parameters.get("limit") {
        let number = limit.parse::<usize>();
        let wrong = |_| api::not_allowed("limit", limit, "a whole number from 1 to 1000");
        query = query.limit(number.map_err(wrong)?);
    }
    match parameters.get("order") {
        None | Some("asc") => {}
        Some("desc") => query = query.order(Order::Descending),
        Some(other) => return Err(api::not_allowed("order", other, "asc, desc")),
    }
    let bound = |name: &'static str| {
        parameters.get(name).map(|text| api::sort_key(name, text, table)).transpose()
    };
    let consistent = api::flag(parameters, "consistent")?;
    if let Some(from) = bound("from")? {
        query = query.from(from);
    }
    if let Some(to) = bound("to")? {
        query = query.to(to);
    }
    if let Some(prefix) = parameters.get("prefix") {
        query = query.prefix(prefix);
    }
    if let Some(cursor) = parameters.get("cursor") {
        query = query.cursor(cursor);
    }
    Ok(query.consistent(consistent).tags(false))
}

/// Reads the names of the requested attributes, which are separated by commas.
fn fields(parameters: &Parameters) -> Result<Option<BTreeSet<&str>>, Problem> {
    let Some(list) = parameters.get("fields") else { return Ok(None) };
    let (fields, count) = (list.split(',').collect::<BTreeSet<_>>(), list.split(',').count());
    let why = if fields.len() < count {
        "a name is given twice".to_owned()
    } else if count > MAX_FIELDS {
        format!("it names {count} attributes; allowed: at most {MAX_FIELDS}")
    } else {
        return Ok(Some(fields));
    };
    Err(Problem::bad("invalid_parameter", "fields", why))
}

async fn get_item(table: &ShardedTable, request: &Request, deadline: Deadline) -> Handled {
    let conditions = api::conditions(request)?;
    let parameters =
        Parameters::of(request, &["partition_key", "sort_key", "consistent", "fields"])?;
    let key = api::partition_key(&parameters, table)?;
    let sort_key = api::sort_key("sort_key", parameters.required("sort_key")?, table)?;
    let consistent = api::flag(&parameters, "consistent")?;
    let mut get = table.get::<Attributes>(&key, &sort_key).consistent(consistent);
    if let Some(fields) = fields(&parameters)? {
        get = get.fields(fields);
    }
    let found = get.deadline(deadline).await.map_err(read_problem)?;
    let Versioned { value, tag, .. } = found.ok_or_else(Problem::no_item)?;
    if !(Conditions { differs: None, ..conditions.clone() }).hold(Some(&tag)) {
        return Err(Problem::precondition_failed(Some(tag)));
    }
    if !conditions.hold(Some(&tag)) {
        return Ok(api::not_modified(&tag));
    }
    let item = ItemJson { partition_key: &key, sort_key: &sort_key, attributes: &value };
    Ok(api::tagged(api::item(200, item), Some(&tag)))
}

async fn get_shards(table: &ShardedTable, request: &Request, deadline: Deadline) -> Handled {
    let parameters = Parameters::of(request, &["partition_key"])?;
    let key = api::partition_key(&parameters, table)?;
    let soon = deadline.min(Deadline::now() + OPTIONAL_TIMEOUT);
    let maintenance = table.maintenance().deadline(deadline);
    let optional = table.maintenance().deadline(soon);
    let (metadata, warm, waits) = tokio::join!(
        maintenance.metadata(&key),
        optional.warm_throughput(&key),
        maintenance.not_armed_before(&key)
    );
    // A key without metadata has never grown.
    let metadata = metadata.map_err(|error| Problem::from_table(&error))?;
    let waits = waits.map_err(|error| Problem::from_table(&error))?;
    // A warm throughput that cannot be read is reported as unknown, like one that was never
    // published.
    let warm = warm.ok().flatten();
    let (metadata, first) = (metadata.as_ref(), table.config().adopt_shards);
    let history = metadata.into_iter().flat_map(|metadata| metadata.shard_history.entries());
    let response = ShardsResponse {
        partition_key: key.as_str(),
        number_of_shards: metadata.map_or(first, |metadata| metadata.number_of_shards).get(),
        read_shards: metadata.map_or(first, |metadata| metadata.read_shards).get(),
        grown: metadata.is_some_and(|metadata| metadata.layout().is_listed(first)),
        last_updated: metadata.map(|metadata| metadata.last_updated),
        shard_history: history.map(|it| Change { at: it.at, count: it.count.get() }).collect(),
        armed: waits.is_none(),
        armed_from: waits.flatten(),
        warm_throughput: warm.map(|warm| WarmThroughput {
            write_units: warm.write_units,
            read_units: warm.read_units,
        }),
    };
    Ok(json(200, &response))
}
