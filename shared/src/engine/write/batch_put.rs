//! Storing many items.

use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::results::Written;
use crate::engine::{Deadline, TableEngine};
use crate::values::value::Item;

/// The largest number of concurrent writes of a batch.
const CONCURRENCY: usize = 64;

/// Runs writes, up to [`CONCURRENCY`] at once, and returns each result with the position of its
/// write, as it comes. A write is taken from the stream when it begins.
///
/// Each runs in a task of its own: it goes on while the caller handles an earlier result.
pub(crate) fn side_by_side<W, T>(
    writes: impl Stream<Item = W>,
) -> impl Stream<Item = (usize, Result<T, WriteError>)>
where
    W: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let begin = |(index, write)| {
        let task = AbortOnDropHandle::new(tokio::spawn(write));
        async move {
            let died =
                |_| WriteErrorKind::Unknown("the task that stored it died".into()).after(1, 0);
            (index, task.await.map_err(died))
        }
    };
    writes.enumerate().map(begin).buffer_unordered(CONCURRENCY)
}

impl TableEngine {
    /// Stores items in parallel, each as [`put`](Self::put) or as [`put_once`](Self::put_once). The
    /// results are in the order of the items.
    pub async fn batch_put(
        &self,
        items: Vec<Item>,
        once: bool,
        deadline: Deadline,
    ) -> Vec<Result<Written, WriteError>> {
        let writes = items.into_iter().map(|item| {
            let inner = Arc::clone(&self.inner);
            async move { inner.store(&item, once, deadline).await }
        });
        let mut results: Vec<_> = side_by_side(stream::iter(writes)).collect().await;
        results.sort_unstable_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result.and_then(|written| written)).collect()
    }
}
