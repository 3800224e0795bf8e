//! What becomes of a request: it passes as it came, it is handled because it is about an armed key,
//! or it is refused by name.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::HOST;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use sharding::internal::TableEngine;
use tokio::time::{Instant, timeout_at};

use crate::observed::Observed;
use crate::reply::{Failure, Members, Reply};
use crate::request::ClientWrite;
use crate::served::{Call, Service};
use crate::table::ServedTable;
use crate::upstream::{TARGET, TARGET_PREFIX, Upstream};
use crate::{batch, entries, item, query, read, scan};

/// How long a request about armed keys may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The operations on tables that pass, also on a table with armed keys, besides all that only
/// describe or list.
const ON_TABLES: &str = "CreateTable UpdateTable UpdateTimeToLive TagResource UntagResource \
    UpdateContinuousBackups CreateBackup ExportTableToPointInTime";

impl Service {
    pub(crate) fn new(tables: Vec<ServedTable>, upstream: Upstream) -> Self {
        Self { tables, upstream, observed: Observed::default() }
    }

    /// A service of one table whose engine this process has.
    #[must_use]
    pub fn of_table(engine: TableEngine, upstream: Upstream) -> Self {
        Self::new(vec![ServedTable::of_engine(engine, upstream.clone())], upstream)
    }

    /// What was seen of keys that are not armed.
    #[must_use]
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Waits until all background work is done.
    pub async fn finish(&self) {
        for table in &self.tables {
            table.engine.finish_background_work().await;
        }
    }

    /// Answers a request that has passed the checks of its headers.
    pub fn respond<'a>(&'a self, headers: &'a HeaderMap, body: Bytes) -> BoxFuture<'a, Reply> {
        self.answer(headers, body).map(|answer| answer.unwrap_or_else(Failure::into_reply)).boxed()
    }

    /// The region of the server.
    #[must_use]
    pub fn region(&self) -> &str {
        self.upstream.region()
    }

    async fn answer(&self, headers: &HeaderMap, raw: Bytes) -> Result<Reply, Failure> {
        let target = headers.get(TARGET).and_then(|target| target.to_str().ok());
        let operation = target
            .and_then(|target| target.strip_prefix(TARGET_PREFIX))
            .ok_or_else(Failure::unknown_operation)?;
        if operation == "DescribeEndpoints" {
            let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
            let endpoint = json!({ "Address": host, "CachePeriodInMinutes": 1_440 });
            return Ok(Reply::json(StatusCode::OK, &json!({ "Endpoints": [endpoint] })));
        }
        let deadline = Instant::now() + TIMEOUT;
        let Ok(Value::Object(body)) = serde_json::from_slice(&raw) else {
            // DynamoDB may read what this endpoint does not.
            let mut patterns = Vec::with_capacity(self.tables.len());
            for table in &self.tables {
                patterns.push(table.engine.patterns(deadline).await?);
            }
            if patterns.iter().any(|patterns| !patterns.are_none()) {
                let name = "com.amazon.coral.service#SerializationException";
                return Err(Failure::rejected(name, "the body is not a JSON object"));
            }
            let call = Call { operation, headers, raw, body: Members::new(), deadline };
            return self.pass(&call, patterns).await;
        };
        let call = Call { operation, headers, raw, body, deadline };
        match operation {
            "GetItem" | "PutItem" | "UpdateItem" | "DeleteItem" => self.one_item(&call).await,
            "Query" | "Scan" => self.many_items(&call).await,
            "BatchGetItem" | "BatchWriteItem" => batch::answer(self, &call).await,
            "TransactGetItems" | "TransactWriteItems" => self.transaction(&call).await,
            _ => self.other(&call).await,
        }
    }

    async fn one_item(&self, call: &Call<'_>) -> Result<Reply, Failure> {
        let Some((table, patterns)) = self.patterns_of(call.table(), call.deadline).await? else {
            return self.pass(call, Vec::new()).await;
        };
        let of = if call.operation == "PutItem" { "Item" } else { "Key" };
        let Some(key) = table.armed(&patterns, &item::map(&call.body, of))? else {
            return self.pass(call, vec![patterns]).await;
        };
        if call.operation == "GetItem" {
            return read::get(table, &key, &call.body, call.deadline).await;
        }
        ClientWrite::read(table, call.operation, &key, &call.body, call.deadline)?.run().await
    }

    async fn many_items(&self, call: &Call<'_>) -> Result<Reply, Failure> {
        let Some((table, patterns)) = self.patterns_of(call.table(), call.deadline).await? else {
            return self.pass(call, Vec::new()).await;
        };
        if patterns.are_none() {
            return self.pass(call, vec![patterns]).await;
        }
        let (body, deadline, is_scan) = (&call.body, call.deadline, call.operation == "Scan");
        let late = |_| Err(Failure::throttled("sharding-endpoint: the page was not read in time"));
        if is_scan && !scan::is_native(body) {
            let page = scan::page(table, &patterns, body, deadline);
            return timeout_at(deadline, page).await.unwrap_or_else(late);
        }
        let index = item::text(body, "IndexName");
        let own = match index.filter(|_| !is_scan) {
            Some(index) => table.own_index(index).await?,
            None => None,
        };
        if is_scan || index.is_some() && own.is_none() {
            let page = (call.operation, body);
            return entries::page(table, &patterns, page, &|_| false, deadline).await;
        }
        let named = query::partition_key(table, body)?;
        let armed = named.map(|text| table.armed_text(&patterns, &text)).transpose()?.flatten();
        let Some(key) = armed else { return self.pass(call, vec![patterns]).await };
        let page = query::query(table, own.as_deref(), (&key, false), body, deadline);
        timeout_at(deadline, page).await.unwrap_or_else(late)
    }

    async fn transaction(&self, call: &Call<'_>) -> Result<Reply, Failure> {
        let (mut patterns, mut armed) = (Vec::new(), Vec::new());
        for part in item::list(&call.body, "TransactItems") {
            let mut of_part = None;
            let actions = part.as_object().into_iter().flat_map(Members::values);
            let actions: Vec<&Members> = actions.filter_map(Value::as_object).collect();
            for action in actions {
                let name = item::text(action, "TableName").unwrap_or_default();
                let found = self.patterns_of(name, call.deadline).await?;
                let Some((table, of_table)) = found else { continue };
                let of = if action.contains_key("Item") { "Item" } else { "Key" };
                let key = table.armed(&of_table, &item::map(action, of))?;
                of_part = of_part.or(key.map(|key| (table, key)));
                patterns.push(of_table);
            }
            armed.push(of_part);
        }
        if armed.iter().all(Option::is_none) {
            return self.pass(call, patterns).await;
        }
        if call.operation == "TransactWriteItems" {
            return Err(Failure::unsupported("TransactWriteItems"));
        }
        let (upstream, deadline) = (&self.upstream, call.deadline);
        entries::transact_get(upstream, &patterns, armed, &call.body, deadline).await
    }

    /// What is not about single items. A table with armed keys takes only what is on the list.
    async fn other(&self, call: &Call<'_>) -> Result<Reply, Failure> {
        let (operation, mut relied_on) = (call.operation, Vec::new());
        let only_shows = ["Describe", "List"].iter().any(|verb| operation.starts_with(verb));
        if !only_shows && ON_TABLES.split(' ').all(|other| other != operation) {
            let mut words = HashSet::new();
            names(&Value::Object(call.body.clone()), &mut words);
            for table in self.tables.iter().filter(|table| words.contains(&table.name)) {
                let patterns = table.engine.patterns(call.deadline).await?;
                if !patterns.are_none() {
                    return Err(Failure::validation(format!(
                        "{operation} on the table {}, which has armed keys, is not supported \
                         (sharding-endpoint)",
                        table.name
                    )));
                }
                relied_on.push(patterns);
            }
        }
        self.patterns_of(call.table(), call.deadline).await?;
        self.pass(call, relied_on).await
    }
}

/// What may be the name of a table in the texts of a request, for example in a statement.
fn names(value: &Value, found: &mut HashSet<String>) {
    match value {
        Value::String(text) => {
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            // A dot may be a part of the name, or stand before the name of an index.
            found.extend(text.split(|c| !is_of_name(c)).map(str::to_owned));
            found.extend(text.split(|c| !is_of_name(c) && c != '.').map(str::to_owned));
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        Value::Object(members) => members.values().for_each(|value| names(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
