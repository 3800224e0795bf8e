//! The served tables and the server behind them: which table a request means, and how a request
//! passes as it came.

use bytes::Bytes;
use http::HeaderMap;
use sharding::internal::Patterns;
use tokio::time::Instant;

use crate::item;
use crate::observed::Observed;
use crate::reply::{Failure, Members, Reply};
use crate::table::ServedTable;
use crate::upstream::{Upstream, answered};

/// A request, and when its answer is due.
pub(crate) struct Call<'a> {
    pub(crate) operation: &'a str,
    pub(crate) headers: &'a HeaderMap,
    /// The body as it came.
    pub(crate) raw: Bytes,
    pub(crate) body: Members,
    pub(crate) deadline: Instant,
}

impl Call<'_> {
    pub(crate) fn table(&self) -> &str {
        item::text(&self.body, "TableName").unwrap_or_default()
    }
}

/// The served tables, the server behind them, and what was seen of keys that are not armed.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) tables: Vec<ServedTable>,
    pub(crate) upstream: Upstream,
    pub(crate) observed: Observed,
}

impl Service {
    /// Passes a request as it came, while these patterns may be relied on. Of a request about a
    /// served table, its keys are observed.
    pub(crate) async fn pass(
        &self,
        call: &Call<'_>,
        patterns: Vec<Patterns>,
    ) -> Result<Reply, Failure> {
        let lasts = || patterns.iter().all(Patterns::last);
        let reply = answered(self.upstream.send(call.headers, call.raw.clone(), &lasts).await)?;
        if !patterns.is_empty() {
            self.note(call.operation, &call.body, &reply);
        }
        Ok(reply)
    }

    /// The served table that a request means by this name.
    pub(crate) fn table(&self, name: &str) -> Option<&ServedTable> {
        self.tables.iter().find(|table| table.is_named(name))
    }

    /// The served table of a name, with its patterns. `None` if requests to it pass.
    pub(crate) async fn patterns_of(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<(&ServedTable, Patterns)>, Failure> {
        if self.tables.iter().any(|table| table.is_elsewhere(name)) {
            return Err(Failure::validation(format!(
                "{name} is a table of another account or region; this endpoint signs for its own \
                 (sharding-endpoint)"
            )));
        }
        let Some(table) = self.table(name) else { return Ok(None) };
        Ok(table.patterns(deadline).await?.map(|patterns| (table, patterns)))
    }
}
