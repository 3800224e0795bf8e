//! The input of a write, and the content that a request takes from it.

use crate::engine::error::WriteErrorKind;
use crate::protocol::applied::{Applied, Once};
use crate::protocol::merge::Stored;
use crate::protocol::tag::{Conditions, ETag};
use crate::protocol::version::Version;
use crate::protocol::view::Moment;
use crate::table::error::TableError;
use crate::table::{Content, RawCopy};
use crate::values::key::ShardNumber;
use crate::values::patch::{Patch, PatchError};
use crate::values::value::{Attributes, Item, MAX_ITEM_BYTES};

/// The newest copy of an item, with the updates that it remembers.
pub(super) type Newest = (Stored<Item>, Option<Applied>);

/// The newest item among the copies at its places, with the updates that it remembers.
pub(super) fn newest(
    copies: Vec<(ShardNumber, RawCopy)>,
    as_item: impl FnOnce(RawCopy) -> Result<Stored<Item>, TableError>,
) -> Result<Option<Newest>, TableError> {
    let newest = copies.into_iter().max_by_key(|(_, raw)| raw.copy.version);
    let Some((_, raw)) = newest.filter(|(_, raw)| !raw.copy.is_tombstone) else {
        return Ok(None);
    };
    let applied = raw.copy.applied.as_deref().cloned();
    Ok(Some((as_item(raw)?, applied)))
}

#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    Put(&'a Item),
    Patch(&'a Patch),
    Delete,
}

/// The input of a write. If it depends on the stored item, also what is derived from that.
pub(super) struct Input<'a> {
    pub(super) what: What<'a>,
    pub(super) conditions: Option<&'a Conditions>,
    pub(super) once: Option<Once>,
    /// The item to put, if it is not the caller's: derived from the stored one, with the updates
    /// that it remembers, or under another sort key.
    pub(super) item: Option<Item>,
    pub(super) applied: Option<Applied>,
    /// The version of the last put.
    pub(super) sent: Option<Version>,
    /// The item after an addition in place.
    pub(super) added: Option<Stored<Item>>,
    /// The tag of the copy that was read.
    pub(super) current: Option<ETag>,
}

impl<'a> Input<'a> {
    /// The input of a write that does not depend on the stored item.
    pub(super) const fn new(what: What<'a>) -> Self {
        Self {
            what,
            conditions: None,
            once: None,
            item: None,
            applied: None,
            sent: None,
            added: None,
            current: None,
        }
    }

    pub(super) const fn content(&self) -> Option<Content<'_>> {
        match (self.what, &self.item) {
            (_, Some(item)) => Some(Content { item, applied: self.applied.as_ref() }),
            (What::Put(item), None) => Some(Content { item, applied: None }),
            (What::Patch(_) | What::Delete, None) => None,
        }
    }

    /// What DynamoDB may add in place.
    pub(super) fn additions(&self) -> Option<&'a Attributes> {
        match self.what {
            What::Patch(patch) => patch.only_adds().then_some(&patch.add),
            What::Put(_) | What::Delete => None,
        }
    }

    /// Derives the item to put from the stored one. If there is none to put, the write is declined:
    /// for a reason, or because there is nothing to do.
    pub(super) fn derive(
        &mut self,
        newest: Option<Newest>,
        own_bytes: usize,
        now: Moment,
    ) -> Result<(), Option<WriteErrorKind>> {
        let newest =
            newest.and_then(|(stored, applied)| Some((stored.version, stored.item?, applied)));
        self.current =
            newest.as_ref().map(|(version, item, _)| ETag::of(*version, &item.attributes));
        if newest.is_none() && matches!(self.what, What::Patch(_)) {
            return Err(Some(WriteErrorKind::Absent));
        }
        if self.conditions.is_some_and(|conditions| !conditions.hold(self.current.as_ref())) {
            return Err(Some(WriteErrorKind::Precondition));
        }
        match (self.what, newest) {
            (What::Delete, None) => Err(None),
            (What::Patch(patch), Some((_, item, applied))) => {
                let attributes = patch
                    .apply(item.attributes)
                    .map_err(|error| Some(WriteErrorKind::Mismatch(error)))?;
                self.applied = match self.once {
                    Some(once) => Some(Applied::with(applied.as_ref(), once, millis(now))),
                    None => applied,
                };
                let bytes = own_bytes + attributes.size();
                if bytes > MAX_ITEM_BYTES {
                    return Err(Some(WriteErrorKind::Mismatch(PatchError::TooLarge { bytes })));
                }
                self.item = Some(Item { attributes, ..item });
                Ok(())
            }
            (What::Put(_) | What::Delete | What::Patch(_), _) => Ok(()),
        }
    }
}

/// Epoch milliseconds.
pub(super) fn millis(now: Moment) -> u64 {
    u64::try_from(now.wall.as_millis()).unwrap_or(u64::MAX)
}
