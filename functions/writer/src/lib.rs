//! The writer: parse, place, put.

use api::{Body, Problem, Request, Response, SortKeyJson, item_body, items_body, json};
use serde::Serialize;
use sharding::{Append, AppendError, Appended, Deadline, ShardedTable};

/// Attempts of all items of the request.
pub const ATTEMPTS_HEADER: &str = "x-attempts";
/// Attempts that were throttled.
pub const THROTTLED_HEADER: &str = "x-throttled-attempts";
/// Items of which an attempt was throttled.
pub const THROTTLED_ITEMS_HEADER: &str = "x-throttled-items";

#[derive(Serialize)]
struct Created<'a> {
    partition_key: &'a str,
    sort_key: SortKeyJson<'a>,
    shard: u32,
    number_of_shards: u32,
}

#[derive(Serialize)]
struct BatchAnswer {
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

/// Answers one request of the writer's routes.
pub async fn handle(table: &ShardedTable, request: Request, deadline: Deadline) -> Response<lambda_http::Body> {
    let result = match (request.method().as_str(), request.uri().path()) {
        ("POST", "/items") => post_item(table, &request, deadline).await,
        ("POST", "/items/batch") => post_batch(table, &request, deadline).await,
        ("PUT", "/item") => Err(Problem::not_implemented("PUT /item")),
        ("DELETE", "/item") => Err(Problem::not_implemented("DELETE /item")),
        (method, path @ "/items") => Err(Problem::method(method, path, "GET, POST")),
        (method, path @ "/items/batch") => Err(Problem::method(method, path, "POST")),
        (method, path @ "/item") => Err(Problem::method(method, path, "GET, PUT, DELETE")),
        (_, path) => Err(Problem::no_route(path)),
    };
    result.unwrap_or_else(Problem::into_response)
}

async fn post_item(
    table: &ShardedTable,
    request: &Request,
    deadline: Deadline,
) -> Result<Response<lambda_http::Body>, Problem> {
    api::Parameters::of(request, &[])?;
    if request.headers().contains_key("if-none-match") {
        return Err(Problem::not_implemented("If-None-Match"));
    }
    let item = item_body(&Body::of(request)?, table)?;
    let appended = table.append(&item, deadline).await;
    let mut response = match &appended {
        Ok(done) => json(201, &created(&item, done)),
        Err(_) => Response::default(),
    };
    let effort = Effort::of(&appended);
    if let Err(error) = appended {
        response = Problem::from_append(error).into_response();
    }
    effort.tell(&mut response);
    Ok(response)
}

fn created<'a>(item: &'a Append, done: &Appended) -> Created<'a> {
    Created {
        partition_key: item.partition_key.as_str(),
        sort_key: SortKeyJson(&item.sort_key),
        shard: done.shard.get(),
        number_of_shards: done.number_of_shards.get(),
    }
}

async fn post_batch(
    table: &ShardedTable,
    request: &Request,
    deadline: Deadline,
) -> Result<Response<lambda_http::Body>, Problem> {
    api::Parameters::of(request, &[])?;
    let items = items_body(&Body::of(request)?, table)?;
    let results = table.append_batch(items, deadline).await;
    let mut effort = Effort::default();
    let mut answer = BatchAnswer { written: 0, failed: Vec::new() };
    for (index, result) in results.into_iter().enumerate() {
        effort.add(&Effort::of(&result));
        match result {
            Ok(_) => answer.written += 1,
            Err(error) => {
                let problem = Problem::from_append(error);
                let (code, retryable) = (problem.code(), problem.is_retryable());
                answer.failed.push(FailedItem { index, code, detail: problem.detail().to_owned(), retryable });
            }
        }
    }
    let status = if answer.failed.is_empty() { 200 } else { 207 };
    let mut response = json(status, &answer);
    effort.tell(&mut response);
    if answer.failed.iter().any(|failed| failed.retryable) {
        response.headers_mut().insert("retry-after", lambda_http::http::HeaderValue::from_static("1"));
    }
    Ok(response)
}

/// What it took, told in headers, so that a client can see throttling that was ridden out.
#[derive(Default)]
struct Effort {
    attempts: u32,
    throttled: u32,
    throttled_items: u32,
}

impl Effort {
    fn of(result: &Result<Appended, AppendError>) -> Self {
        let (attempts, throttled) = match result {
            Ok(done) => (done.attempts, done.throttled),
            Err(AppendError::Capacity { throttled, .. }) => (*throttled, *throttled),
            Err(AppendError::Unknown(_) | AppendError::Table(_)) => (1, 0),
        };
        Self { attempts, throttled, throttled_items: u32::from(throttled > 0) }
    }

    const fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.throttled += other.throttled;
        self.throttled_items += other.throttled_items;
    }

    fn tell(&self, response: &mut Response<lambda_http::Body>) {
        let told = [
            (ATTEMPTS_HEADER, self.attempts),
            (THROTTLED_HEADER, self.throttled),
            (THROTTLED_ITEMS_HEADER, self.throttled_items),
        ];
        for (name, value) in told {
            response.headers_mut().insert(name, value.into());
        }
    }
}
