//! What becomes of a request: it passes as it came, it is handled because it is about an armed key,
//! or it is refused by name.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::header::HOST;
use serde_json::{Value, json};
use sharding::PartitionKey;
use sharding::internal::{Patterns, TableEngine};
use tokio::time::{Instant, timeout_at};

use crate::batch::Batch;
use crate::observed::Observed;
use crate::query::PartOf;
use crate::reply::{Failure, Members, Reply};
use crate::table::{Named, ServedTable};
use crate::upstream::{TARGET, TARGET_PREFIX, Upstream, answered};
use crate::write::ClientWrite;
use crate::{batch, entries, passed, query, read, scan};

/// How long a request about armed keys may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The operations on tables that pass, also on a table with armed keys.
const ON_TABLES: [&str; 22] = [
    "CreateTable",
    "DescribeTable",
    "ListTables",
    "UpdateTable",
    "DescribeTimeToLive",
    "UpdateTimeToLive",
    "DescribeLimits",
    "ListTagsOfResource",
    "TagResource",
    "UntagResource",
    "DescribeContinuousBackups",
    "UpdateContinuousBackups",
    "DescribeContributorInsights",
    "ListContributorInsights",
    "DescribeKinesisStreamingDestination",
    "DescribeTableReplicaAutoScaling",
    "CreateBackup",
    "DescribeBackup",
    "ListBackups",
    "DescribeExport",
    "ListExports",
    "ExportTableToPointInTime",
];

/// The served tables, and the server behind them.
#[derive(Debug, Clone)]
pub struct Service {
    tables: Vec<ServedTable>,
    pub(crate) upstream: Upstream,
    observed: Observed,
}

impl Service {
    pub(crate) fn new(tables: Vec<ServedTable>, upstream: Upstream) -> Self {
        Self { tables, upstream, observed: Observed::default() }
    }

    /// A service of one table whose engine this process has.
    #[must_use]
    pub fn of_table(engine: TableEngine, upstream: Upstream) -> Self {
        Self::new(vec![ServedTable::of_engine(engine)], upstream)
    }

    /// Whether requests that are signed for a region are served.
    pub(crate) fn accepts(&self, region: &str) -> bool {
        self.upstream.accepts(region)
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
        let answer = self.answer(headers, body);
        async move { answer.await.unwrap_or_else(Failure::into_reply) }.boxed()
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
            let mut answer = Members::new();
            answer.insert("Endpoints".to_owned(), json!([endpoint]));
            return Ok(Reply::ok(answer));
        }
        let deadline = Instant::now() + TIMEOUT;
        let Ok(Value::Object(body)) = serde_json::from_slice(&raw) else {
            // DynamoDB may read what this endpoint does not.
            let patterns = self.all_patterns(deadline).await?;
            if patterns.iter().any(|patterns| !patterns.are_none()) {
                return Err(Failure::serialization());
            }
            return self.pass(headers, raw, patterns, None).await;
        };
        match operation {
            "GetItem" | "PutItem" | "UpdateItem" | "DeleteItem" => {
                self.one_item(operation, headers, raw, &body, deadline).await
            }
            "Query" | "Scan" => self.many_items(operation, headers, raw, &body, deadline).await,
            "BatchGetItem" => match batch::read(self, &body, deadline).await? {
                Batch::Answered(reply) => Ok(reply),
                Batch::Native(patterns) => self.pass(headers, raw, patterns, None).await,
            },
            "BatchWriteItem" => match batch::write(self, &body, deadline).await? {
                Batch::Answered(reply) => Ok(reply),
                Batch::Native(patterns) => {
                    self.pass(headers, raw, patterns, Some((operation, &body))).await
                }
            },
            "TransactGetItems" | "TransactWriteItems" => {
                self.transaction(operation, headers, raw, &body, deadline).await
            }
            _ => self.other(operation, headers, raw, &body, deadline).await,
        }
    }

    /// Passes a request as it came, while these patterns may be relied on. Of a request about a
    /// served table, its keys are observed.
    async fn pass(
        &self,
        headers: &HeaderMap,
        raw: Bytes,
        patterns: Vec<Patterns>,
        of: Option<(&str, &Members)>,
    ) -> Result<Reply, Failure> {
        let is_served = !patterns.is_empty();
        let lasts = move || patterns.iter().all(|patterns| patterns.last());
        let reply = answered(self.upstream.send(headers, raw, &lasts).await)?;
        if let Some(of) = of.filter(|_| is_served) {
            self.observe(of, &reply);
        }
        Ok(reply)
    }

    /// Notes the keys of a request that are not armed.
    pub(crate) fn observe(&self, of: (&str, &Members), reply: &Reply) {
        passed::note((&self.observed, &self.tables), of, reply);
    }

    /// The served table of a name, with its patterns. `None` if requests to it pass.
    pub(crate) async fn patterns_of(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<(ServedTable, Patterns)>, Failure> {
        if self.tables.iter().any(|table| table.is_elsewhere(name)) {
            return Err(Failure::validation(format!(
                "{name} is a table of another account or region; this endpoint signs for its own \
                 (sharding-endpoint)"
            )));
        }
        let Some(table) = self.tables.iter().find(|table| table.is_named(name)) else {
            return Ok(None);
        };
        Ok(table.patterns(deadline).await?.map(|patterns| (table.clone(), patterns)))
    }

    /// The patterns of all served tables.
    async fn all_patterns(&self, deadline: Instant) -> Result<Vec<Patterns>, Failure> {
        let mut all = Vec::with_capacity(self.tables.len());
        for table in &self.tables {
            all.extend(table.patterns(deadline).await?);
        }
        Ok(all)
    }

    /// The armed key of an item or of a key.
    pub(crate) fn armed(
        table: &ServedTable,
        patterns: &Patterns,
        item: &Members,
    ) -> Result<Option<PartitionKey>, Failure> {
        Ok(match table.named(patterns, item)? {
            Named::Armed(key) => Some(key),
            Named::NotArmed => None,
        })
    }

    async fn one_item(
        &self,
        operation: &str,
        headers: &HeaderMap,
        raw: Bytes,
        body: &Members,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let name = body.get("TableName").and_then(Value::as_str).unwrap_or_default();
        let Some((table, patterns)) = self.patterns_of(name, deadline).await? else {
            return self.pass(headers, raw, Vec::new(), None).await;
        };
        let of = if operation == "PutItem" { "Item" } else { "Key" };
        let item = body.get(of).and_then(Value::as_object).cloned().unwrap_or_default();
        let Some(key) = Self::armed(&table, &patterns, &item)? else {
            return self.pass(headers, raw, vec![patterns], Some((operation, body))).await;
        };
        let operation = match operation {
            "GetItem" => {
                return read::get((&table, &self.upstream), &key, body, deadline).await;
            }
            "PutItem" => "PutItem",
            "UpdateItem" => "UpdateItem",
            _ => "DeleteItem",
        };
        let of = (&table, &self.upstream);
        ClientWrite::read(of, operation, &key, body, deadline)?.run().await
    }

    async fn many_items(
        &self,
        operation: &str,
        headers: &HeaderMap,
        raw: Bytes,
        body: &Members,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let name = body.get("TableName").and_then(Value::as_str).unwrap_or_default();
        let Some((table, patterns)) = self.patterns_of(name, deadline).await? else {
            return self.pass(headers, raw, Vec::new(), None).await;
        };
        if patterns.are_none() {
            return self.pass(headers, raw, vec![patterns], Some((operation, body))).await;
        }
        let of = (&table, &self.upstream);
        let in_time = |reply: Result<Result<Reply, Failure>, _>| {
            reply.unwrap_or_else(|_| {
                Err(Failure::throttled("sharding-endpoint: the page was not read in time"))
            })
        };
        if operation == "Scan" && !scan::is_native(body) {
            let page = scan::page(of, &patterns, body, deadline);
            return in_time(timeout_at(deadline, page).await);
        }
        let index = body.get("IndexName").and_then(Value::as_str);
        let own = match index.filter(|_| operation == "Query") {
            Some(index) => table.own_index(&self.upstream, index).await?,
            None => None,
        };
        if operation == "Scan" || index.is_some() && own.is_none() {
            let page = (operation, body);
            return entries::page(of, &patterns, page, &|_| false, deadline).await;
        }
        let named = query::partition_key(&table, body)?;
        match named.map(|text| table.of_text(&patterns, &text)).transpose()? {
            Some(Named::Armed(key)) => {
                let page = query::query(of, own.as_deref(), (&key, PartOf::Query), body, deadline);
                in_time(timeout_at(deadline, page).await)
            }
            Some(Named::NotArmed) | None => {
                self.pass(headers, raw, vec![patterns], Some((operation, body))).await
            }
        }
    }

    async fn transaction(
        &self,
        operation: &str,
        headers: &HeaderMap,
        raw: Bytes,
        body: &Members,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let parts =
            body.get("TransactItems").and_then(Value::as_array).cloned().unwrap_or_default();
        let (mut all, mut is_armed) = (Vec::new(), false);
        let parts: Vec<&Value> =
            parts.iter().filter_map(Value::as_object).flat_map(Members::values).collect();
        for part in parts {
            let name = part.get("TableName").and_then(Value::as_str).unwrap_or_default();
            let Some((table, patterns)) = self.patterns_of(name, deadline).await? else { continue };
            let item = part.get("Item").or_else(|| part.get("Key")).and_then(Value::as_object);
            let item = item.cloned().unwrap_or_default();
            is_armed |= Self::armed(&table, &patterns, &item)?.is_some();
            all.push((table, patterns));
        }
        if !is_armed {
            let patterns: Vec<Patterns> = all.into_iter().map(|(_, patterns)| patterns).collect();
            return self.pass(headers, raw, patterns, Some((operation, body))).await;
        }
        if operation == "TransactWriteItems" {
            return Err(Failure::unsupported("TransactWriteItems"));
        }
        let table_of = |name: &str| self.tables.iter().find(|it| it.is_named(name)).cloned();
        let armed_of = |table: &ServedTable, item: &Members| {
            let patterns = all.iter().find(|(of, _)| of.name == table.name);
            patterns.map_or(Ok(None), |(table, patterns)| Self::armed(table, patterns, item))
        };
        let lasts = || all.iter().all(|(_, patterns)| patterns.last());
        entries::transact_get(&self.upstream, table_of, armed_of, body, (&lasts, deadline)).await
    }

    /// What is not about single items. A table with armed keys takes only what is on the list.
    async fn other(
        &self,
        operation: &str,
        headers: &HeaderMap,
        raw: Bytes,
        body: &Members,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let mut relied_on = Vec::new();
        if !ON_TABLES.contains(&operation) {
            let mut words = HashSet::new();
            names(&Value::Object(body.clone()), &mut words);
            for table in self.tables.iter().filter(|table| words.contains(&table.name)) {
                let patterns = table.patterns(deadline).await?;
                if patterns.as_ref().is_some_and(|patterns| !patterns.are_none()) {
                    let what = format!("{operation} on the table {}", table.name);
                    return Err(Failure::validation(format!(
                        "{what}, which has armed keys, is not supported (sharding-endpoint)"
                    )));
                }
                relied_on.extend(patterns);
            }
        }
        let name = body.get("TableName").and_then(Value::as_str).unwrap_or_default();
        self.patterns_of(name, deadline).await?;
        self.pass(headers, raw, relied_on, None).await
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
