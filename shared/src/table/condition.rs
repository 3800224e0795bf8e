//! Condition expressions: the stored state that a request requires at its place.
//!
//! On a shard whose stored key is not the key itself, only items with a logical key count. So an
//! item that another program has stored there is as if there were none.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use crate::protocol::applied::{Once, youngest_too_old};
use crate::protocol::copies::{Condition, Marks, Request};
use crate::protocol::names::{
    APPLIED, APPLIED_BEFORE, BEGAN, DELETED, IDS, KNOWN_SINCE, LATE_UNTIL, LOGICAL_KEY, VERSION,
    WRITE_ID,
};
use crate::protocol::version::Version;
use crate::table::Tables;
use crate::table::attributes::{self, SdkItem, number};
use crate::values::key::{PartitionKey, ShardKeys, ShardNumber};
use crate::values::value::Attributes;

/// The largest number of attributes to compare. DynamoDB allows 300 operators in an expression.
const MAX_COMPARED_ATTRIBUTES: usize = 100;

/// A condition expression with its names and values.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    text: String,
    names: HashMap<String, String>,
    values: SdkItem,
}

impl Expression {
    pub(super) fn of(text: &str) -> Self {
        Self { text: text.to_owned(), names: HashMap::new(), values: SdkItem::new() }
    }

    pub(super) fn name(mut self, placeholder: &str, name: &str) -> Self {
        self.names.insert(placeholder.to_owned(), name.to_owned());
        self
    }

    pub(super) fn value(mut self, placeholder: &str, value: AttributeValue) -> Self {
        self.values.insert(placeholder.to_owned(), value);
        self
    }

    fn version(self, version: Version) -> Self {
        self.name("#v", VERSION).value(":v", number(version))
    }

    fn and(mut self, other: Self) -> Self {
        self.text = format!("({}) AND ({})", self.text, other.text);
        self.names.extend(other.names);
        self.values.extend(other.values);
        self
    }

    /// The protocol's condition. An item that another program stored has no version, which is below
    /// all versions. Every item that counts has the attribute `proof`.
    fn demanded(condition: &Condition, proof: &str) -> Self {
        match condition {
            Condition::AbsentOrBelow(version) => {
                Self::of("attribute_not_exists(#v) OR #v < :v").version(*version)
            }
            Condition::Buries { version, write_id: None } => {
                let text = "(attribute_not_exists(#v) OR #v < :v) AND attribute_not_exists(#w)";
                Self::of(text).version(*version).name("#w", WRITE_ID)
            }
            Condition::Buries { version, write_id: Some(write_id) } => {
                let text = "attribute_not_exists(#p) OR ((attribute_not_exists(#v) OR #v < :v) AND #w = :w)";
                let buries = Self::of(text).name("#p", proof).version(*version);
                buries.name("#w", WRITE_ID).value(":w", AttributeValue::S(write_id.clone()))
            }
            Condition::Unchanged(None) => Self::absent(proof),
            Condition::Unchanged(Some(Version::NONE)) => Self::unversioned(proof),
            Condition::Unchanged(Some(version)) => Self::exactly(*version),
            Condition::AtLeast { from, once } => Self::at_least(*from, *once),
        }
    }

    /// No mark that must stay.
    fn allowing(marks: Marks) -> Option<Self> {
        let allowing = Self::of("attribute_not_exists(#m) OR #m <= :m")
            .name("#m", LATE_UNTIL)
            .value(":m", number(marks.lost_until));
        (marks.lost_until < u64::MAX).then_some(allowing)
    }

    /// An item of at least this version that accepts the update's id.
    fn at_least(from: Version, once: Option<Once>) -> Self {
        let is_stored =
            Self::of("#v >= :v AND attribute_not_exists(#d)").version(from).name("#d", DELETED);
        let Some(once) = once else { return is_stored };
        let taken =
            "#o.#b > :b AND #o.#s <= :s AND NOT contains(#y, :id) AND NOT contains(#o.#i, :id)";
        let taken = Self::of(taken)
            .name("#y", APPLIED)
            .name("#o", APPLIED_BEFORE)
            .name("#b", BEGAN)
            .value(":b", number(youngest_too_old(once)))
            .name("#s", KNOWN_SINCE)
            .value(":s", number(once.sent_at))
            .name("#i", IDS)
            .value(":id", AttributeValue::B(Blob::new(once.id.0)));
        is_stored.and(taken)
    }

    pub(super) fn absent(partition_key_name: &str) -> Self {
        Self::of("attribute_not_exists(#p)").name("#p", partition_key_name)
    }

    pub(super) fn unversioned(partition_key_name: &str) -> Self {
        Self::of("attribute_exists(#p) AND attribute_not_exists(#v)")
            .name("#p", partition_key_name)
            .name("#v", VERSION)
    }

    pub(super) fn exactly(version: Version) -> Self {
        Self::of("#v = :v").version(version)
    }

    /// Also requires these attributes to have these values, or to be absent. Call it once, on a
    /// condition without an outer `OR`.
    pub(super) fn and_same<'a, 'b>(
        mut self,
        attributes: impl IntoIterator<Item = (&'a str, Option<&'b AttributeValue>)>,
    ) -> Self {
        for (index, (name, value)) in
            attributes.into_iter().take(MAX_COMPARED_ATTRIBUTES).enumerate()
        {
            let (placeholder, named) = (format!("#a{index}"), format!(":a{index}"));
            self.text += &match value {
                Some(_) => format!(" AND {placeholder} = {named}"),
                None => format!(" AND attribute_not_exists({placeholder})"),
            };
            self.names.insert(placeholder, name.to_owned());
            self.values.extend(value.map(|value| (named, value.clone())));
        }
        self
    }

    /// An update that sets each attribute that has a value and removes the others, and the
    /// condition with the names and values of both.
    pub(super) fn update<'a>(
        mut self,
        attributes: impl IntoIterator<Item = (&'a str, Option<AttributeValue>)>,
    ) -> (String, Self) {
        let (mut sets, mut removes) = (Vec::new(), Vec::new());
        for (index, (name, value)) in attributes.into_iter().enumerate() {
            let (placeholder, named) = (format!("#u{index}"), format!(":u{index}"));
            match &value {
                Some(_) => sets.push(format!("{placeholder} = {named}")),
                None => removes.push(placeholder.clone()),
            }
            self.names.insert(placeholder, name.to_owned());
            self.values.extend(value.map(|value| (named, value)));
        }
        let clauses =
            [("SET", sets), ("REMOVE", removes)].into_iter().filter(|(_, terms)| !terms.is_empty());
        let clauses: Vec<String> =
            clauses.map(|(verb, terms)| format!("{verb} {}", terms.join(", "))).collect();
        (clauses.join(" "), self)
    }

    /// An update that adds to attributes in place, and the condition with the names and values of
    /// both.
    pub(super) fn adding<'a>(
        mut self,
        additions: impl IntoIterator<Item = (&'a str, AttributeValue)>,
    ) -> (String, Self) {
        let mut terms = Vec::new();
        for (index, (name, value)) in additions.into_iter().enumerate() {
            let (placeholder, named) = (format!("#n{index}"), format!(":n{index}"));
            terms.push(format!("{placeholder} {named}"));
            self.names.insert(placeholder, name.to_owned());
            self.values.insert(named, value);
        }
        (format!("ADD {}", terms.join(", ")), self)
    }

    /// As [`adding`](Self::adding), for an item, whose version it raises. Call it on a condition on
    /// the version.
    pub(super) fn addition(self, once: Option<Once>, additions: &Attributes) -> (String, Self) {
        let added = additions.iter();
        let added = added.map(|(name, value)| (name.as_str(), attributes::to_sdk(value.clone())));
        let (mut add, mut condition) = self.adding(added);
        condition.values.insert(":step".to_owned(), number(Version::STEP));
        if let Some(once) = once {
            let ids = AttributeValue::Bs(vec![Blob::new(once.id.0)]);
            condition.values.insert(":ids".to_owned(), ids);
            add += ", #y :ids";
        }
        (format!("SET #v = #v + :step {add}"), condition)
    }

    /// The parts for a request builder: the expression, the names, and the values if there are any.
    pub(super) fn into_parts(self) -> (String, HashMap<String, String>, Option<SdkItem>) {
        let values = (!self.values.is_empty()).then_some(self.values);
        (self.text, self.names, values)
    }
}

impl Tables {
    pub(super) fn expression_of(&self, request: &Request, shard: ShardNumber) -> Expression {
        let condition = self.expression(&request.condition, shard);
        match (Expression::allowing(request.marks), &request.condition) {
            // Where nothing is stored, there is no mark.
            (None, _) | (Some(_), Condition::Unchanged(None)) => condition,
            (Some(allowing), _) => condition.and(allowing),
        }
    }

    pub(super) fn expression(&self, condition: &Condition, shard: ShardNumber) -> Expression {
        Expression::demanded(condition, self.proof(shard))
    }

    /// An attribute that every item on a shard has, if it counts.
    pub(super) fn proof(&self, shard: ShardNumber) -> &str {
        let has_logical_key =
            self.config.shard_keys == ShardKeys::KeyFirst && shard != ShardNumber::FIRST;
        if has_logical_key { LOGICAL_KEY } else { &self.config.partition_key_name }
    }

    /// Whether an item on a shard counts as one of the key.
    pub(super) fn counts(&self, stored: &SdkItem, key: &PartitionKey, shard: ShardNumber) -> bool {
        let is_ours = self.proof(shard) != LOGICAL_KEY
            || stored.get(LOGICAL_KEY).and_then(|value| value.as_s().ok()).map(String::as_str)
                == Some(key.as_str());
        if !is_ours {
            metrics::counter!("ShardingForeignItems").increment(1);
        }
        is_ours
    }
}
