//! Fields of a record, and attribute values in DynamoDB's JSON.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use serde_dynamo::AttributeValue;
use serde_json::{Map, Value as Json, json};

use crate::error::StreamError;
use sharding_core::Attributes;
use sharding_core::internal::dynamo::{from_dynamo, into_dynamo};

/// A field with its path, which errors print. Nothing is allocated until then.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a, 'p> {
    pub(crate) value: Option<&'a Json>,
    name: &'p str,
    parent: Option<&'p Field<'a, 'p>>,
}

impl<'a> Field<'a, '_> {
    /// The record itself, or a value at a place that an outer record names.
    pub(crate) const fn root(value: &'a Json, name: &'static str) -> Field<'a, 'a> {
        Field { value: Some(value), name, parent: None }
    }

    /// A member of an object. It has no value if there is no such member.
    pub(crate) fn get<'p>(&'p self, name: &'p str) -> Field<'a, 'p>
    where
        'a: 'p,
    {
        Field {
            value: self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null()),
            name,
            parent: Some(self),
        }
    }

    pub(crate) fn text(&self) -> Result<&'a str, StreamError> {
        self.needed()?.as_str().ok_or_else(|| self.is("is not a string"))
    }

    pub(crate) fn object(&self) -> Result<&'a Map<String, Json>, StreamError> {
        self.needed()?.as_object().ok_or_else(|| self.is("is not an object"))
    }

    pub(crate) fn needed(&self) -> Result<&'a Json, StreamError> {
        self.value.ok_or_else(|| self.is("is missing"))
    }

    pub(crate) fn is(&self, problem: impl Into<String>) -> StreamError {
        StreamError::Field { field: self.path(), problem: problem.into() }
    }

    fn path(&self) -> String {
        let mut path = self.parent.map(Field::path).unwrap_or_default();
        if !path.is_empty() && !self.name.is_empty() {
            path.push('.');
        }
        let _ = write!(path, "{}", self.name);
        path
    }

    /// The text of a string or a number attribute. `None` if it is absent or of another type.
    pub(crate) fn of_type(&self, kind: &str) -> Option<&'a str> {
        self.value?.get(kind)?.as_str()
    }

    /// An item's attributes.
    pub(crate) fn attributes(&self) -> Result<Attributes, StreamError> {
        let read: Result<HashMap<String, AttributeValue>, _> =
            serde_path_to_error::deserialize(self.needed()?);
        let attributes = read.map_err(|error| {
            let field = match error.path().to_string() {
                whole if whole == "." => self.path(),
                inner => format!("{}.{inner}", self.path()),
            };
            // The text of serde's error has values of the item.
            StreamError::Field { field, problem: "is not in DynamoDB's JSON".to_owned() }
        })?;
        Ok(attributes.into_iter().map(|(name, value)| (name, from_dynamo(value))).collect())
    }
}

/// Attributes in DynamoDB's JSON, as in a record.
pub(crate) fn attributes_to_json(attributes: &Attributes) -> Json {
    let attributes = attributes.clone().into_iter();
    let attributes: BTreeMap<String, AttributeValue> =
        attributes.map(|(name, value)| (name, into_dynamo(value))).collect();
    json!(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_from_json_is_written_back() {
        let image = json!({
            "text": {"S": ""}, "number": {"N": "-1.50"}, "bytes": {"B": "AAEC"},
            "flag": {"BOOL": false}, "none": {"NULL": true}, "texts": {"SS": ["a", "b"]},
            "numbers": {"NS": ["1", "2"]}, "binaries": {"BS": ["AA==", "AQ=="]},
            "map": {"M": {"S": {"M": {}}, "list": {"L": [{"L": []}, {"S": "x"}]}}},
        });
        let attributes = Field::root(&image, "").attributes().unwrap();
        assert_eq!(attributes.len(), 9);
        assert_eq!(attributes_to_json(&attributes), image);
    }

    #[test]
    fn what_is_wrong_is_named_with_the_way_to_it() {
        let nested = json!({"M": {"b": {"L": [{"S": "x"}, {"N": 7}]}}});
        let rows = [
            (nested, "image.a.M.b.L[1].N"),
            (json!({"B": "%"}), "image.a"),
            (json!({"BOOL": "true"}), "image.a.BOOL"),
            (json!({"SS": ["x", 1]}), "image.a.SS[1]"),
            (json!({"V": "x"}), "image.a"),
            (json!({}), "image.a"),
            (json!({"S": "x", "N": "1"}), "image.a"),
            (json!("x"), "image.a"),
        ];
        let why = |image: &Json| Field::root(image, "image").attributes().unwrap_err().to_string();
        let problem = "is not in DynamoDB's JSON";
        for (value, field) in rows {
            assert_eq!(why(&json!({ "a": value })), format!("{field} {problem}"));
        }
        assert_eq!(why(&json!([])), format!("image {problem}"));
    }
}
