//! Fields of a record, and attribute values in DynamoDB's JSON.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};

use crate::error::StreamError;
use sharding_core::{Attributes, Value};

/// DynamoDB nests values at most 32 levels deep. (DynamoDB developer guide, "Quotas in Amazon
/// DynamoDB".)
const MAX_DEPTH: usize = 33;

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
        self.members(0)
    }

    fn members(&self, depth: usize) -> Result<Attributes, StreamError> {
        let read = |name: &'a String| Ok((name.clone(), self.get(name).attribute(depth)?));
        self.object()?.keys().map(read).collect()
    }

    fn attribute(&self, depth: usize) -> Result<Value, StreamError> {
        if depth > MAX_DEPTH {
            return Err(self.is("is nested deeper than a value of DynamoDB can be"));
        }
        let mut kinds = self.object()?.keys();
        let (Some(kind), None) = (kinds.next(), kinds.next()) else {
            let why = "is no attribute value: an object with one member, named by its type";
            return Err(self.is(why));
        };
        let inner = self.get(kind);
        let bytes = |field: &Field<'a, '_>, text: &str| {
            STANDARD.decode(text).map_err(|_| field.is("is not base64"))
        };
        let texts = || {
            let texts = inner.list()?.iter().map(|one| one.as_str().map(str::to_owned));
            let texts: Option<Vec<String>> = texts.collect();
            texts.ok_or_else(|| inner.is("has a member that is not a string"))
        };
        Ok(match kind.as_str() {
            "S" => Value::S(inner.text()?.to_owned()),
            "N" => Value::N(inner.text()?.to_owned()),
            "B" => Value::B(bytes(&inner, inner.text()?)?),
            "BOOL" => {
                Value::Bool(inner.needed()?.as_bool().ok_or_else(|| inner.is("is not a boolean"))?)
            }
            "NULL" => Value::Null,
            "SS" => Value::Ss(texts()?),
            "NS" => Value::Ns(texts()?),
            "BS" => Value::Bs(
                texts()?.iter().map(|text| bytes(&inner, text)).collect::<Result<_, _>>()?,
            ),
            "M" => Value::M(inner.members(depth + 1)?),
            "L" => {
                let items = inner.list()?.iter().enumerate();
                let read = |(at, item): (usize, &'a Json)| {
                    Field { value: Some(item), name: &at.to_string(), parent: Some(&inner) }
                        .attribute(depth + 1)
                };
                Value::L(items.map(read).collect::<Result<_, _>>()?)
            }
            _ => return Err(inner.is("is a type of value that this release does not know")),
        })
    }

    fn list(&self) -> Result<&'a Vec<Json>, StreamError> {
        self.needed()?.as_array().ok_or_else(|| self.is("is not a list"))
    }
}

/// Attributes in DynamoDB's JSON, as in a record.
pub(crate) fn attributes_to_json(attributes: &Attributes) -> Json {
    attributes
        .iter()
        .map(|(name, value)| (name.clone(), to_json(value)))
        .collect::<Map<_, _>>()
        .into()
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::S(text) => json!({ "S": text }),
        Value::N(number) => json!({ "N": number }),
        Value::B(bytes) => json!({ "B": STANDARD.encode(bytes) }),
        Value::Bool(value) => json!({ "BOOL": value }),
        Value::Null => json!({ "NULL": true }),
        Value::L(list) => json!({ "L": list.iter().map(to_json).collect::<Vec<_>>() }),
        Value::M(map) => json!({ "M": attributes_to_json(map) }),
        Value::Ss(set) => json!({ "SS": set }),
        Value::Ns(set) => json!({ "NS": set }),
        Value::Bs(set) => {
            json!({ "BS": set.iter().map(|bytes| STANDARD.encode(bytes)).collect::<Vec<_>>() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            "\\PC{0,8}".prop_map(Value::S),
            any::<i64>().prop_map(|n| Value::N(n.to_string())),
            any::<Vec<u8>>().prop_map(Value::B),
            any::<bool>().prop_map(Value::Bool),
            Just(Value::Null),
            prop::collection::vec("[a-z]{1,4}", 1..4).prop_map(Value::Ss),
            prop::collection::vec("[1-9]{1,4}", 1..4).prop_map(Value::Ns),
            prop::collection::vec(any::<Vec<u8>>(), 1..3).prop_map(Value::Bs),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::L),
                prop::collection::btree_map("[a-zSNBM.]{0,5}", inner, 0..4)
                    .prop_map(|map| Value::M(map.into())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_was_written_as_json_is_read_back(
            attributes in prop::collection::btree_map("\\PC{0,6}", value(), 0..5),
        ) {
            let attributes = Attributes::from(attributes);
            let json = attributes_to_json(&attributes);
            prop_assert_eq!(Field::root(&json, "").attributes(), Ok(attributes));
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_the_way_to_it() {
        let no_value =
            "image.a is no attribute value: an object with one member, named by its type";
        let nested = json!({"M": {"b": {"L": [{"S": "x"}, {"N": 7}]}}});
        let deep = (0..500).fold(json!({"S": "x"}), |inner, _| json!({ "L": [inner] }));
        let rows = [
            (nested, "image.a.M.b.L.1.N is not a string"),
            (json!({"B": "%"}), "image.a.B is not base64"),
            (json!({"BOOL": "true"}), "image.a.BOOL is not a boolean"),
            (json!({"SS": ["x", 1]}), "image.a.SS has a member that is not a string"),
            (json!({"V": "x"}), "image.a.V is a type of value that this release does not know"),
            (json!({}), no_value),
            (json!({"S": "x", "N": "1"}), no_value),
            (json!("x"), "image.a is not an object"),
        ];
        let why = |image: &Json| Field::root(image, "image").attributes().unwrap_err().to_string();
        for (value, message) in rows {
            assert_eq!(why(&json!({ "a": value })), message);
        }
        assert_eq!(why(&json!([])), "image is not an object");
        let deep = why(&json!({ "a": deep }));
        assert!(deep.contains("nested deeper"), "{deep}");
    }
}
