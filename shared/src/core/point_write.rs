//! Point writes: put, create-only and delete, over every shard that the item may be on.
//!
//! An item may stand on any of its candidates, and on several of them where appends repeated its sort key under different widths. A
//! point write therefore names all of them: in one plain operation where there is one candidate, else in one transaction. A put
//! overwrites the copies that stand, where they stand. What stands is not known beforehand: the first plan assumes that nothing
//! does, and a refusal says what does.

use std::collections::BTreeSet;

use super::key::ShardNumber;
use super::version::Version;

/// The kinds of point writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointKind {
    /// Replace, or store where nothing stands.
    Put,
    /// Store where nothing stands, else refuse.
    CreateOnly,
    /// Remove, wherever it stands.
    Delete,
}

/// What a part of a point write does on its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Put,
    Delete,
    Check,
}

/// What a part demands of its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Nothing,
    Absent,
    AbsentOrLower,
    StandsLower,
}

/// A point write's part on one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) shard: ShardNumber,
    pub(crate) effect: Effect,
    pub(crate) condition: Condition,
}

/// A copy that a refusal has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) version: Version,
    pub(crate) write_id: Option<String>,
}

/// The parts whose conditions did not hold, with what stands there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Vec<(ShardNumber, Option<Copy>)>);

impl Refusal {
    /// The copies that were shown.
    pub(crate) fn copies(&self) -> impl Iterator<Item = &Copy> {
        self.0.iter().filter_map(|(_, copy)| copy.as_ref())
    }

    /// Corrects what is known to stand.
    pub(crate) fn correct(&self, standing: &mut BTreeSet<ShardNumber>) {
        for (shard, copy) in &self.0 {
            match copy {
                Some(_) => standing.insert(*shard),
                None => standing.remove(shard),
            };
        }
    }
}

/// The parts of a point write: one for each candidate.
pub(crate) fn plan(
    kind: PointKind,
    candidates: &BTreeSet<ShardNumber>,
    home: ShardNumber,
    standing: &BTreeSet<ShardNumber>,
) -> Vec<Part> {
    let nothing_stands = standing.is_disjoint(candidates);
    let part = |shard: ShardNumber| {
        let (effect, condition) = match kind {
            PointKind::Delete => (Effect::Delete, Condition::Nothing),
            PointKind::CreateOnly if shard == home => (Effect::Put, Condition::Absent),
            PointKind::Put if standing.contains(&shard) => (Effect::Put, Condition::StandsLower),
            PointKind::Put if nothing_stands && shard == home => (Effect::Put, Condition::AbsentOrLower),
            PointKind::CreateOnly | PointKind::Put => (Effect::Check, Condition::Absent),
        };
        Part { shard, effect, condition }
    };
    candidates.iter().map(|shard| part(*shard)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::ShardCount;

    fn shards(numbers: &[u32]) -> BTreeSet<ShardNumber> {
        numbers.iter().map(|n| ShardNumber::from_index(n - 1)).collect()
    }

    fn planned(kind: PointKind, standing: &[u32]) -> Vec<(u32, Effect, Condition)> {
        let home = ShardCount::new(5).unwrap().shards().last().unwrap();
        let parts = plan(kind, &shards(&[1, 3, 5]), home, &shards(standing));
        parts.into_iter().map(|part| (part.shard.get(), part.effect, part.condition)).collect()
    }

    #[test]
    fn a_put_goes_home_where_nothing_stands_and_else_overwrites_in_place() {
        use Condition::*;
        use Effect::*;
        let fresh = [(1, Check, Absent), (3, Check, Absent), (5, Put, AbsentOrLower)];
        assert_eq!(planned(PointKind::Put, &[]), fresh);
        assert_eq!(planned(PointKind::Put, &[2]), fresh, "what is no candidate any more is none");
        let two = [(1, Put, StandsLower), (3, Put, StandsLower), (5, Check, Absent)];
        assert_eq!(planned(PointKind::Put, &[1, 3]), two);
    }

    #[test]
    fn create_only_wants_every_candidate_empty_and_delete_takes_all() {
        use Condition::*;
        use Effect::*;
        let create = [(1, Check, Absent), (3, Check, Absent), (5, Put, Absent)];
        assert_eq!(planned(PointKind::CreateOnly, &[]), create);
        assert_eq!(planned(PointKind::Delete, &[3]), [1, 3, 5].map(|n| (n, Delete, Nothing)));
    }

    #[test]
    fn a_refusal_corrects_what_is_known() {
        let copy = Copy { version: Version::NONE, write_id: None };
        let mut standing = shards(&[1, 2]);
        Refusal(vec![(ShardNumber::from_index(0), None), (ShardNumber::from_index(4), Some(copy))])
            .correct(&mut standing);
        assert_eq!(standing, shards(&[2, 5]));
    }
}
