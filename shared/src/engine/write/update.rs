//! Writes that depend on the stored item: conditional writes, and changes of a part of an item.

use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::results::{Updated, Written};
use crate::engine::write::attempts::Attempts;
use crate::engine::write::run::{Input, What, WriteRun};
use crate::engine::{Deadline, TableEngine};
use crate::protocol::applied::{Once, UpdateId};
use crate::protocol::tag::{Conditions, ETag};
use crate::protocol::write::{Kind, Update};
use crate::values::idempotency::IdempotencyKey;
use crate::values::key::{PartitionKey, SortKey};
use crate::values::patch::Patch;
use crate::values::value::Item;

impl TableEngine {
    /// [`put`](Self::put), if the conditions hold for the stored item.
    pub async fn put_if(
        &self,
        item: &Item,
        conditions: &Conditions,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        if conditions.are_none() {
            return self.put(item, deadline).await;
        }
        if conditions.only_absent() {
            let created = self.create(item, None, deadline).await;
            let exists = |kind: &WriteErrorKind| matches!(kind, WriteErrorKind::Exists);
            return created.map_err(|error| WriteError {
                kind: if exists(&error.kind) { WriteErrorKind::Precondition } else { error.kind },
                ..error
            });
        }
        let changing = Input { conditions: Some(conditions), ..Input::new(What::Put(item)) };
        Ok(self.change(&item.partition_key, &item.sort_key, changing, deadline).await?.0)
    }

    /// [`delete`](Self::delete), if the conditions hold for the stored item.
    pub async fn delete_if(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        conditions: &Conditions,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        if conditions.are_none() {
            return self.delete(key, sort_key, deadline).await;
        }
        let changing = Input { conditions: Some(conditions), ..Input::new(What::Delete) };
        Ok(self.change(key, sort_key, changing, deadline).await?.0)
    }

    /// Changes some attributes of an existing item, if the conditions hold.
    pub async fn update(
        &self,
        (key, sort_key): (&PartitionKey, &SortKey),
        patch: &Patch,
        conditions: &Conditions,
        idempotency_key: Option<&IdempotencyKey>,
        deadline: Deadline,
    ) -> Result<Updated, WriteError> {
        let sent_at = self.inner.environment.now().epoch_millis();
        let once = idempotency_key.map(|name| {
            let (kind, content) = patch.content();
            Once { id: UpdateId::of(name, kind, &content), sent_at }
        });
        let changing =
            Input { conditions: Some(conditions), once, ..Input::new(What::Patch(patch)) };
        let (written, changing) = self.change(key, sort_key, changing, deadline).await?;
        let added = changing.added.and_then(|added| Some((added.item?, added.version)));
        let put = changing.item.filter(|_| changing.sent == written.version).zip(written.version);
        if let Some((item, version)) = added.or(put) {
            let tag = ETag::of(version, &item.attributes);
            return Ok(Updated::of(item, tag, written));
        }
        // An earlier request made the change. The stored item is the result.
        let (attempts, throttled) = (written.attempts, written.throttled);
        match self.get_tagged(key, sort_key, true, deadline).await {
            Ok(Some((item, tag))) => Ok(Updated::of(item, tag, written)),
            Ok(None) => Err(WriteErrorKind::Absent.after(attempts, throttled)),
            Err(error) => Err(WriteError {
                sort_key: Some(Box::new(sort_key.clone())),
                ..WriteErrorKind::unread(error).after(attempts, throttled)
            }),
        }
    }

    async fn change<'a>(
        &'a self,
        key: &'a PartitionKey,
        sort_key: &'a SortKey,
        input: Input<'a>,
        deadline: Deadline,
    ) -> Result<(Written, Input<'a>), WriteError> {
        self.inner.check_point_writes(deadline).await?;
        let job = self.inner.job(key, deadline);
        job.check_armed().await?;
        let conditions = input.conditions.filter(|conditions| !conditions.are_none());
        // A patch needs the item anyway.
        let expects = match input.what {
            What::Patch(_) => None,
            What::Put(_) | What::Delete => conditions.and_then(Conditions::only_version),
        };
        let update = Update { expects, once: input.once };
        let kind = match input.what {
            What::Patch(patch) if patch.only_adds() && conditions.is_none() => Kind::Add(update),
            What::Put(_) | What::Patch(_) => Kind::Replace(update),
            What::Delete => {
                let may_look = job.state.may_look(self.inner.environment.now());
                Kind::DeleteIf { update, may_look }
            }
        };
        let (written, input) = WriteRun::new(Attempts::new(job, sort_key), kind, input).run().await;
        match written {
            Ok(written) => Ok((written, input)),
            Err(error) => Err(WriteError { current: input.current, ..error }),
        }
    }
}
