//! The throttled keys of the table and of its replicas, and the remedy for each throttled index.
//!
//! A replica is an index with the table's own keys, so its throttled keys are the table's, and more
//! shards relieve them. Another index has other keys, so the table's shards do not matter for it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::Scaler;
use crate::cause::Cause;
use crate::clients::ClientError;
use crate::failure::Failure;
use crate::limits::Limits;
use crate::report::to_json;
use crate::telemetry;
use crate::throttled_keys::{Insights, ThrottledKeys, switch_on};

/// The findings about the throttled table and indexes.
#[derive(Debug, Default)]
pub(crate) struct HotKeys {
    /// Keys whose writes are throttled.
    pub(crate) writes: ThrottledKeys,
    /// Keys for which only reads are throttled.
    pub(crate) reads: ThrottledKeys,
    /// `off`, `failed` or `enabling`, if Contributor Insights of the table reports no keys.
    pub(crate) insights: Option<&'static str>,
    /// How to make them visible.
    pub(crate) advice: Option<String>,
    /// Each throttled index.
    pub(crate) indexes: Vec<IndexReport>,
}

/// The state of a throttled index, and its remedy.
#[derive(Debug, Serialize)]
pub(crate) struct IndexReport {
    index: String,
    causes: BTreeSet<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contributor_insights: Option<&'static str>,
    advice: String,
    /// Why its keys are unknown.
    #[serde(flatten)]
    pub(crate) failure: Option<Failure>,
}

impl Scaler {
    pub(crate) async fn hot_keys(
        &self,
        limits: &Limits,
        now_seconds: u64,
    ) -> Result<HotKeys, ClientError> {
        let mut found = HotKeys::default();
        if let Some(insights) = self.insights(None, &limits.table, now_seconds).await? {
            (found.insights, found.advice) =
                found.take_in(insights, &limits.table, self.switch_on(None));
        }
        for (index, causes) in &limits.indexes {
            let report = self.index(&mut found, index, causes, now_seconds).await;
            tracing::warn!(audit = true, answer = %to_json(&report), "an index throttles requests");
            found.indexes.push(report);
        }
        if found.writes.foreign + found.reads.foreign > 0 {
            let keys = found.writes.foreign + found.reads.foreign;
            tracing::warn!(keys, "throttled keys that are no shard keys of this table");
        }
        Ok(found)
    }

    /// Reports an index. If its keys are unknown, the table's keys are still relieved.
    async fn index(
        &self,
        found: &mut HotKeys,
        index: &str,
        causes: &BTreeSet<Cause>,
        now_seconds: u64,
    ) -> IndexReport {
        let is_replica = self.table.config().read_replicas.iter().any(|replica| replica == index);
        let advice: BTreeSet<&str> =
            causes.iter().map(|cause| cause.advice_of_index(is_replica)).collect();
        let mut advice: Vec<String> = advice.into_iter().map(str::to_owned).collect();
        let (mut contributor_insights, mut failure) = (None, None);
        if is_replica {
            match self.insights(Some(index), causes, now_seconds).await {
                Ok(None) => {}
                Ok(Some(insights)) => {
                    let (state, needed) =
                        found.take_in(insights, causes, self.switch_on(Some(index)));
                    advice.extend(needed);
                    contributor_insights = state;
                }
                Err(error) => {
                    tracing::error!(%error, index, "the throttled keys of an index could not be learnt");
                    failure = Some(Failure::new(&error, error.is_retryable));
                }
            }
        }
        let advice = advice.join("; ");
        let (index, causes) = (index.to_owned(), causes.clone());
        IndexReport { index, causes, contributor_insights, advice, failure }
    }

    /// The report of Contributor Insights for the table or an index. `None` if it has no hot
    /// partition.
    async fn insights(
        &self,
        index: Option<&str>,
        causes: &BTreeSet<Cause>,
        now_seconds: u64,
    ) -> Result<Option<Insights>, ClientError> {
        if !causes.contains(&Cause::HotWrites) && !causes.contains(&Cause::HotReads) {
            return Ok(None);
        }
        let config = self.table.config();
        self.clients
            .throttled_keys(&config.table_name, index, &config.shard_keys, now_seconds)
            .await
            .map(Some)
    }

    fn switch_on(&self, index: Option<&str>) -> String {
        switch_on(&self.table.config().table_name, index)
    }
}

impl HotKeys {
    /// Adds the keys of the table or of an index. If it reports no keys, returns the state of
    /// Contributor Insights, and the remedy.
    fn take_in(
        &mut self,
        insights: Insights,
        causes: &BTreeSet<Cause>,
        command: String,
    ) -> (Option<&'static str>, Option<String>) {
        match insights {
            Insights::Keys(keys) => {
                let kind = if causes.contains(&Cause::HotWrites) {
                    &mut self.writes
                } else {
                    &mut self.reads
                };
                kind.merge(keys);
                (None, None)
            }
            Insights::Enabling => {
                tracing::warn!(
                    "Contributor Insights is being switched on: the throttled keys are not known yet"
                );
                (Some("enabling"), None)
            }
            Insights::Off(why) => not_known("off", &why, "switch it on", &command),
            Insights::Failed(why) => {
                not_known("failed", &why, "remove the reason, then switch it on", &command)
            }
        }
    }
}

fn not_known(
    state: &'static str,
    why: &str,
    remedy: &str,
    command: &str,
) -> (Option<&'static str>, Option<String>) {
    tracing::warn!(why, command, "the throttled keys are not known");
    telemetry::contributor_insights_off();
    let advice = format!("{why}, so the throttled keys are not known; {remedy}: {command}");
    (Some(state), Some(advice))
}
