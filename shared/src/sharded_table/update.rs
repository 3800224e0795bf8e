//! Writes that depend on the stored item: conditional writes, and changes of a part of an item.

use super::write::{Deed, Payload, WriteError, WriteErrorKind, WriteRun, Written};
use super::{Deadline, Inner, TableEngine};
use crate::core::idempotency::IdempotencyKey;
use crate::core::key::{PartitionKey, ShardNumber, SortKey};
use crate::core::merge::Stored;
use crate::core::patch::{Patch, PatchError};
use crate::core::tag::{Conditions, ItemTag};
use crate::core::value::{Item, MAX_ITEM_BYTES, attributes_size};
use crate::protocol::applied::{Applied, Once, UpdateId};
use crate::protocol::version::Version;
use crate::protocol::view::Moment;
use crate::protocol::write::{How, Kind, Update};
use crate::sharded_table::read::ReadError;
use crate::table::error::TableError;
use crate::table::{Content, RawCopy};

/// An item that was updated.
#[derive(Debug, Clone, PartialEq)]
pub struct Updated {
    /// The item after the update.
    pub item: Item,
    /// Its tag.
    pub tag: ItemTag,
    /// How it was written.
    pub written: Written,
}

impl TableEngine {
    /// Stores an item if the conditions hold for the stored one. Without conditions this is
    /// [`put`](Self::put).
    ///
    /// # Errors
    /// [`WriteErrorKind::Precondition`] if they do not hold; [`WriteError::stands`] then has the
    /// tag of the stored item, if there is one.
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
        let changing = Changing::new(conditions, What::Put(item), None);
        Ok(self.change(&item.partition_key, &item.sort_key, changing, deadline).await?.0)
    }

    /// Deletes an item if the conditions hold for the stored one. Without conditions this is
    /// [`delete`](Self::delete).
    ///
    /// # Errors
    /// As [`put_if`](Self::put_if).
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
        let changing = Changing::new(conditions, What::Delete, None);
        Ok(self.change(key, sort_key, changing, deadline).await?.0)
    }

    /// Changes some attributes of an existing item, if the conditions hold.
    ///
    /// With an idempotency key, the change is made once, even if the call is repeated: the item
    /// remembers it for at least a minute. A put or a deletion of the item forgets it.
    ///
    /// # Errors
    /// [`WriteErrorKind::Absent`] if there is no item, [`WriteErrorKind::Precondition`] if the
    /// conditions do not hold, and [`WriteErrorKind::Patch`] if the change does not fit. After an
    /// unknown outcome, an addition may be repeated with its idempotency key.
    pub async fn update(
        &self,
        (key, sort_key): (&PartitionKey, &SortKey),
        patch: &Patch,
        conditions: &Conditions,
        idempotency_key: Option<&IdempotencyKey>,
        deadline: Deadline,
    ) -> Result<Updated, WriteError> {
        let sent_at = millis(self.inner.environment.now());
        let once = idempotency_key.map(|name| {
            let (kind, content) = patch.content();
            Once { id: UpdateId::of(name, kind, &content), sent_at }
        });
        let changing = Changing::new(conditions, What::Patch(patch), once);
        let (written, changing) = self.change(key, sort_key, changing, deadline).await?;
        if let Some(Stored { item: Some(item), version, .. }) = changing.added {
            return Ok(Updated { tag: ItemTag::of(version, &item.attributes), item, written });
        }
        if let (Some(item), Some(version)) =
            (changing.item.filter(|_| changing.sent == written.version), written.version)
        {
            return Ok(Updated { tag: ItemTag::of(version, &item.attributes), item, written });
        }
        // An earlier request made the change. The stored item is the result.
        let (attempts, throttled) = (written.attempts, written.throttled);
        match self.get_tagged(key, sort_key, true, deadline).await {
            Ok(Some((item, tag))) => Ok(Updated { item, tag, written }),
            Ok(None) => Err(WriteErrorKind::Absent.after(attempts, throttled)),
            Err(ReadError::Capacity(scope)) => {
                Err(WriteErrorKind::Capacity(scope).after(attempts, throttled))
            }
            Err(ReadError::Deadline(cause)) => {
                Err(WriteErrorKind::Deadline(cause).after(attempts, throttled))
            }
            Err(ReadError::Table(error)) => {
                Err(WriteErrorKind::Table(error).after(attempts, throttled))
            }
        }
    }

    async fn change<'a>(
        &'a self,
        key: &'a PartitionKey,
        sort_key: &'a SortKey,
        changing: Changing<'a>,
        deadline: Deadline,
    ) -> Result<(Written, Changing<'a>), WriteError> {
        self.inner.may_point_write(deadline).await?;
        let job = self.inner.job(key, deadline);
        let how = match changing.what {
            What::Put(_) | What::Patch(Patch::Merge(_)) => How::Replace,
            What::Patch(Patch::Add(_)) if changing.conditions.are_none() => How::Add,
            What::Patch(Patch::Add(_)) => How::Replace,
            What::Delete => {
                How::Remove { may_look: job.state.may_look(self.inner.environment.now()) }
            }
        };
        // A patch needs the item anyway.
        let expects =
            changing.conditions.only_version().filter(|_| !matches!(changing.what, What::Patch(_)));
        let kind = Kind::Update(Update { how, expects, once: changing.once });
        let (written, deed) = WriteRun::new(job, kind, sort_key, Deed::Change(Box::new(changing)))
            .run_to_the_end()
            .await;
        let Deed::Change(changing) = deed else {
            unreachable!("a write brings back what it was given")
        };
        match written {
            Ok(written) => Ok((written, *changing)),
            Err(error) => Err(WriteError { current: changing.current, ..error }),
        }
    }
}

impl Inner {
    /// The size in bytes of an item without its attributes.
    pub(super) fn own_bytes(&self, key: &PartitionKey, sort_key: &SortKey) -> usize {
        self.tables.own_bytes(key) + sort_key.to_string().len()
    }
}

pub(super) fn millis(now: Moment) -> u64 {
    u64::try_from(now.wall.as_millis()).unwrap_or(u64::MAX)
}

/// The newest copy of an item, with the updates that it remembers.
pub(super) type Newest = (Stored<Item>, Option<Applied>);

/// The newest item of a key among the copies at its places, with the updates that it remembers. Of
/// two copies of another program, the bare one is newer, because that program continues to write
/// it.
pub(super) fn newest(
    copies: Vec<(ShardNumber, RawCopy)>,
    as_item: impl FnOnce(RawCopy) -> Result<Stored<Item>, TableError>,
) -> Result<Option<Newest>, TableError> {
    let ours = copies.into_iter().filter(|(_, raw)| raw.copy.is_ours);
    let newest =
        ours.max_by_key(|(shard, raw)| (raw.copy.version, *shard == ShardNumber::UNSHARDED));
    let Some((_, raw)) = newest.filter(|(_, raw)| raw.copy.is_item()) else {
        return Ok(None);
    };
    let applied = raw.copy.applied.as_deref().cloned();
    Ok(Some((as_item(raw)?, applied)))
}

/// The kind of a conditional write.
#[derive(Clone, Copy)]
enum What<'a> {
    Put(&'a Item),
    Patch(&'a Patch),
    Delete,
}

/// The state of a conditional write: its conditions, and the item that it derives from the stored
/// one.
pub(super) struct Changing<'a> {
    conditions: &'a Conditions,
    what: What<'a>,
    once: Option<Once>,
    /// The item to put, derived from the stored one, and the updates that it remembers.
    item: Option<Item>,
    applied: Option<Applied>,
    /// The version of the last attempt.
    pub(super) sent: Option<Version>,
    /// The item after an addition in place.
    added: Option<Stored<Item>>,
    /// The tag of the copy that was read.
    current: Option<ItemTag>,
    is_declined: bool,
}

impl<'a> Changing<'a> {
    const fn new(conditions: &'a Conditions, what: What<'a>, once: Option<Once>) -> Self {
        Self {
            conditions,
            what,
            once,
            item: None,
            applied: None,
            sent: None,
            added: None,
            current: None,
            is_declined: false,
        }
    }

    pub(super) const fn content(&self) -> Option<Content<'_>> {
        match (self.what, &self.item) {
            (What::Put(item), _) => Some(Content { item, applied: None }),
            (What::Patch(_), Some(item)) => Some(Content { item, applied: self.applied.as_ref() }),
            (What::Patch(_), None) | (What::Delete, _) => None,
        }
    }

    /// The additions in place.
    pub(super) fn additions(&mut self) -> Payload<'_> {
        match self.what {
            What::Patch(Patch::Add(additions)) => Payload::Additions(additions, &mut self.added),
            What::Patch(Patch::Merge(_)) | What::Put(_) | What::Delete => {
                Payload::Content(None, None)
            }
        }
    }

    pub(super) const fn is_declined(&self) -> bool {
        self.is_declined
    }

    /// Derives the item to put from the stored one. If there is none to put, the write is declined:
    /// for a reason, or because there is nothing to do.
    pub(super) fn judge(
        &mut self,
        newest: Option<Newest>,
        own_bytes: usize,
        now: Moment,
    ) -> Result<(), Option<WriteErrorKind>> {
        let judged = self.made_of(newest, own_bytes, now);
        self.is_declined = judged.is_err();
        judged
    }

    fn made_of(
        &mut self,
        newest: Option<Newest>,
        own_bytes: usize,
        now: Moment,
    ) -> Result<(), Option<WriteErrorKind>> {
        let newest =
            newest.and_then(|(stored, applied)| Some((stored.version, stored.item?, applied)));
        self.current =
            newest.as_ref().map(|(version, item, _)| ItemTag::of(*version, &item.attributes));
        if newest.is_none() && matches!(self.what, What::Patch(_)) {
            return Err(Some(WriteErrorKind::Absent));
        }
        if !self.conditions.hold(self.current.as_ref()) {
            return Err(Some(WriteErrorKind::Precondition));
        }
        match (self.what, newest) {
            (What::Delete, None) => Err(None),
            (What::Patch(patch), Some((_, item, applied))) => {
                let attributes = patch
                    .apply(item.attributes)
                    .map_err(|error| Some(WriteErrorKind::Patch(error)))?;
                self.applied = match self.once {
                    Some(once) => Some(Applied::with(applied.as_ref(), once, millis(now))),
                    None => applied,
                };
                let bytes = own_bytes + attributes_size(&attributes);
                if bytes > MAX_ITEM_BYTES {
                    return Err(Some(WriteErrorKind::Patch(PatchError::TooLarge { bytes })));
                }
                self.item = Some(Item { attributes, ..item });
                Ok(())
            }
            (What::Put(_) | What::Delete | What::Patch(_), _) => Ok(()),
        }
    }
}
