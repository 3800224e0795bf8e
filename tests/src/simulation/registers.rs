//! The reference for items that are put, created and deleted: each is a register, and a read may return what some write left there.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio::time::Instant;

/// One write of a register.
#[derive(Debug, Clone)]
struct Op {
    id: u64,
    /// `None` deletes.
    value: Option<u64>,
    create_only: bool,
    sent: Instant,
    acknowledged: Option<Instant>,
    /// An attempt of it had no answer and may be applied at any time, whatever was answered since.
    may_land_again: bool,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Acknowledged; whether an attempt before the answered one may still land.
    Done { may_land_again: bool },
    /// Certainly not applied.
    Refused,
    /// A create-only write was told that an item stands.
    Exists,
    /// Perhaps.
    Unknown,
}

/// All registers of one key, by sort key.
#[derive(Debug, Default)]
pub(super) struct Registers(BTreeMap<String, Vec<Op>>);

impl Registers {
    /// A write begins. Says whether it is the register's first.
    pub(super) fn sent(&mut self, sort_key: &str, id: u64, value: Option<u64>, create_only: bool) -> bool {
        let op = Op { id, value, create_only, sent: Instant::now(), acknowledged: None, may_land_again: false };
        match self.0.entry(sort_key.to_owned()) {
            Entry::Vacant(vacant) => {
                vacant.insert(vec![op]);
                true
            }
            Entry::Occupied(mut occupied) => {
                occupied.get_mut().push(op);
                false
            }
        }
    }

    pub(super) fn contains(&self, sort_key: &str) -> bool {
        self.0.contains_key(sort_key)
    }

    /// A write ends; checks what its answer claims.
    pub(super) fn ended(&mut self, sort_key: &str, id: u64, outcome: Outcome) -> Result<(), String> {
        let Some(ops) = self.0.get_mut(sort_key) else { return Ok(()) };
        let Some(at) = ops.iter().position(|op| op.id == id) else { return Ok(()) };
        let now = Instant::now();
        match outcome {
            Outcome::Unknown => Ok(()),
            Outcome::Refused => {
                ops.remove(at);
                Ok(())
            }
            Outcome::Exists => {
                let op = ops.remove(at);
                let stood = ops.iter().any(|other| other.value.is_some() && Self::possible(ops, other, op.sent, now));
                if stood { Ok(()) } else { Err(format!("I3: {sort_key} was told to exist, and nothing stood there")) }
            }
            Outcome::Done { may_land_again } => {
                let op = &mut ops[at];
                op.acknowledged = Some(now);
                op.may_land_again = may_land_again;
                let (create_only, sent) = (op.create_only, op.sent);
                let others: Vec<Op> = ops.iter().filter(|other| other.id != id).cloned().collect();
                if create_only && !Self::may_be_absent(&others, sent, now) {
                    return Err(format!("I3: {sort_key} was created where an item stood"));
                }
                Ok(())
            }
        }
    }

    /// Checks what a read from `began` to now returned for a sort key.
    pub(super) fn check(&self, sort_key: &str, seen: Option<u64>, began: Instant) -> Result<(), String> {
        let ops = self.0.get(sort_key).map_or(&[][..], Vec::as_slice);
        let now = Instant::now();
        let fine = match seen {
            None => Self::may_be_absent(ops, began, now),
            Some(_) => ops.iter().any(|op| op.value == seen && Self::possible(ops, op, began, now)),
        };
        if fine { Ok(()) } else { Err(format!("I1: {sort_key} reads {seen:?}, and nobody left it so: {ops:?}")) }
    }

    /// Checks a whole scan from `began` to now.
    pub(super) fn check_scan(&self, seen: &BTreeMap<String, u64>, began: Instant) -> Result<(), String> {
        self.0.keys().try_for_each(|sort_key| self.check(sort_key, seen.get(sort_key).copied(), began))
    }

    fn may_be_absent(ops: &[Op], began: Instant, ended: Instant) -> bool {
        let never_written = !ops.iter().any(|op| op.acknowledged.is_some_and(|at| at < began));
        never_written || ops.iter().any(|op| op.value.is_none() && Self::possible(ops, op, began, ended))
    }

    /// Whether a read between these instants may see what this write left: it was sent, and no later write replaced it before.
    fn possible(ops: &[Op], op: &Op, began: Instant, ended: Instant) -> bool {
        if op.sent > ended {
            return false;
        }
        // However late a create-only write lands, it does not replace what stands.
        let lands_where_it_likes = op.may_land_again || op.acknowledged.is_none();
        if lands_where_it_likes && !op.create_only {
            return true;
        }
        let created_by_another = ops
            .iter()
            .any(|other| other.create_only && other.id != op.id && other.acknowledged.is_some_and(|at| at < began));
        let deletions = ops.iter().any(|other| other.value.is_none());
        if lands_where_it_likes {
            // Without deletions, of several creations one stands for ever.
            return deletions || !created_by_another;
        }
        let after = op.acknowledged;
        !ops.iter().any(|other| {
            other.id != op.id && Some(other.sent) > after && other.acknowledged.is_some_and(|at| at < began)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::advance;

    async fn later() {
        advance(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_after_two_puts_sees_the_second() {
        let mut registers = Registers::default();
        let done = Outcome::Done { may_land_again: false };
        for id in [1, 2] {
            registers.sent("a", id, Some(id), false);
            later().await;
            registers.ended("a", id, done).expect("right");
            later().await;
        }
        let began = Instant::now();
        assert!(registers.check("a", Some(2), began).is_ok());
        assert!(registers.check("a", Some(1), began).is_err());
        assert!(registers.check("a", None, began).is_err());
        registers.sent("a", 3, None, false);
        assert!(registers.check("a", None, began).is_ok(), "a deletion under way may have happened");
        assert!(registers.ended("a", 4, Outcome::Exists).is_ok(), "unknown ids are ignored");
    }

    #[tokio::test(start_paused = true)]
    async fn two_creations_are_one_too_many() {
        let mut registers = Registers::default();
        let done = Outcome::Done { may_land_again: false };
        registers.sent("a", 1, Some(1), true);
        later().await;
        registers.ended("a", 1, done).expect("right");
        later().await;
        registers.sent("a", 2, Some(2), true);
        later().await;
        assert!(registers.ended("a", 2, done).is_err());
        registers.sent("b", 3, Some(3), true);
        assert!(registers.ended("b", 3, Outcome::Exists).is_err(), "nothing stood");
    }
}
