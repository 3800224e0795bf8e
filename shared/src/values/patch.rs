//! The effect of an update on an item's attributes.

use std::collections::BTreeMap;

use crate::values::number::{Number, NumberError};
use crate::values::value::{Attributes, Value};

/// A change of some attributes of an item: first the merge, then the additions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    /// Sets, merges and removes attributes, as a JSON merge patch does (RFC 7396).
    pub merge: BTreeMap<String, Merge>,
    /// Adds to numbers, and members to sets. An absent attribute counts as 0, or as an empty set.
    pub add: Attributes,
}

/// The change of one attribute, or of one member of a map.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Merge {
    /// Removes it.
    Remove,
    /// Replaces it by this value.
    Set(Value),
    /// Changes these members of it. An attribute that is not a map becomes one.
    Into(BTreeMap<String, Merge>),
}

/// Why a change does not fit the item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The stored attribute has another type than the added value.
    #[error("it is {stored}, to which {added} cannot be added")]
    WrongType {
        /// The attribute.
        attribute: String,
        /// Its type.
        stored: &'static str,
        /// The type of the added value.
        added: &'static str,
    },
    /// The sum is not a number that DynamoDB can store.
    #[error("the sum cannot be stored")]
    Sum {
        /// The attribute.
        attribute: String,
        /// The reason.
        #[source]
        cause: NumberError,
    },
    /// The item would be larger than DynamoDB allows.
    #[error("the item would have {bytes} bytes")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
}

impl Patch {
    /// Fails if the added values do not fit the stored ones.
    pub(crate) fn apply(&self, mut attributes: Attributes) -> Result<Attributes, PatchError> {
        merge(&mut attributes, &self.merge);
        for (name, added) in &self.add {
            let sum = add(name, attributes.remove(name), added)?;
            attributes.insert(name.clone(), sum);
        }
        Ok(attributes)
    }

    /// Whether it only adds, which DynamoDB can do in place.
    pub(crate) fn only_adds(&self) -> bool {
        self.merge.is_empty() && !self.add.is_empty()
    }

    /// The whole patch as attributes, so that two patches can be compared.
    pub(crate) fn content(&self) -> Attributes {
        fn of(changes: &BTreeMap<String, Merge>) -> Attributes {
            let content = |change: &Merge| match change {
                Merge::Remove => Value::L(vec![]),
                Merge::Set(value) => Value::L(vec![value.clone()]),
                Merge::Into(changes) => Value::M(of(changes)),
            };
            changes.iter().map(|(name, change)| (name.clone(), content(change))).collect()
        }
        [("merge", Value::M(of(&self.merge))), ("add", Value::M(self.add.clone()))].into()
    }
}

fn merge(target: &mut Attributes, changes: &BTreeMap<String, Merge>) {
    for (name, change) in changes {
        match change {
            Merge::Remove => drop(target.remove(name)),
            Merge::Set(value) => drop(target.insert(name.clone(), value.clone())),
            Merge::Into(changes) => {
                let mut map = match target.remove(name) {
                    Some(Value::M(map)) => map,
                    Some(_) | None => Attributes::new(),
                };
                merge(&mut map, changes);
                target.insert(name.clone(), Value::M(map));
            }
        }
    }
}

fn add(attribute: &str, stored: Option<Value>, added: &Value) -> Result<Value, PatchError> {
    let Some(stored) = stored else { return Ok(added.clone()) };
    Ok(match (stored, added) {
        (Value::N(one), Value::N(other)) => {
            let sum = |one: &str, other: &str| one.parse::<Number>()?.plus(&other.parse()?);
            let no_sum = |cause| PatchError::Sum { attribute: attribute.to_owned(), cause };
            Value::N(sum(&one, other).map_err(no_sum)?.to_string())
        }
        (Value::Ss(set), Value::Ss(more)) => Value::Ss(union(set, more, |one, other| one == other)),
        (Value::Bs(set), Value::Bs(more)) => Value::Bs(union(set, more, |one, other| one == other)),
        (Value::Ns(set), Value::Ns(more)) => {
            let number = |text: &String| text.parse::<Number>().ok();
            Value::Ns(union(set, more, |one, other| number(one) == number(other)))
        }
        (stored, _) => {
            return Err(PatchError::WrongType {
                attribute: attribute.to_owned(),
                stored: stored.type_name(),
                added: added.type_name(),
            });
        }
    })
}

fn union<T: Clone>(mut set: Vec<T>, more: &[T], is_same: impl Fn(&T, &T) -> bool) -> Vec<T> {
    for member in more {
        if !set.iter().any(|known| is_same(known, member)) {
            set.push(member.clone());
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(text: &str) -> Value {
        Value::N(text.to_owned())
    }

    fn changes<const N: usize>(changes: [(&str, Merge); N]) -> BTreeMap<String, Merge> {
        changes.into_iter().map(|(name, change)| (name.to_owned(), change)).collect()
    }

    #[test]
    fn numbers_are_added_exactly_and_sets_are_united() {
        let owned = |members: &[&str]| members.iter().map(|member| (*member).to_owned()).collect();
        let ss = |members: &[&str]| Value::Ss(owned(members));
        let ns = |members: &[&str]| Value::Ns(owned(members));
        let rows = [
            (Some(n("0.1")), n("0.2"), Ok(n("0.3"))),
            (
                Some(n("99999999999999999999999999999999999999")),
                n("-1"),
                Ok(n("99999999999999999999999999999999999998")),
            ),
            (None, n("5"), Ok(n("5"))),
            (Some(ss(&["a"])), ss(&["b", "a"]), Ok(ss(&["a", "b"]))),
            (Some(ns(&["1"])), ns(&["1.0", "2"]), Ok(ns(&["1", "2"]))),
            (Some(n("1e38")), n("1"), Err(NumberError::Digits)),
        ];
        for (stored, added, expected) in rows {
            let expected =
                expected.map_err(|cause| PatchError::Sum { attribute: "a".into(), cause });
            assert_eq!(add("a", stored.clone(), &added), expected, "{stored:?} {added:?}");
        }
        let wrong = add("a", Some(Value::S("x".into())), &n("1")).unwrap_err();
        assert_eq!(wrong.to_string(), "it is a string, to which a number cannot be added");
    }

    #[test]
    fn an_addition_follows_the_merge_of_its_patch() {
        let patch = Patch {
            merge: changes([("state", Merge::Set(n("7"))), ("old", Merge::Remove)]),
            add: Attributes::from([("count", n("2"))]),
        };
        let stored = Attributes::from([("count", n("1")), ("old", n("0"))]);
        let changed = Attributes::from([("count", n("3")), ("state", n("7"))]);
        assert_eq!(patch.apply(stored), Ok(changed));
        let merged = Patch { add: Attributes::new(), ..patch.clone() };
        let added = Patch { merge: BTreeMap::new(), ..patch.clone() };
        assert_eq!([&patch, &merged, &added].map(Patch::only_adds), [false, false, true]);
        let contents = [patch, merged, added].map(|patch| patch.content());
        assert!(contents.iter().enumerate().all(|(at, one)| !contents[..at].contains(one)));
    }
}
