//! The reader: it queries all shards of a partition key and merges the results.

use std::collections::BTreeSet;
use std::time::Duration;

use api::{Operation, Parameters, Problem, Request, Response, json, no_route, route};
use serde::Serialize;
use serde_json::value::RawValue;
use sharding::internal::cursor::{self, Position};
use sharding::internal::{Deadline, PageAt, PageQuery, RESERVED_ATTRIBUTES, TableEngine};
use sharding::{Conditions, Order, SortKeyType};

/// The default maximum number of items that one response counts.
const MAX_COUNT: usize = 10_000;
/// The maximum number of attributes in `fields`.
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

/// Handles one request of the reader's routes.
pub async fn handle(
    table: &TableEngine,
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

async fn get_items(
    table: &TableEngine,
    request: &Request,
    deadline: Deadline,
) -> Result<Response<lambda_http::Body>, Problem> {
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
    let query = page_query(table, &parameters, counts)?;
    let position = match parameters.get("cursor") {
        Some(text) => {
            let position = cursor::decode(&query, table.config().sort_key_type, text);
            Some(position.map_err(|error| Problem::bad("invalid_cursor", "cursor", error))?)
        }
        None => None,
    };
    if counts {
        count(table, &query, position, deadline).await
    } else {
        list(table, &query, position, deadline).await
    }
}

/// Responds with the number of items from this position on.
async fn count(
    table: &TableEngine,
    query: &PageQuery,
    position: Option<Position>,
    deadline: Deadline,
) -> Result<Response<lambda_http::Body>, Problem> {
    let after = match position {
        None | Some(Position::First) => None,
        Some(Position::After(after)) => Some(after),
        Some(Position::Before(_) | Position::Last) => {
            return Err(Problem::bad(
                "invalid_cursor",
                "cursor",
                "it is a previous page; items are counted forwards",
            ));
        }
    };
    let query = PageQuery { after, ..query.clone() };
    let page = table.query(&query, deadline).await.map_err(Problem::from_read)?;
    let response = CountResponse {
        count: page.items.len(),
        cursor: page.next.map(|next| cursor::encode(&query, &Position::After(next))),
        shards: page.shards,
        consumed_capacity: page.consumed_capacity,
    };
    Ok(json(200, &response))
}

/// Responds with the page at this position.
async fn list(
    table: &TableEngine,
    query: &PageQuery,
    position: Option<Position>,
    deadline: Deadline,
) -> Result<Response<lambda_http::Body>, Problem> {
    let mut at = table.page_at(query, position, deadline).await.map_err(Problem::from_read)?;
    let mut items = api::fitting_items(&at.page.items)?;
    at.truncate(items.len());
    if at.is_reversed {
        items.reverse();
    }
    let (cursor, previous) = at.neighbours();
    let PageAt { page, .. } = at;
    let response = PageResponse {
        items,
        cursor: cursor.map(|at| cursor::encode(query, &at)),
        previous: previous.map(|at| cursor::encode(query, &at)),
        shards: page.shards,
        consumed_capacity: page.consumed_capacity,
    };
    Ok(json(200, &response))
}

fn page_query(
    table: &TableEngine,
    parameters: &Parameters,
    counts: bool,
) -> Result<PageQuery, Problem> {
    let mut query = PageQuery::new(api::partition_key(parameters, table)?);
    query.fields = fields(table, parameters)?;
    if counts {
        if query.fields.is_some() {
            return Err(Problem::bad(
                "invalid_parameter",
                "fields",
                "it cannot be combined with count=true",
            ));
        }
        (query.fields, query.limit) = (Some(BTreeSet::new()), MAX_COUNT);
    }
    if let Some(limit) = parameters.get("limit") {
        let number = limit.parse().ok().filter(|limit| (1..=PageQuery::MAX_LIMIT).contains(limit));
        query.limit = number.ok_or_else(|| {
            let allowed = format!(
                "it is {limit:?}; allowed: a whole number from 1 to {}",
                PageQuery::MAX_LIMIT
            );
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
    let bound = |name: &'static str| {
        parameters.get(name).map(|text| api::sort_key(name, text, table)).transpose()
    };
    query.from = bound("from")?;
    query.to = bound("to")?;
    if let (Some(from), Some(to)) = (&query.from, &query.to)
        && from > to
    {
        return Err(Problem::bad("invalid_range", "from", "it is above the parameter to"));
    }
    query.prefix = prefix(table, parameters, query.from.is_some() || query.to.is_some())?;
    Ok(query)
}

/// Reads the names of the requested attributes, which are separated by commas.
fn fields(
    table: &TableEngine,
    parameters: &Parameters,
) -> Result<Option<BTreeSet<String>>, Problem> {
    let Some(list) = parameters.get("fields") else { return Ok(None) };
    let wrong = |why: String| Err(Problem::bad("invalid_parameter", "fields", why));
    let config = table.config();
    let mut fields = BTreeSet::new();
    for name in list.split(',') {
        let is_own = RESERVED_ATTRIBUTES.contains(&name)
            || *name == *config.sort_key_name
            || *name == *config.partition_key_name;
        if name.is_empty() || is_own {
            return wrong(format!(
                "{name:?} cannot be selected; the keys are always part of an item, \
                 and the service's own attributes never are"
            ));
        }
        if !fields.insert(name.to_owned()) {
            return wrong(format!("{name:?} is given twice"));
        }
    }
    if fields.len() > MAX_FIELDS {
        return wrong(format!(
            "it names {} attributes; allowed: at most {MAX_FIELDS}",
            fields.len()
        ));
    }
    Ok(Some(fields))
}

fn prefix(
    table: &TableEngine,
    parameters: &Parameters,
    has_range: bool,
) -> Result<Option<String>, Problem> {
    let Some(prefix) = parameters.get("prefix") else { return Ok(None) };
    let reject = |why: &str| Err(Problem::bad("invalid_parameter", "prefix", why));
    match table.config().sort_key_type {
        SortKeyType::Number => {
            reject("this table's sort key is a number, which has no prefix; use from and to")
        }
        SortKeyType::String if has_range => reject("it cannot be combined with from or to"),
        SortKeyType::String if prefix.is_empty() => {
            reject("it is empty; omit it to read all items")
        }
        SortKeyType::String => {
            api::sort_key("prefix", prefix, table).map(|_| Some(prefix.to_owned()))
        }
    }
}

async fn get_item(
    table: &TableEngine,
    request: &Request,
    deadline: Deadline,
) -> Result<Response<lambda_http::Body>, Problem> {
    let conditions = api::conditions(request)?;
    let parameters =
        Parameters::of(request, &["partition_key", "sort_key", "consistent", "fields"])?;
    let key = api::partition_key(&parameters, table)?;
    let sort_key = api::sort_key("sort_key", parameters.required("sort_key")?, table)?;
    let consistent = api::flag(&parameters, "consistent")?;
    let fields = fields(table, &parameters)?;
    let found = table
        .get_tagged(&key, &sort_key, consistent, deadline)
        .await
        .map_err(Problem::from_read)?;
    let (mut item, tag) = found.ok_or_else(Problem::no_item)?;
    if !(Conditions { differs: None, ..conditions.clone() }).hold(Some(&tag)) {
        return Err(Problem::precondition_failed(Some(tag)));
    }
    if !conditions.hold(Some(&tag)) {
        return Ok(api::not_modified(&tag));
    }
    if let Some(fields) = fields {
        item.attributes.retain(|name, _| fields.contains(name));
    }
    Ok(api::tagged(api::item(200, &item), Some(&tag)))
}

async fn get_shards(
    table: &TableEngine,
    request: &Request,
    deadline: Deadline,
) -> Result<Response<lambda_http::Body>, Problem> {
    let parameters = Parameters::of(request, &["partition_key"])?;
    let key = api::partition_key(&parameters, table)?;
    let soon = deadline.min(Deadline::now() + OPTIONAL_TIMEOUT);
    let (metadata, warm) =
        tokio::join!(table.shards(&key, deadline), table.warm_throughput(&key, soon));
    // A key without metadata has never grown.
    let metadata = metadata.map_err(|error| Problem::from_table(&error))?;
    // A warm throughput that cannot be read is reported as unknown, like one that was never
    // published.
    let warm = warm.ok().flatten();
    let first = table.config().adopt_shards;
    let (written, read) = metadata
        .as_ref()
        .map_or((first, first), |metadata| (metadata.number_of_shards, metadata.read_shards));
    let history = metadata.iter().flat_map(|metadata| metadata.shard_history.entries());
    let response = ShardsResponse {
        partition_key: key.as_str(),
        number_of_shards: written.get(),
        read_shards: read.get(),
        grown: metadata.as_ref().is_some_and(|metadata| metadata.layout().is_listed(first)),
        last_updated: metadata.as_ref().map(|metadata| metadata.last_updated),
        shard_history: history
            .map(|change| Change { at: change.at, count: change.count.get() })
            .collect(),
        warm_throughput: warm.map(|warm| WarmThroughput {
            write_units: warm.write_units,
            read_units: warm.read_units,
        }),
    };
    Ok(json(200, &response))
}
