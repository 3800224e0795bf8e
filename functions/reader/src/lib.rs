//! The reader: fan-out and merge.

use std::time::Duration;

use api::{Parameters, Problem, Request, Response, json};
use serde::Serialize;
use serde_json::value::RawValue;
use sharding::{Deadline, Order, PageQuery, ShardedTable, SortKeyType, cursor};

/// The longest that an answer waits for what it can do without.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct PageAnswer {
    items: Vec<Box<RawValue>>,
    cursor: Option<String>,
    shards: usize,
    consumed_capacity: f64,
}

#[derive(Serialize)]
struct ShardsAnswer<'a> {
    partition_key: &'a str,
    number_of_shards: u32,
    read_shards: u32,
    grown: bool,
    last_updated: Option<u64>,
    shard_history: Vec<Change>,
    warm_throughput: Option<WarmAnswer>,
}

#[derive(Serialize)]
struct WarmAnswer {
    write_units: u64,
    read_units: u64,
}

#[derive(Serialize)]
struct Change {
    at: u64,
    count: u32,
}

/// Answers one request of the reader's routes.
pub async fn handle(table: &ShardedTable, request: Request, deadline: Deadline) -> Response<lambda_http::Body> {
    let result = match (request.method().as_str(), request.uri().path()) {
        ("GET", "/items") => get_items(table, &request, deadline).await,
        ("GET", "/item") => get_item(table, &request, deadline).await,
        ("GET", "/shards") => get_shards(table, &request, deadline).await,
        (method, path @ "/items") => Err(Problem::method(method, path, "GET, POST")),
        (method, path @ "/item") => Err(Problem::method(method, path, "GET, PUT, DELETE")),
        (method, path @ "/items/batch") => Err(Problem::method(method, path, "POST")),
        (method, path @ "/shards") => Err(Problem::method(method, path, "GET")),
        (_, path) => Err(Problem::no_route(path)),
    };
    result.unwrap_or_else(Problem::into_response)
}

async fn get_items(
    table: &ShardedTable,
    request: &Request,
    deadline: Deadline,
) -> Result<Response<lambda_http::Body>, Problem> {
    let known = ["partition_key", "limit", "cursor", "order", "from", "to", "prefix", "consistent"];
    let query = page_query(table, &Parameters::of(request, &known)?)?;
    let page = table.query(&query, deadline).await.map_err(Problem::from_read)?;
    let items = api::fitting_items(&page.items)?;
    // What does not fit is read again by the next page.
    let next = match page.items.get(..items.len()).and_then(<[_]>::last) {
        Some(last) if items.len() < page.items.len() => Some(&last.sort_key),
        _ => page.next.as_ref(),
    };
    let answer = PageAnswer {
        items,
        cursor: next.map(|position| cursor::encode(&query, position)),
        shards: page.shards,
        consumed_capacity: page.consumed_capacity,
    };
    Ok(json(200, &answer))
}

fn page_query(table: &ShardedTable, parameters: &Parameters) -> Result<PageQuery, Problem> {
    let mut query = PageQuery::new(api::partition_key(parameters, table)?);
    if let Some(limit) = parameters.get("limit") {
        let number = limit.parse().ok().filter(|limit| (1..=PageQuery::MAX_LIMIT).contains(limit));
        query.limit = number.ok_or_else(|| {
            let allowed = format!("it is {limit:?}; allowed: a whole number from 1 to {}", PageQuery::MAX_LIMIT);
            Problem::bad("invalid_parameter", "limit", allowed)
        })?;
    }
    query.order = match parameters.get("order") {
        None | Some("asc") => Order::Ascending,
        Some("desc") => Order::Descending,
        Some(other) => {
            return Err(Problem::bad(
                "invalid_parameter",
                "order",
                format_args!("it is {other:?}; allowed: asc, desc"),
            ));
        }
    };
    query.consistent = api::flag(parameters, "consistent")?;
    let bound = |name: &'static str| parameters.get(name).map(|text| api::sort_key(name, text, table)).transpose();
    query.from = bound("from")?;
    query.to = bound("to")?;
    if let (Some(from), Some(to)) = (&query.from, &query.to)
        && from > to
    {
        return Err(Problem::bad("invalid_range", "from", "it is above to; it must not be"));
    }
    query.prefix = prefix(table, parameters, query.from.is_some() || query.to.is_some())?;
    if let Some(text) = parameters.get("cursor") {
        let position = cursor::decode(&query, table.config().sort_key_type, text);
        query.after = Some(position.map_err(|error| Problem::bad("invalid_cursor", "cursor", error))?);
    }
    Ok(query)
}

fn prefix(table: &ShardedTable, parameters: &Parameters, has_range: bool) -> Result<Option<String>, Problem> {
    let Some(prefix) = parameters.get("prefix") else { return Ok(None) };
    let refuse = |why: &str| Err(Problem::bad("invalid_parameter", "prefix", why));
    match table.config().sort_key_type {
        SortKeyType::Number => refuse("this table's sort key is a number, which has no prefix; use from and to"),
        SortKeyType::String if has_range => refuse("it cannot be combined with from or to"),
        SortKeyType::String if prefix.is_empty() => refuse("it is empty; leave it out to read everything"),
        SortKeyType::String => api::sort_key("prefix", prefix, table).map(|_| Some(prefix.to_owned())),
    }
}

async fn get_item(
    table: &ShardedTable,
    request: &Request,
    deadline: Deadline,
) -> Result<Response<lambda_http::Body>, Problem> {
    let parameters = Parameters::of(request, &["partition_key", "sort_key", "consistent"])?;
    let key = api::partition_key(&parameters, table)?;
    let sort_key = api::sort_key("sort_key", parameters.required("sort_key")?, table)?;
    let consistent = api::flag(&parameters, "consistent")?;
    match table.get(&key, &sort_key, consistent, deadline).await.map_err(Problem::from_read)? {
        Some(item) => Ok(json(200, &api::fitting_items(std::slice::from_ref(&item))?.first())),
        None => Err(Problem::absent("there is no item with this partition_key and sort_key")),
    }
}

async fn get_shards(
    table: &ShardedTable,
    request: &Request,
    deadline: Deadline,
) -> Result<Response<lambda_http::Body>, Problem> {
    let parameters = Parameters::of(request, &["partition_key"])?;
    let key = api::partition_key(&parameters, table)?;
    let soon = deadline.min(Deadline::now() + PATIENCE);
    let (metadata, warm) = tokio::join!(table.shards(&key, deadline), table.warm_throughput(&key, soon));
    // A key without metadata has never grown.
    let metadata = metadata.map_err(|error| Problem::from_table(&error))?;
    // What cannot be read is not known, as where nobody has published it.
    let warm = warm.ok().flatten();
    let first = table.config().adopt_shards;
    let (written, read) =
        metadata.as_ref().map_or((first, first), |metadata| (metadata.number_of_shards, metadata.read_shards));
    let history = metadata.iter().flat_map(|metadata| metadata.shard_history.entries());
    let answer = ShardsAnswer {
        partition_key: key.as_str(),
        number_of_shards: written.get(),
        read_shards: read.get(),
        grown: metadata.as_ref().is_some_and(|metadata| metadata.layout().is_listed(first)),
        last_updated: metadata.as_ref().map(|metadata| metadata.last_updated),
        shard_history: history.map(|change| Change { at: change.at, count: change.count.get() }).collect(),
        warm_throughput: warm.map(|warm| WarmAnswer { write_units: warm.write_units, read_units: warm.read_units }),
    };
    Ok(json(200, &answer))
}
