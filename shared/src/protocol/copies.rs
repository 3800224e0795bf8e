//! Copies of an item, and the conditions under which one may be written or removed.

use super::applied::{Applied, Once};
use super::version::Version;

/// What stands of an item at one place, as far as the protocol is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Copy {
    pub version: Version,
    /// A deleted item: it hides older copies at other places.
    pub is_tombstone: bool,
    /// The create-only write that stored it.
    pub write_id: Option<String>,
    /// Whether it is an item of the key. In a table that is adopted, an item of another key may stand there.
    pub is_ours: bool,
    /// Which updates were applied to it, if any that may be repeated.
    pub applied: Option<Box<Applied>>,
}

impl Copy {
    /// Whether it is an item, and not a tombstone or another key's.
    pub const fn is_item(&self) -> bool {
        self.is_ours && !self.is_tombstone
    }

    /// Whether an update was applied to it.
    pub fn has_applied(&self, once: Option<Once>) -> bool {
        once.is_some_and(|once| self.applied.as_ref().is_some_and(|applied| applied.contains(once.id)))
    }
}

/// What must stand at a place for a request to be applied.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Nothing, or a lower version.
    AbsentOrBelow(Version),
    /// Nothing, or a version below the tombstone's with this write id, which the tombstone keeps.
    Buries { version: Version, write_id: Option<String> },
    /// Exactly this version; `None` for nothing.
    Unchanged(Option<Version>),
    /// An item of this version or a higher one; and where the update must be applied once, one that takes its id.
    Stands { from: Version, once: Option<Once> },
}

impl Condition {
    /// Whether it holds where this stands. `table` says the same to DynamoDB as an expression.
    pub fn holds(&self, stands: Option<&Copy>) -> bool {
        match (self, stands) {
            (Self::AbsentOrBelow(_) | Self::Buries { .. } | Self::Unchanged(None), None) => true,
            (Self::AbsentOrBelow(version), Some(copy)) => copy.version < *version,
            (Self::Buries { version, write_id }, Some(copy)) => copy.version < *version && copy.write_id == *write_id,
            (Self::Unchanged(version), stands) => stands.map(|copy| copy.version) == *version,
            (Self::Stands { .. }, None) => false,
            (Self::Stands { from, once }, Some(copy)) => {
                let takes = |once: &Once| copy.applied.as_ref().is_some_and(|applied| applied.takes(*once));
                copy.is_item() && copy.version >= *from && once.as_ref().is_none_or(takes)
            }
        }
    }
}

/// One conditional request about an item.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    pub effect: Effect,
    pub condition: Condition,
}

/// What a request does where its condition holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Store the item in this version, with the write id if there is one.
    Put { version: Version, write_id: Option<String> },
    /// Store a tombstone in this version, with the write id of what it hides.
    Bury { version: Version, write_id: Option<String> },
    /// Remove what stands.
    Remove,
    /// Add to what stands: its version rises by [`Version::STEP`], and it notes the id if there is one.
    Add { once: Option<Once> },
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It was applied.
    Applied,
    /// The condition did not hold: this stands.
    Refused(Option<Copy>),
    /// It was certainly not applied: throttled, or never sent.
    Rejected,
    /// No answer: it may have been applied, or be applied later.
    Unanswered,
}
