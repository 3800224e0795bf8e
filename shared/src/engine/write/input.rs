//! The input of a write: an item, a deletion, or a change that depends on the stored item; and the
//! content that a request takes from it.

use crate::engine::results::WriteErrorKind;
use crate::protocol::applied::{Applied, Once};
use crate::protocol::merge::Stored;
use crate::protocol::tag::{Conditions, ItemTag};
use crate::protocol::version::Version;
use crate::protocol::view::Moment;
use crate::table::error::TableError;
use crate::table::{Content, LeaseLasts, RawCopy};
use crate::values::key::ShardNumber;
use crate::values::patch::{Patch, PatchError};
use crate::values::value::{Attributes, Item, MAX_ITEM_BYTES, attributes_size};

/// The input of a write.
pub(in crate::engine) enum Deed<'a> {
    Put(&'a Item),
    Delete,
    Change(Box<Changing<'a>>),
}

impl Deed<'_> {
    pub(in crate::engine) fn content(&self) -> Option<Content<'_>> {
        match self {
            Self::Put(item) => Some(Content { item, applied: None }),
            Self::Delete => None,
            Self::Change(changing) => changing.content(),
        }
    }
}

/// The content of a request.
pub(in crate::engine) enum Payload<'a> {
    /// The content of a put. With a lease, the request is sent only while the lease is valid.
    Content(Option<Content<'a>>, Option<LeaseLasts>),
    /// The additions in place, and where to store the resulting item.
    Additions(&'a Attributes, &'a mut Option<Stored<Item>>),
}

/// The newest copy of an item, with the updates that it remembers.
pub(in crate::engine) type Newest = (Stored<Item>, Option<Applied>);

/// The newest item of a key among the copies at its places, with the updates that it remembers. Of
/// two copies of another program, the bare one is newer, because that program continues to write
/// it.
pub(in crate::engine) fn newest(
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
pub(in crate::engine) enum What<'a> {
    Put(&'a Item),
    Patch(&'a Patch),
    Delete,
}

/// The state of a conditional write: its conditions, and the item that it derives from the stored
/// one.
pub(in crate::engine) struct Changing<'a> {
    pub(in crate::engine) conditions: &'a Conditions,
    pub(in crate::engine) what: What<'a>,
    pub(in crate::engine) once: Option<Once>,
    /// The item to put, derived from the stored one, and the updates that it remembers.
    pub(in crate::engine) item: Option<Item>,
    applied: Option<Applied>,
    /// The version of the last attempt.
    pub(in crate::engine) sent: Option<Version>,
    /// The item after an addition in place.
    pub(in crate::engine) added: Option<Stored<Item>>,
    /// The tag of the copy that was read.
    pub(in crate::engine) current: Option<ItemTag>,
    is_declined: bool,
}

impl<'a> Changing<'a> {
    pub(in crate::engine) const fn new(
        conditions: &'a Conditions,
        what: What<'a>,
        once: Option<Once>,
    ) -> Self {
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

    pub(in crate::engine) const fn content(&self) -> Option<Content<'_>> {
        match (self.what, &self.item) {
            (What::Put(item), _) => Some(Content { item, applied: None }),
            (What::Patch(_), Some(item)) => Some(Content { item, applied: self.applied.as_ref() }),
            (What::Patch(_), None) | (What::Delete, _) => None,
        }
    }

    /// The additions in place.
    pub(in crate::engine) fn additions(&mut self) -> Payload<'_> {
        match self.what {
            What::Patch(Patch::Add(additions)) => Payload::Additions(additions, &mut self.added),
            What::Patch(Patch::Merge(_)) | What::Put(_) | What::Delete => {
                Payload::Content(None, None)
            }
        }
    }

    pub(in crate::engine) const fn is_declined(&self) -> bool {
        self.is_declined
    }

    /// Derives the item to put from the stored one. If there is none to put, the write is declined:
    /// for a reason, or because there is nothing to do.
    pub(in crate::engine) fn judge(
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

/// Epoch milliseconds.
pub(in crate::engine) fn millis(now: Moment) -> u64 {
    u64::try_from(now.wall.as_millis()).unwrap_or(u64::MAX)
}
