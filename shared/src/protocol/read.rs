//! The end of a read: whether its result is correct.

use crate::protocol::view::{Moment, View};
use std::time::Duration;

/// The next step of a read after its last response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadEnd {
    /// The result is correct.
    Correct,
    /// The view has expired. Request a new one now, and check again.
    Look,
    /// A width has changed meanwhile. Read again under the newer view.
    Again,
    /// The read took longer than a drain waits for reads. It fails.
    TooLong,
}

/// Whether a copy of this era can exist under this view: the view's own era, or the next one if the
/// key was closing. Any other era means that the view is older than its lease allows: its page is
/// behind the key's item, or the metadata was lost.
pub fn knows_era(view: &View, era: u64) -> bool {
    era <= view.layout.era + u64::from(view.layout.closing.is_some())
}

/// Whether a read that began at `began` under `view` is correct now. `newer` is a view that was
/// requested after the read's last response.
pub fn read_end(
    (began, longest): (Moment, Duration),
    (view, lease): (&View, Duration),
    newer: Option<&View>,
    now: Moment,
) -> ReadEnd {
    // The read may have been suspended. Then it may have read a home before an item was copied
    // there, and the old place after the item was deleted.
    if now.since(began).is_none_or(|took| took > longest) {
        return ReadEnd::TooLong;
    }
    match newer {
        _ if view.is_valid(now, lease) => ReadEnd::Correct,
        None => ReadEnd::Look,
        Some(newer) if view.still_holds(newer) => ReadEnd::Correct,
        Some(_) => ReadEnd::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::layout::Layout;
    use crate::protocol::view::tests::at;
    use crate::values::key::ShardCount;

    #[test]
    fn a_view_knows_its_own_era_and_the_one_that_is_about_to_begin() {
        let view = |closing| View {
            layout: Layout { era: 4, closing, ..Layout::unlisted(ShardCount::ONE) },
            asked_at: at(0),
        };
        let (open, closing) = (view(None), view(Some(ShardCount::ONE)));
        for (era, by_open, by_closing) in
            [(0, true, true), (4, true, true), (5, false, true), (6, false, false)]
        {
            let known = (knows_era(&open, era), knows_era(&closing, era));
            assert_eq!(known, (by_open, by_closing), "era {era}");
        }
    }
}
