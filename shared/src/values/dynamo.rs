//! Attribute values as serde_dynamo has them: for the caller's own types, and for DynamoDB's JSON.

use serde_dynamo::AttributeValue;

use crate::values::value::Value;

/// The value for serde_dynamo.
pub fn into_dynamo(value: Value) -> AttributeValue {
    match value {
        Value::S(text) => AttributeValue::S(text),
        Value::N(number) => AttributeValue::N(number),
        Value::B(bytes) => AttributeValue::B(bytes),
        Value::Bool(value) => AttributeValue::Bool(value),
        Value::Null => AttributeValue::Null(true),
        Value::L(list) => AttributeValue::L(list.into_iter().map(into_dynamo).collect()),
        Value::M(map) => AttributeValue::M(
            map.into_iter().map(|(name, value)| (name, into_dynamo(value))).collect(),
        ),
        Value::Ss(set) => AttributeValue::Ss(set),
        Value::Ns(set) => AttributeValue::Ns(set),
        Value::Bs(set) => AttributeValue::Bs(set),
    }
}

/// Of Null only the type counts.
pub fn from_dynamo(value: AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => Value::S(text),
        AttributeValue::N(number) => Value::N(number),
        AttributeValue::B(bytes) => Value::B(bytes),
        AttributeValue::Bool(value) => Value::Bool(value),
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::L(list) => Value::L(list.into_iter().map(from_dynamo).collect()),
        AttributeValue::M(map) => {
            Value::M(map.into_iter().map(|(name, value)| (name, from_dynamo(value))).collect())
        }
        AttributeValue::Ss(set) => Value::Ss(set),
        AttributeValue::Ns(set) => Value::Ns(set),
        AttributeValue::Bs(set) => Value::Bs(set),
    }
}
