//! Copies of an item, and the conditions under which a copy may be written or removed.

use crate::protocol::applied::{Applied, Once};
use crate::protocol::version::Version;

/// The stored copy of an item at one place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Copy {
    pub version: Version,
    /// A deleted item. It hides older copies at other places.
    pub is_tombstone: bool,
    /// The create-only write that stored the item.
    pub write_id: Option<String>,
    pub applied: Option<Box<Applied>>,
    /// Until this epoch second, a duplicate of a put of the item may arrive: a repetition stored
    /// it, and an earlier attempt got no response.
    pub late_until: Option<u64>,
}

impl Copy {
    pub fn has_applied(&self, once: Option<Once>) -> bool {
        let applied = self.applied.as_ref().zip(once);
        applied.is_some_and(|(applied, once)| applied.contains(once.id))
    }
}

/// `table` sends it as an expression.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// No copy, or a lower version.
    AbsentOrBelow(Version),
    /// No copy, or a copy of a lower version that has this write id. The tombstone keeps the write
    /// id.
    Buries { version: Version, write_id: Option<String> },
    /// Exactly this version; `None` for no copy.
    Unchanged(Option<Version>),
    /// An item of this version or a higher one. If the update must be applied once, it must also
    /// accept its id.
    AtLeast { from: Version, once: Option<Once> },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    pub effect: Effect,
    pub condition: Condition,
    pub marks: Marks,
}

impl Request {
    pub const fn unmarked(effect: Effect, condition: Condition) -> Self {
        Self { effect, condition, marks: Marks::NONE }
    }
}

/// What a request does with [`Copy::late_until`]. A mark must not be lost while a duplicate may
/// arrive, because a deletion without a tombstone would let it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Marks {
    pub late_until: Option<u64>,
    /// A stored mark up to this epoch second may be replaced.
    pub lost_until: u64,
}

impl Marks {
    pub const NONE: Self = Self { late_until: None, lost_until: u64::MAX };

    pub fn allow(&self, stored: Option<&Copy>) -> bool {
        let mark = stored.and_then(|copy| copy.late_until);
        mark.is_none_or(|until| until <= self.lost_until)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Store the item, with the write id if there is one.
    Put { version: Version, write_id: Option<String> },
    /// Store a tombstone with the write id of the item that it hides. If it has no older copies to
    /// hide, it may expire with its mark.
    Bury { version: Version, write_id: Option<String>, may_expire: bool },
    /// Remove the copy.
    Remove,
    /// Add to the stored attributes. The version rises by [`Version::STEP`].
    Add { once: Option<Once> },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    Applied,
    /// The condition did not hold. This copy is stored.
    Refused(Option<Copy>),
    /// It was certainly not applied: throttled, or never sent.
    Rejected,
    /// No response: it may have been applied, or may be applied later.
    Unanswered,
}
