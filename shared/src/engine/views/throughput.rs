//! The table's warm throughput in the directory. The shard-scaler reads it from DynamoDB and
//! publishes it; all other instances get it with the pages that they read anyway. It is no part of
//! the protocol: if it is not known, decisions are made without it.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::engine::retry::retrying;
use crate::engine::views::directory::PageView;
use crate::engine::{Deadline, Inner, TableEngine};
use crate::protocol::directory::KeyDigest;
use crate::table::error::TableError;
use crate::table::{PageCopy, TABLE_KEY};
use crate::values::key::PartitionKey;
use crate::values::throughput::WarmThroughput;

/// Copies that are compared at the same time.
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
        let table =
            retrying(&inner.environment, deadline, || inner.tables.get_table_item()).await?;
        let table =
            table.ok_or_else(|| TableError::Lost(format!("the item {TABLE_KEY} is gone")))?;
        for copies in table.all_copies().chunks(COMPARISON_CONCURRENCY) {
            let mut publishing = JoinSet::new();
            for at in copies {
                let (inner, at) = (Arc::clone(inner), *at);
                publishing.spawn(async move {
                    inner.publish_warm_throughput_to(at, warm, deadline).await
                });
            }
            while let Some(published) = publishing.join_next().await {
                published.map_err(|died| TableError::Transient(died.to_string().into()))??;
            }
        }
        Ok(())
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
        Ok(page.and_then(|page| page.warm()))
    }
}

impl Inner {
    async fn publish_warm_throughput_to(
        &self,
        at: PageCopy,
        warm: WarmThroughput,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        // Read first, because a refused condition costs the write units of the whole page, and a
        // page may be large.
        let stored = retrying(&self.environment, deadline, || self.tables.get_page(at)).await?;
        // A copy that is missing or not complete gets the value with its mark.
        if stored.is_none_or(|page| page.copies.is_none() || page.warm == Some(warm)) {
            return Ok(());
        }
        retrying(&self.environment, deadline, || self.tables.put_warm_throughput(at, warm)).await
    }
}
