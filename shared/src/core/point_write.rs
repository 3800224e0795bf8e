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
pub(crate) enum Demand {
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
    pub(crate) demand: Demand,
}

/// A copy that a refusal has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) version: Version,
    pub(crate) write_id: Option<String>,
    /// Whether it is an item of the key; in a table that is adopted, another key's may stand there.
    pub(crate) is_ours: bool,
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
    pub(crate) fn correct(&self, standing: &mut Standing) {
        for (shard, copy) in &self.0 {
            standing.ours.remove(shard);
            standing.others.remove(shard);
            match copy {
                Some(copy) if copy.is_ours => standing.ours.insert(*shard),
                Some(_) => standing.others.insert(*shard),
                None => false,
            };
        }
    }
}

/// The shards on which refusals have shown something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// A copy of the item.
    pub(crate) ours: BTreeSet<ShardNumber>,
    /// An item of another key, in a table that is adopted.
    pub(crate) others: BTreeSet<ShardNumber>,
}

/// The parts of a point write: one for each candidate.
pub(crate) fn plan(
    kind: PointKind,
    candidates: &BTreeSet<ShardNumber>,
    home: ShardNumber,
    standing: &Standing,
) -> Vec<Part> {
    let nothing_stands = standing.ours.is_disjoint(candidates);
    let part = |shard: ShardNumber| {
        let (effect, demand) = match kind {
            // What is another key's stays; none of this one's may come to stand there.
            PointKind::Delete if standing.others.contains(&shard) => (Effect::Check, Demand::Absent),
            PointKind::Delete => (Effect::Delete, Demand::Nothing),
            PointKind::CreateOnly if shard == home => (Effect::Put, Demand::Absent),
            PointKind::Put if standing.ours.contains(&shard) => (Effect::Put, Demand::StandsLower),
            PointKind::Put if nothing_stands && shard == home => (Effect::Put, Demand::AbsentOrLower),
            PointKind::CreateOnly | PointKind::Put => (Effect::Check, Demand::Absent),
        };
        Part { shard, effect, demand }
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

    fn standing(ours: &[u32], others: &[u32]) -> Standing {
        Standing { ours: shards(ours), others: shards(others) }
    }

    fn planned(kind: PointKind, ours: &[u32]) -> Vec<(u32, Effect, Demand)> {
        planned_beside(kind, &standing(ours, &[]))
    }

    fn planned_beside(kind: PointKind, standing: &Standing) -> Vec<(u32, Effect, Demand)> {
        let home = ShardCount::new(5).unwrap().shards().last().unwrap();
        let parts = plan(kind, &shards(&[1, 3, 5]), home, standing);
        parts.into_iter().map(|part| (part.shard.get(), part.effect, part.demand)).collect()
    }

    #[test]
    fn a_put_goes_home_where_nothing_stands_and_else_overwrites_in_place() {
        use Demand::*;
        use Effect::*;
        let fresh = [(1, Check, Absent), (3, Check, Absent), (5, Put, AbsentOrLower)];
        assert_eq!(planned(PointKind::Put, &[]), fresh);
        assert_eq!(planned(PointKind::Put, &[2]), fresh, "what is no candidate any more is none");
        let two = [(1, Put, StandsLower), (3, Put, StandsLower), (5, Check, Absent)];
        assert_eq!(planned(PointKind::Put, &[1, 3]), two);
    }

    #[test]
    fn create_only_wants_every_candidate_empty_and_delete_takes_all() {
        use Demand::*;
        use Effect::*;
        let create = [(1, Check, Absent), (3, Check, Absent), (5, Put, Absent)];
        assert_eq!(planned(PointKind::CreateOnly, &[]), create);
        assert_eq!(planned(PointKind::Delete, &[3]), [1, 3, 5].map(|n| (n, Delete, Nothing)));
        let beside = [(1, Delete, Nothing), (3, Check, Absent), (5, Delete, Nothing)];
        assert_eq!(planned_beside(PointKind::Delete, &standing(&[1], &[3])), beside, "another key's item stays");
    }

    #[test]
    fn a_refusal_corrects_what_is_known() {
        let copy = |is_ours| Some(Copy { version: Version::NONE, write_id: None, is_ours });
        let mut known = standing(&[1, 2], &[3]);
        let shard = ShardNumber::from_index;
        Refusal(vec![(shard(0), None), (shard(4), copy(true)), (shard(1), copy(false)), (shard(2), None)])
            .correct(&mut known);
        assert_eq!(known, standing(&[5], &[2]));
    }
}
