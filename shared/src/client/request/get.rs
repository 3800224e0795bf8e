//! Reading items by their keys.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tracing::Instrument;

use crate::client::ShardedTable;
use crate::client::content::{FromValue, allowed};
use crate::client::entry::{Versioned, decode};
use crate::client::request::{BATCH_CONCURRENCY, Target, Within, sent_as, span, within};
use crate::engine::Deadline;
use crate::engine::error::{InvalidRequest, ReadError};
use crate::values::value::Item;

/// See [`ShardedTable::get`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct Get<T> {
    table: ShardedTable,
    target: Result<Target, InvalidRequest>,
    fields: Option<BTreeSet<String>>,
    consistent: bool,
    within: Within,
    of: PhantomData<fn() -> T>,
}

sent_as!(Get<T>, "get", Result<Option<Versioned<T>>, ReadError>);

impl<T> Get<T> {
    pub(crate) fn new(table: ShardedTable, target: Result<Target, InvalidRequest>) -> Self {
        let within = Within::default();
        Self { table, target, fields: None, consistent: false, within, of: PhantomData }
    }

    /// Whether the result must contain every write that was acknowledged before. Costs twice the
    /// read units.
    pub const fn consistent(mut self, consistent: bool) -> Self {
        self.consistent = consistent;
        self
    }

    /// Only these attributes. The read units are the same.
    pub fn fields<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
        if let Err(wrong) = names.iter().try_for_each(|name| allowed(self.table.config(), name)) {
            self.target = self.target.and(Err(wrong));
        }
        self.fields = Some(names);
        self
    }
}

impl<T: FromValue> Get<T> {
    async fn send(self, deadline: Deadline) -> Result<Option<Versioned<T>>, ReadError> {
        let Target { partition_key, sort_key } = self.target?;
        let engine = self.table.engine();
        let found = engine.get_tagged(&partition_key, &sort_key, self.consistent, deadline).await?;
        let Some((Item { mut attributes, .. }, tag)) = found else { return Ok(None) };
        if let Some(fields) = self.fields {
            attributes.retain(|name, _| fields.contains(name));
        }
        Ok(Some(Versioned { value: decode(&partition_key, &sort_key, attributes)?, tag }))
    }
}

/// See [`ShardedTable::batch_get`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct BatchGet<T> {
    table: ShardedTable,
    gets: Vec<Get<T>>,
    within: Within,
}

within!(BatchGet<T>);

impl<T> BatchGet<T> {
    pub(crate) fn new(table: ShardedTable, gets: Vec<Get<T>>) -> Self {
        Self { table, gets, within: Within::default() }
    }

    /// As [`Get::consistent`].
    pub fn consistent(mut self, consistent: bool) -> Self {
        self.gets.iter_mut().for_each(|get| get.consistent = consistent);
        self
    }
}

impl<T: FromValue + Send + 'static> IntoFuture for BatchGet<T> {
    type Output = Vec<Result<Option<Versioned<T>>, ReadError>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { table, gets, within } = self;
        Box::pin(async move {
            let deadline = within.deadline(table.config());
            let reads = gets.into_iter().map(|get| {
                // Boxed, because the SDK's futures nest so deeply that the compiler fails on
                // futures that contain them.
                let read = get.send(deadline).instrument(span("batch_get", &table));
                Box::pin(read) as BoxFuture<'static, Result<Option<Versioned<T>>, ReadError>>
            });
            stream::iter(reads).buffered(BATCH_CONCURRENCY).collect().await
        })
    }
}
