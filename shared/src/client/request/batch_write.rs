//! Storing or deleting many items.

use std::fmt;

use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::client::ShardedTable;
use crate::client::entry::BatchOutcome;
use crate::client::request::{BATCH_CONCURRENCY, Target, Within, span, within};
use crate::engine::error::{InvalidRequest, WriteError, WriteErrorKind};
use crate::engine::write::Written;
use crate::protocol::tag::Conditions;
use crate::values::value::Item;

#[derive(Debug)]
pub(crate) enum Single {
    Put(Item),
    Delete(Target),
}

/// See [`ShardedTable::batch_put`] and [`ShardedTable::batch_delete`]. The time limit is that of each
/// item, from the beginning of its write; an item that is taken after the deadline fails at once, of
/// kind `Deadline`.
#[must_use = "a request does nothing unless it is awaited"]
pub struct BatchWrite<'a> {
    table: ShardedTable,
    operation: &'static str,
    writes: BoxStream<'a, Result<Single, InvalidRequest>>,
    once: bool,
    within: Within,
}

within!(BatchWrite<'a>);

impl fmt::Debug for BatchWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWrite").field("within", &self.within).finish_non_exhaustive()
    }
}

impl<'a> BatchWrite<'a> {
    pub(crate) fn new(
        table: ShardedTable,
        operation: &'static str,
        writes: impl Stream<Item = Result<Single, InvalidRequest>> + Send + 'a,
    ) -> Self {
        let (writes, within) = (writes.boxed(), Within::default());
        Self { table, operation, writes, once: false, within }
    }

    /// Puts are made once, as by [`Put::once`](crate::request::Put::once). Deletions cannot be.
    pub const fn once(mut self, once: bool) -> Self {
        self.once = once;
        self
    }

    /// The outcome of each item with its position from 0, as it comes. Items are taken while the
    /// stream is polled; writes that have begun go on without that.
    ///
    /// Dropping the stream cancels the writes that are under way: their outcome is unknown.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use futures_util::StreamExt;
    /// use dynamodb_write_sharding::Attributes;
    ///
    /// let items = (0..1_000).map(|n| ("2014-07-09", format!("order-{n}"), Attributes::new()));
    /// let mut outcomes = table.batch_put(items).stream();
    /// let mut stored = 0;
    /// while let Some((position, outcome)) = outcomes.next().await {
    ///     match outcome {
    ///         Ok(_) => stored += 1,
    ///         Err(error) => println!("item {position}: {error}"),
    ///     }
    ///     if stored % 100 == 0 {
    ///         println!("{stored} of 1000");
    ///     }
    /// }
    /// assert_eq!(stored, 1_000);
    /// # Ok(()) });
    /// ```
    pub fn stream(
        self,
    ) -> impl Stream<Item = (usize, Result<Written, WriteError>)> + Send + Unpin + 'a {
        let Self { table, operation, writes, once, within } = self;
        let begin = move |(position, write): (usize, Result<Single, InvalidRequest>)| {
            let (table, deadline) = (table.clone(), within.deadline(table.config()));
            let span = span(operation, &table);
            let written = async move {
                let engine = table.engine();
                match write? {
                    Single::Put(item) if once => engine.put_once(&item, deadline).await,
                    Single::Put(item) => engine.put(&item, deadline).await,
                    Single::Delete(_) if once => {
                        Err(InvalidRequest::of("once", "only puts can be made once").into())
                    }
                    Single::Delete(Target { partition_key, sort_key }) => {
                        let conditions = Conditions::default();
                        engine.delete_if(&partition_key, &sort_key, &conditions, deadline).await
                    }
                }
            };
            // A task of its own goes on while the caller handles an earlier result.
            let task = AbortOnDropHandle::new(tokio::spawn(written.instrument(span)));
            async move {
                let died =
                    |_| WriteErrorKind::Unknown("the task that stored it died".into()).after(1, 0);
                (position, task.await.map_err(died).and_then(|outcome| outcome))
            }
        };
        writes.enumerate().map(begin).buffer_unordered(BATCH_CONCURRENCY)
    }
}

impl<'a> IntoFuture for BatchWrite<'a> {
    type Output = BatchOutcome;
    type IntoFuture = BoxFuture<'a, BatchOutcome>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut outcomes = self.stream();
            let (mut written, mut failed) = (0, Vec::new());
            while let Some((position, outcome)) = outcomes.next().await {
                match outcome {
                    Ok(_) => written += 1,
                    Err(error) => failed.push((position, error)),
                }
            }
            failed.sort_unstable_by_key(|(position, _)| *position);
            BatchOutcome { written, failed }
        })
    }
}
