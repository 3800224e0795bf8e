//! Items as DynamoDB's JSON has them: the product's attributes in them, and the typed form that the
//! crate stores. And the members of requests and answers.

use serde::Deserialize;
use serde_dynamo::AttributeValue;
use serde_json::{Value, json};
use sharding::internal::dynamo::from_dynamo;
use sharding::internal::protocol::copies::Copy;
use sharding::internal::protocol::names::{
    DELETED, LATE_UNTIL, RESERVED_PREFIX, VERSION, WRITE_ID,
};
use sharding::{SortKey, Version};

use crate::reply::{Failure, Members};

/// The members of requests about armed keys.
const MEMBERS: &str = "TableName IndexName Key Item ConditionExpression UpdateExpression \
    FilterExpression ProjectionExpression ExpressionAttributeNames ExpressionAttributeValues \
    ConsistentRead Limit ExclusiveStartKey Select Segment TotalSegments ReturnValues \
    ReturnValuesOnConditionCheckFailure ReturnConsumedCapacity ReturnItemCollectionMetrics";
/// Those that only a query may have: a scan has no other order.
const QUERY_MEMBERS: [&str; 2] = ["KeyConditionExpression", "ScanIndexForward"];

/// A value of DynamoDB's JSON with one member.
pub(crate) fn string(text: &str) -> Value {
    json!({ "S": text })
}

pub(crate) fn number(number: impl ToString) -> Value {
    json!({ "N": number.to_string() })
}

/// A member that is a text.
pub(crate) fn text<'a>(members: &'a Members, name: &str) -> Option<&'a str> {
    members.get(name)?.as_str()
}

/// A member that is an object; an empty one if there is none.
pub(crate) fn map(members: &Members, name: &str) -> Members {
    members.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// A member that is a list; an empty one if there is none.
pub(crate) fn list(members: &Members, name: &str) -> Vec<Value> {
    members.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
}

pub(crate) fn object(value: Value) -> Option<Members> {
    if let Value::Object(members) = value { Some(members) } else { None }
}

/// The members of a request that this release does not know. Of those that another operation has,
/// DynamoDB reads none.
pub(crate) fn unknown_members<'a>(
    operation: &'a str,
    body: &'a Members,
) -> impl Iterator<Item = &'a str> {
    let is_known = move |name: &str| {
        MEMBERS.split(' ').any(|known| known == name)
            || operation == "Query" && QUERY_MEMBERS.contains(&name)
    };
    body.keys().map(String::as_str).filter(move |name| !is_known(name))
}

/// Refuses members that this release does not know.
pub(crate) fn check_members(operation: &str, body: &Members) -> Result<(), Failure> {
    match unknown_members(operation, body).next() {
        None => Ok(()),
        Some(name) => Err(Failure::unsupported(&format!("{name} of {operation}"))),
    }
}

/// The text of an attribute that has this type.
pub(crate) fn attribute<'a>(item: &'a Members, name: &str, letter: &str) -> Option<&'a str> {
    item.get(name)?.as_object()?.get(letter)?.as_str()
}

/// The version of a stored item. An item of another program has none.
pub(crate) fn version(stored: &Members) -> Version {
    attribute(stored, VERSION, "N").and_then(Version::parse).unwrap_or(Version::NONE)
}

pub(crate) fn is_tombstone(stored: &Members) -> bool {
    stored.contains_key(VERSION) && stored.contains_key(DELETED)
}

/// A stored copy, as far as the protocol needs it.
pub(crate) fn copy(stored: &Members) -> Copy {
    Copy {
        version: version(stored),
        is_tombstone: is_tombstone(stored),
        write_id: attribute(stored, WRITE_ID, "S").map(str::to_owned),
        applied: None,
        late_until: attribute(stored, LATE_UNTIL, "N")
            .filter(|_| stored.contains_key(VERSION))
            .and_then(|until| until.parse().ok()),
    }
}

pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// Refuses attributes with the product's prefix.
pub(crate) fn check_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Failure> {
    match names.into_iter().find(|name| is_ours(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::validation(format!(
            "the attribute {name} is not allowed: names that begin with {RESERVED_PREFIX} are the \
             product's own (sharding-endpoint)"
        ))),
    }
}

/// Refuses a value that has several types.
pub(crate) fn check_one_type(value: Option<&Value>) -> Result<(), Failure> {
    if value.and_then(Value::as_object).is_none_or(|types| types.len() == 1) {
        return Ok(());
    }
    Err(Failure::validation(
        "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the \
         supported datatypes",
    ))
}

pub(crate) fn sort_key_value(sort_key: &SortKey) -> Value {
    match sort_key {
        SortKey::String(text) => string(text),
        SortKey::Number(written) => number(written),
    }
}

/// A value in the crate's types. `None` if DynamoDB must judge it.
pub(crate) fn typed(value: &Value) -> Option<sharding::Value> {
    AttributeValue::deserialize(value).ok().filter(is_stored_as_it_is).map(from_dynamo)
}

/// DynamoDB refuses a NULL that is false, and the crate has none.
fn is_stored_as_it_is(value: &AttributeValue) -> bool {
    match value {
        AttributeValue::Null(is_null) => *is_null,
        AttributeValue::L(list) => list.iter().all(is_stored_as_it_is),
        AttributeValue::M(map) => map.values().all(is_stored_as_it_is),
        AttributeValue::S(_)
        | AttributeValue::N(_)
        | AttributeValue::B(_)
        | AttributeValue::Bool(_)
        | AttributeValue::Ss(_)
        | AttributeValue::Ns(_)
        | AttributeValue::Bs(_) => true,
    }
}
