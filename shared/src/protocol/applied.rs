//! The ids of the updates that were applied to an item: two generations, docs/protocol.md,
//! "Writing".

use std::collections::BTreeSet;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::values::content;
use crate::values::idempotency::IdempotencyKey;
use crate::values::value::Attributes;

/// Clocks of writers differ by less than this. An update may have been made, and its id discarded,
/// although it was sent later by the clock of its writer.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

/// How long a generation takes ids. An item remembers an update for at least a minute less than
/// this, and at most twice this time.
pub const GENERATION_PERIOD: Duration = Duration::from_secs(120);

/// The same in all attempts and repetitions of one update of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpdateId(pub [u8; 8]);

impl UpdateId {
    /// The id of an update under its client's key. The same key with another content is another
    /// update.
    pub fn of(key: &IdempotencyKey, content: &Attributes) -> Self {
        let mut digest = Sha256::new();
        for part in [b"update".as_slice(), key.as_str().as_bytes(), &content::digest(content)] {
            content::add(&mut digest, b'u', part);
        }
        Self(content::first(&digest.finalize()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Once {
    pub id: UpdateId,
    /// When the update's request began, in epoch milliseconds.
    pub sent_at: u64,
}

/// The updates that an item remembers. Times are epoch milliseconds, by the clock of the actor that
/// began a generation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Applied {
    /// When the younger generation began.
    pub began: u64,
    /// Every update that was sent since this time, by any writer's clock, is remembered.
    pub known_since: u64,
    pub young: BTreeSet<UpdateId>,
    pub old: BTreeSet<UpdateId>,
}

impl Applied {
    pub fn contains(&self, id: UpdateId) -> bool {
        self.young.contains(&id) || self.old.contains(&id)
    }

    /// Whether an update that the item does not remember has certainly not been applied.
    pub const fn knows_of(&self, once: Once) -> bool {
        self.known_since <= once.sent_at
    }

    /// Whether an update may be applied in place: it is not remembered, would be, and the younger
    /// generation still accepts ids.
    pub fn takes(&self, once: Once) -> bool {
        !self.contains(once.id) && self.knows_of(once) && self.began > youngest_too_old(once)
    }

    pub fn with(before: Option<&Self>, once: Once, now: u64) -> Self {
        if let Some(before) = before.filter(|before| before.began > youngest_too_old(once)) {
            let mut after = before.clone();
            after.young.insert(once.id);
            return after;
        }
        Self {
            began: now,
            known_since: surely_after(before.map_or(now, |before| before.began)),
            young: BTreeSet::from([once.id]),
            old: before.map(|before| before.young.clone()).unwrap_or_default(),
        }
    }
}

/// The earliest time of a request that was certainly sent after this instant.
const fn surely_after(instant: u64) -> u64 {
    instant.saturating_add(MAX_CLOCK_SKEW.as_millis() as u64)
}

/// A generation that began then accepts no more ids.
pub(crate) const fn youngest_too_old(once: Once) -> u64 {
    once.sent_at.saturating_sub(GENERATION_PERIOD.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(id: u8, sent_at: u64) -> Once {
        Once { id: UpdateId([id; 8]), sent_at }
    }

    #[test]
    fn an_update_is_known_for_at_least_a_minute() {
        let first = Applied::with(None, once(1, 1_000), 1_000);
        assert!(first.contains(once(1, 0).id) && !first.takes(once(1, 61_000)));
        // By another clock, it may be from before.
        assert!(first.takes(once(2, 61_000)) && !first.takes(once(2, 60_999)));
        let second = Applied::with(Some(&first), once(2, 120_999), 120_999);
        assert!(second.contains(once(1, 0).id) && second.contains(once(2, 0).id));
        // The generation has ended.
        assert!(second.takes(once(3, 120_999)) && !second.takes(once(3, 121_000)));
        let third = Applied::with(Some(&second), once(3, 121_000), 121_000);
        assert!(third.contains(once(1, 0).id) && third.takes(once(4, 61_000)));
        let fourth = Applied::with(Some(&third), once(4, 241_000), 241_000);
        assert!(!fourth.contains(once(1, 0).id) && fourth.contains(once(3, 0).id));
        // An attempt from then may have been applied and forgotten.
        assert!(!fourth.takes(once(5, 180_999)));
    }

    #[test]
    fn an_update_by_a_clock_that_is_ahead_is_not_made_again() {
        // It was made at 1,000. A put removed its id, and another update began a new record.
        for ahead in [0, 5_000, 59_000] {
            let sent = once(1, 1_000 + ahead);
            let after_a_put = Applied::with(None, once(2, 2_000), 2_000);
            assert!(!after_a_put.takes(sent) && !after_a_put.knows_of(sent), "{ahead}");
            // Or it was discarded with its generation.
            let first = Applied::with(None, sent, 1_000);
            let second = Applied::with(Some(&first), once(2, 121_000), 121_000);
            let third = Applied::with(Some(&second), once(3, 241_000), 241_000);
            assert!(!third.contains(sent.id) && !third.takes(sent), "{ahead}");
            assert!(!third.knows_of(sent), "{ahead}");
        }
    }

    #[test]
    fn a_clock_that_is_ahead_discards_no_young_update() {
        // One writer's clock is 59 seconds ahead, and begins a generation as early as it can.
        let first = Applied::with(None, once(1, 0), 0);
        let known = Applied::with(Some(&first), once(2, 119_999), 119_999);
        let second = Applied::with(Some(&known), once(3, 120_000), 120_000);
        let (mut now, ahead) = (121_000, 59_000);
        while second.began > youngest_too_old(once(4, now + ahead)) {
            now += 1;
        }
        assert!(now >= 119_999 + 60_000, "update 2 is remembered for a minute: until {now}");
    }
}
