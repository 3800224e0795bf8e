//! Condition expressions: what may stand at a place for a write to be applied there.
//!
//! Where a table is adopted with bare keys, a bare key can look like a shard key: the items of the bare key `orders.1` stand where those of the
//! first shard of `orders` do. Whose an item is, its stored logical key says, and an item without one is the bare key's. Every condition
//! then also asks whose the item is that stands.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::Tables;
use super::attributes::{LOGICAL_KEY, SdkItem, VERSION};
use crate::core::key::{PartitionKey, ShardNumber};
use crate::core::version::Version;

/// The most attributes that are compared, of DynamoDB's 300 operators in an expression.
const COMPARED_ATTRIBUTES: usize = 100;

/// Whose item must stand at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// One of the key.
    Ours,
    /// One of the key, or none.
    OursOrNone,
    /// None, or one of another key.
    NotOurs,
}

/// An expression with the names and values in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Condition {
    expression: String,
    names: HashMap<String, String>,
    values: SdkItem,
}

impl Condition {
    fn of(expression: &str) -> Self {
        Self { expression: expression.to_owned(), ..Self::default() }
    }

    fn name(mut self, placeholder: &str, name: &str) -> Self {
        self.names.insert(placeholder.to_owned(), name.to_owned());
        self
    }

    fn version(self, version: Version) -> Self {
        let mut named = self.name("#v", VERSION);
        named.values.insert(":v".to_owned(), AttributeValue::N(version.to_string()));
        named
    }

    fn joined(mut self, operator: &str, other: Self) -> Self {
        self.expression = if self.expression.is_empty() {
            other.expression
        } else if other.expression.is_empty() {
            self.expression
        } else {
            format!("({}) {operator} ({})", self.expression, other.expression)
        };
        self.names.extend(other.names);
        self.values.extend(other.values);
        self
    }

    fn and(self, other: Self) -> Self {
        self.joined("AND", other)
    }

    fn or(self, other: Self) -> Self {
        self.joined("OR", other)
    }

    /// Nothing stands.
    pub(super) fn absent(partition_key_name: &str) -> Self {
        Self::of("attribute_not_exists(#p)").name("#p", partition_key_name)
    }

    /// Nothing stands, or a lower version. An item that another program stored has no version, which is below all.
    pub(super) fn absent_or_lower(version: Version) -> Self {
        Self::of("attribute_not_exists(#v) OR #v < :v").version(version)
    }

    /// Something stands, in a lower version.
    pub(super) fn stands_lower(version: Version, partition_key_name: &str) -> Self {
        Self::of("attribute_exists(#p) AND (attribute_not_exists(#v) OR #v < :v)")
            .name("#p", partition_key_name)
            .version(version)
    }

    /// Nothing stands, or something that has no version either.
    pub(super) fn absent_or_unversioned() -> Self {
        Self::of("attribute_not_exists(#v)").name("#v", VERSION)
    }

    /// This version stands.
    pub(super) fn exactly(version: Version) -> Self {
        Self::of("#v = :v").version(version)
    }

    /// This version stands, or a higher one.
    pub(super) fn at_least(version: Version) -> Self {
        Self::of("#v >= :v").version(version)
    }

    /// Another program's item stands, with these attributes.
    pub(super) fn same_unversioned(stored: &SdkItem, except: &[&str]) -> Self {
        let mut condition = Self::of("attribute_not_exists(#v)").name("#v", VERSION);
        let compared = stored.iter().filter(|(name, _)| !except.contains(&name.as_str())).take(COMPARED_ATTRIBUTES);
        for (index, (name, value)) in compared.enumerate() {
            let (placeholder, named) = (format!("#a{index}"), format!(":a{index}"));
            condition.expression += &format!(" AND {placeholder} = {named}");
            condition.names.insert(placeholder, name.clone());
            condition.values.insert(named, value.clone());
        }
        condition
    }

    /// Another program's item stands with these attributes, or one with a version, which is later.
    pub(super) fn same_or_versioned(stored: &SdkItem, except: &[&str]) -> Self {
        let versioned = Self::of("attribute_exists(#v)").name("#v", VERSION);
        versioned.or(Self::same_unversioned(stored, except))
    }

    /// And this attribute has this value.
    pub(super) fn with(self, placeholder: &str, name: &str, value: AttributeValue) -> Self {
        let named = placeholder.replace('#', ":");
        let mut equal = Self::of(&format!("{placeholder} = {named}")).name(placeholder, name);
        equal.values.insert(named, value);
        self.and(equal)
    }

    /// Something stands.
    pub(super) fn present(self, partition_key_name: &str) -> Self {
        self.and(Self::of("attribute_exists(#p)").name("#p", partition_key_name))
    }

    /// For a request builder: the expression, the names and the values. `None` three times where there is no condition.
    pub(super) fn into_parts(self) -> (Option<String>, Option<HashMap<String, String>>, Option<SdkItem>) {
        if self.expression.is_empty() {
            return (None, None, None);
        }
        let values = (!self.values.is_empty()).then_some(self.values);
        (Some(self.expression), Some(self.names), values)
    }
}

impl Tables {
    /// The condition, and whose the item must be, where that is a question.
    pub(super) fn claimed(
        &self,
        condition: Condition,
        claim: Claim,
        (key, shard): (&PartitionKey, ShardNumber),
    ) -> Condition {
        let bare = shard == ShardNumber::UNSHARDED;
        if !self.config.adopt_unsharded && !bare {
            return condition;
        }
        let expression = match (claim, bare) {
            (Claim::Ours, false) => "#k = :k",
            (Claim::Ours, true) => "attribute_exists(#p) AND (attribute_not_exists(#k) OR #k = :k)",
            (Claim::OursOrNone, false) => "attribute_not_exists(#p) OR #k = :k",
            (Claim::OursOrNone, true) => "attribute_not_exists(#k) OR #k = :k",
            (Claim::NotOurs, false) => "attribute_not_exists(#k) OR #k <> :k",
            (Claim::NotOurs, true) => "attribute_not_exists(#p) OR (attribute_exists(#k) AND #k <> :k)",
        };
        let mut whose = Condition::of(expression).name("#k", LOGICAL_KEY);
        if expression.contains("#p") {
            whose = whose.name("#p", &self.config.partition_key_name);
        }
        whose.values.insert(":k".to_owned(), AttributeValue::S(key.as_str().to_owned()));
        condition.and(whose)
    }

    /// That none of the key's items stands here.
    pub(super) fn none_stands(&self, key: &PartitionKey, shard: ShardNumber) -> Condition {
        if self.config.adopt_unsharded || shard == ShardNumber::UNSHARDED {
            self.claimed(Condition::default(), Claim::NotOurs, (key, shard))
        } else {
            Condition::absent(&self.config.partition_key_name)
        }
    }

    /// Whether an item that was found on a shard of a key is the key's.
    pub(super) fn is_ours(&self, stored: &SdkItem, key: &PartitionKey, shard: ShardNumber) -> bool {
        if !self.config.adopt_unsharded && shard != ShardNumber::UNSHARDED {
            return true;
        }
        match stored.get(LOGICAL_KEY).and_then(|value| value.as_s().ok()) {
            Some(logical) => logical == key.as_str(),
            None => shard == ShardNumber::UNSHARDED,
        }
    }
}
