//! The table's warm throughput in the directory. The shard-scaler reads it from DynamoDB and
//! publishes it; all other instances get it with the pages that they read anyway. It is no part of
//! the protocol: if it is not known, decisions are made without it.

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::engine::views::directory::PageView;
use crate::engine::{Deadline, TableEngine};
use crate::protocol::directory::KeyDigest;
use crate::table::error::TableError;
use crate::values::key::PartitionKey;
use crate::values::throughput::WarmThroughput;

const COMPARISON_CONCURRENCY: usize = 16;

impl TableEngine {
    /// Writes the warm throughput to every copy of every page that has another value.
    pub async fn publish_warm_throughput(
        &self,
        warm: WarmThroughput,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        self.claim_mode(deadline).await?;
        let inner = &self.inner;
        let table = inner.table_item(deadline).await?;
        let publish = |at| async move {
            // Read first, because a refused condition costs the write units of the whole page, and
            // a page may be large.
            let stored = inner.retrying(deadline, || inner.tables.get_page(at)).await?;
            // A copy that is missing or not complete gets the value with its mark.
            if stored.is_none_or(|page| page.copies.is_none() || page.warm == Some(warm)) {
                return Ok(());
            }
            inner.retrying(deadline, || inner.tables.put_warm_throughput(at, warm)).await
        };
        let publishing: Vec<_> = table.all_copies().into_iter().map(publish).collect();
        stream::iter(publishing).buffer_unordered(COMPARISON_CONCURRENCY).try_collect().await
    }

    /// The published warm throughput, from the key's page: read within the lease, or now. `None`
    /// also if no copy of the page is complete.
    pub async fn warm_throughput(
        &self,
        key: &PartitionKey,
        deadline: Deadline,
    ) -> Result<Option<WarmThroughput>, TableError> {
        let inner = &self.inner;
        let (key, lease) = (KeyDigest::of(key), inner.config.lease());
        let is_valid = |page: &PageView| page.is_valid(inner.environment.now(), lease);
        let known =
            inner.known_page(key).and_then(|page| page.known()).filter(|page| is_valid(page));
        let page = match known {
            Some(known) => Some(known),
            None => inner.read_page(key, is_valid, deadline).await?,
        };
        Ok(page.and_then(|page| page.warm))
    }
}
