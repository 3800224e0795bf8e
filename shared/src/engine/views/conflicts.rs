//! The back-off of actors that complete the work of another one: they take its closing over, or
//! publish what it has changed. It may have stopped, or its page may answer late. So the pause
//! doubles with each conflict that an instance sees. Otherwise, actors would reject each other's
//! opens, and write the same entry again and again.

use std::sync::Mutex;
use std::time::Duration;

use crate::engine::locked;
use crate::protocol::view::OBSERVER_PAUSE;

const MAX_DOUBLINGS: u32 = 3;

/// The conflicts that an instance has seen in one change of a key.
#[derive(Debug, Default)]
pub(crate) struct Conflicts(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    era: u64,
    generation: u64,
    count: u32,
}

impl Conflicts {
    /// Observes a closing, and returns the pause before its takeover, which is also the longest
    /// random pause on top. A later generation of an era is a conflict: the closing was taken over.
    pub(crate) fn observe(&self, era: u64, generation: u64) -> Duration {
        let mut seen = locked(&self.0);
        if seen.era != era {
            *seen = Seen { era, generation, count: 0 };
        } else if seen.generation < generation {
            seen.generation = generation;
            seen.count += 1;
        }
        pause(seen.count)
    }

    /// Notes that a page is behind an item, which another actor may be publishing. Returns the
    /// longest random pause before this one publishes it, too.
    pub(crate) fn note_behind(&self) -> Duration {
        let mut seen = locked(&self.0);
        seen.count += 1;
        pause(seen.count)
    }
}

fn pause(conflicts: u32) -> Duration {
    OBSERVER_PAUSE * (1 << conflicts.min(MAX_DOUBLINGS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takeovers_and_repairs_of_a_change_share_one_pause() {
        let conflicts = Conflicts::default();
        let rows = [
            (Some((1, 2)), 500),
            (Some((1, 2)), 500),
            (Some((1, 3)), 1_000),
            (None, 2_000),
            (Some((1, 3)), 2_000),
            (Some((1, 4)), 4_000),
            (None, 4_000),
            (Some((2, 5)), 500),
            (None, 1_000),
        ];
        for (row, (observed, millis)) in rows.into_iter().enumerate() {
            let pause = match observed {
                Some((era, generation)) => conflicts.observe(era, generation),
                None => conflicts.note_behind(),
            };
            assert_eq!(pause, Duration::from_millis(millis), "row {row}");
        }
    }
}
