//! The end of a read: whether what it has seen may be told.

use super::view::{Moment, View};
use std::time::Duration;

/// What becomes of a read whose last response is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadEnd {
    /// It stands.
    Stands,
    /// Its view has run out: get one that is requested from now on, and ask again.
    Look,
    /// A width has changed meanwhile: read again under the newer view.
    Again,
    /// It has taken longer than a drain waits for reads: it fails.
    TooLong,
}

/// Whether an era that was met in a copy can be under this view: its own, or the next one where the key was closing. Any other means that
/// the view is older than it may be: its page is behind the key's item, or the metadata is lost.
pub fn knows_era(view: &View, era: u64) -> bool {
    era <= view.layout.era + u64::from(view.layout.closing.is_some())
}

/// Whether a read that began at `began` and asked by `view` stands now; `newer` is a view that was requested after its last response.
pub fn read_end(
    (began, longest): (Moment, Duration),
    (view, lease): (&View, Duration),
    newer: Option<&View>,
    now: Moment,
) -> ReadEnd {
    // Frozen for a while perhaps, it may have looked at a home before an item was copied there, and at the old place after it was deleted.
    if now.since(began).is_none_or(|took| took > longest) {
        return ReadEnd::TooLong;
    }
    match newer {
        _ if view.is_valid(now, lease) => ReadEnd::Stands,
        None => ReadEnd::Look,
        Some(newer) if view.still_holds(newer) => ReadEnd::Stands,
        Some(_) => ReadEnd::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::*;
    use crate::core::key::ShardCount;

    #[test]
    fn a_view_knows_its_own_era_and_the_one_that_is_about_to_begin() {
        let asked_at = Moment { monotonic: Duration::ZERO, wall: Duration::ZERO };
        let open = View { layout: Layout { era: 4, ..Layout::unlisted(ShardCount::ONE) }, asked_at };
        let closing = Layout { closing: Some(ShardCount::ONE), ..open.layout.clone() };
        let closing = View { layout: closing, asked_at };
        for (era, by_open, by_closing) in [(0, true, true), (4, true, true), (5, false, true), (6, false, false)] {
            assert_eq!((knows_era(&open, era), knows_era(&closing, era)), (by_open, by_closing), "era {era}");
        }
    }
}
