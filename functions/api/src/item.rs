//! Items as JSON, without losing a digit.
//!
//! JSON types map to DynamoDB types: string, number, boolean, null, array (list) and object (map).
//! Types that JSON lacks are objects with one member whose name begins with `$`:
//! `{"$binary": "…base64…"}`, `{"$string_set": […]}`, `{"$number_set": […]}` and
//! `{"$binary_set": […]}`. A map that happens to have this form is wrapped as `{"$map": {…}}`.
//! Objects are read as lists of members, which show repeated members.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Error as _, Serialize, SerializeMap, SerializeStruct, Serializer};
use serde_json::value::RawValue;
use sharding::{Attributes, Merge, Number, PartitionKey, SortKey, TableConfig, Value};

use crate::response::Problem;

const MAX_DEPTH: usize = 32;
/// The maximum number of attributes in one addition. An update expression with this many names
/// stays within DynamoDB's limits.
const MAX_ADDITIONS: usize = 50;

pub(crate) fn read_attributes(raw: &RawValue, table: &TableConfig) -> Result<Attributes, Problem> {
    let attributes = read_map(raw, "attributes", 1)?;
    allowed(attributes.keys(), "attributes", table)?;
    Ok(attributes)
}

/// Rejects names that belong to the table's keys or to the service.
fn allowed<'a>(
    names: impl Iterator<Item = &'a String>,
    path: &str,
    table: &TableConfig,
) -> Result<(), Problem> {
    for name in names {
        if table.is_reserved(name) {
            let why = "the name is reserved for a key or for the service; \
                       any other name is allowed";
            return Err(Problem::bad("reserved_attribute", format!("{path}.{name}"), why));
        }
    }
    Ok(())
}

/// Reads changes of attributes. They have the form of attributes, but null removes an attribute,
/// and a plain object merges into the stored map.
pub(crate) fn read_merge(
    raw: &RawValue,
    table: &TableConfig,
) -> Result<BTreeMap<String, Merge>, Problem> {
    let changes = read_changes(raw, "attributes", 1)?;
    allowed(changes.keys(), "attributes", table)?;
    Ok(changes)
}

fn read_changes(
    raw: &RawValue,
    path: &str,
    depth: usize,
) -> Result<BTreeMap<String, Merge>, Problem> {
    check_depth(path, depth)?;
    let changes = object(raw, path)?.0.into_iter().map(|(name, value)| {
        let inner = format!("{path}.{name}");
        Ok(match Kind::of(value) {
            Kind::Null if !name.is_empty() => (name, Merge::Remove),
            Kind::Object if !name.is_empty() && !is_marked(value, &inner)? => {
                (name, Merge::Into(read_changes(value, &inner, depth + 1)?))
            }
            Kind::Object | Kind::Array | Kind::String | Kind::Number | Kind::Bool | Kind::Null => {
                let (name, value) = read_member(name, value, path, depth)?;
                (name, Merge::Set(value))
            }
        })
    });
    changes.collect()
}

/// Whether an object has the form of a marked type, such as `{"$binary": …}`.
fn is_marked(raw: &RawValue, path: &str) -> Result<bool, Problem> {
    let members = object(raw, path)?;
    Ok(matches!(members.0.as_slice(), [(name, _)] if name.starts_with('$')))
}

/// Reads additions to attributes, which are numbers and sets.
pub(crate) fn read_additions(raw: &RawValue, table: &TableConfig) -> Result<Attributes, Problem> {
    let additions = read_map(raw, "add", 1)?;
    allowed(additions.keys(), "add", table)?;
    if !(1..=MAX_ADDITIONS).contains(&additions.len()) {
        let why = format!("it has {} attributes; allowed: 1 to {MAX_ADDITIONS}", additions.len());
        return Err(Problem::bad("invalid_attribute", "add", why));
    }
    for (name, value) in &additions {
        if !matches!(value, Value::N(_) | Value::Ss(_) | Value::Ns(_) | Value::Bs(_)) {
            let why = format!("it is {}; a number or a set is needed", value.type_name());
            return Err(Problem::bad("wrong_type", format!("add.{name}"), why));
        }
    }
    Ok(additions)
}

fn read_map(raw: &RawValue, path: &str, depth: usize) -> Result<Attributes, Problem> {
    let members = object(raw, path)?;
    members.0.into_iter().map(|(name, value)| read_member(name, value, path, depth)).collect()
}

fn read_member(
    name: String,
    raw: &RawValue,
    path: &str,
    depth: usize,
) -> Result<(String, Value), Problem> {
    if name.is_empty() {
        let why = "an attribute has an empty name; names have at least one byte";
        return Err(Problem::bad("invalid_attribute", path, why));
    }
    let path = format!("{path}.{name}");
    Ok((name, read_value(raw, &path, depth)?))
}

fn read_value(raw: &RawValue, path: &str, depth: usize) -> Result<Value, Problem> {
    check_depth(path, depth)?;
    Ok(match Kind::of(raw) {
        Kind::String => Value::S(parse(raw, path)?),
        Kind::Number => Value::N(number(raw.get(), path)?),
        Kind::Bool => Value::Bool(parse(raw, path)?),
        Kind::Null => Value::Null,
        Kind::Array => {
            Value::L(elements(raw, path, |element, path| read_value(element, path, depth + 1))?)
        }
        Kind::Object => return read_object(raw, path, depth),
    })
}

fn check_depth(path: &str, depth: usize) -> Result<(), Problem> {
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    let why = format!("it is nested deeper than {MAX_DEPTH} levels");
    Err(Problem::bad("invalid_attribute", path, why))
}

/// Reads a map, or a marked type such as `{"$binary": …}`.
fn read_object(raw: &RawValue, path: &str, depth: usize) -> Result<Value, Problem> {
    let members = object(raw, path)?;
    let (name, inner) = match members.0.as_slice() {
        [(name, inner)] if name.starts_with('$') => (name, *inner),
        _ => return read_map(raw, path, depth + 1).map(Value::M),
    };
    let path = format!("{path}.{name}");
    Ok(match name.as_str() {
        "$binary" => Value::B(bytes(inner, &path)?),
        "$string_set" => Value::Ss(set(elements(inner, &path, string)?, &path)?),
        "$number_set" => {
            let numbers = elements(inner, &path, |element, path| number(element.get(), path))?;
            // 1 and 1.0 are one number.
            set(numbers.iter().map(|text| text.parse::<Number>().ok()).collect(), &path)?;
            Value::Ns(numbers)
        }
        "$binary_set" => Value::Bs(set(elements(inner, &path, bytes)?, &path)?),
        "$map" => Value::M(read_map(inner, &path, depth + 1)?),
        _ => {
            let why = "a name that begins with $ marks a type; \
                       allowed: $binary, $string_set, $number_set, $binary_set, \
                       and $map around a map with one such name";
            return Err(Problem::bad("invalid_attribute", path, why));
        }
    })
}

fn object<'a>(raw: &'a RawValue, path: &str) -> Result<Members<'a>, Problem> {
    let members = Members::of(raw, path)?;
    if let Some(name) = members.repeated() {
        return Err(Problem::bad("repeated_field", format!("{path}.{name}"), "it is given twice"));
    }
    Ok(members)
}

fn elements<T>(
    raw: &RawValue,
    path: &str,
    read: impl Fn(&RawValue, &str) -> Result<T, Problem>,
) -> Result<Vec<T>, Problem> {
    array(raw, path)?
        .into_iter()
        .enumerate()
        .map(|(index, element)| read(element, &format!("{path}[{index}]")))
        .collect()
}

fn set<T: Eq + Hash>(elements: Vec<T>, path: &str) -> Result<Vec<T>, Problem> {
    let wrong = |why: &str| Err(Problem::bad("invalid_attribute", path, why));
    if elements.is_empty() {
        return wrong("a set has at least one member");
    }
    if elements.iter().collect::<HashSet<_>>().len() < elements.len() {
        return wrong("a member of the set is given twice");
    }
    Ok(elements)
}

fn bytes(raw: &RawValue, path: &str) -> Result<Vec<u8>, Problem> {
    let text = string(raw, path)?;
    STANDARD.decode(text).map_err(|_| Problem::bad("invalid_attribute", path, "it is not base64"))
}

fn number(text: &str, path: &str) -> Result<String, Problem> {
    match text.parse::<Number>() {
        // DynamoDB limits the exponent of a zero, and this API does not.
        Ok(number) if number.is_zero() => Ok("0".to_owned()),
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(Problem::bad("invalid_number", path, error)),
    }
}

/// An item in a response.
#[derive(Debug)]
pub struct ItemJson<'a> {
    /// The partition key.
    pub partition_key: &'a PartitionKey,
    /// The sort key.
    pub sort_key: &'a SortKey,
    /// The attributes without the keys.
    pub attributes: &'a Attributes,
}

impl Serialize for ItemJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut item = serializer.serialize_struct("Item", 3)?;
        item.serialize_field("partition_key", self.partition_key.as_str())?;
        item.serialize_field("sort_key", &SortKeyJson(self.sort_key))?;
        item.serialize_field("attributes", &MapJson(self.attributes))?;
        item.end()
    }
}

/// A sort key in a response: a string or a number.
#[derive(Debug)]
pub struct SortKeyJson<'a>(pub &'a SortKey);

impl Serialize for SortKeyJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            SortKey::String(text) => serializer.serialize_str(text),
            SortKey::Number(number) => Digits(&number.to_string()).serialize(serializer),
        }
    }
}

struct MapJson<'a>(&'a Attributes);
struct ValueJson<'a>(&'a Value);

impl Serialize for MapJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, ValueJson(value))))
    }
}

impl Serialize for ValueJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::S(text) => serializer.serialize_str(text),
            Value::N(number) => Digits(number).serialize(serializer),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Null => serializer.serialize_unit(),
            Value::L(list) => serializer.collect_seq(list.iter().map(ValueJson)),
            Value::M(map) if looks_marked(map) => marked("$map", &MapJson(map), serializer),
            Value::M(map) => MapJson(map).serialize(serializer),
            Value::B(bytes) => marked("$binary", &STANDARD.encode(bytes), serializer),
            Value::Ss(set) => marked("$string_set", set, serializer),
            Value::Ns(set) => {
                let set: Vec<Digits<'_>> = set.iter().map(|number| Digits(number)).collect();
                marked("$number_set", &set, serializer)
            }
            Value::Bs(set) => {
                let set: Vec<String> = set.iter().map(|bytes| STANDARD.encode(bytes)).collect();
                marked("$binary_set", &set, serializer)
            }
        }
    }
}

/// A number, which is serialized with all its digits, not as a float.
struct Digits<'a>(&'a str);

impl Serialize for Digits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.0.to_owned()).map_err(S::Error::custom)?.serialize(serializer)
    }
}

fn looks_marked(map: &Attributes) -> bool {
    map.len() == 1 && map.keys().all(|name| name.starts_with('$'))
}

fn marked<S: Serializer>(
    name: &str,
    value: &(impl Serialize + ?Sized),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(name, value)?;
    map.end()
}

/// The members of an object in their order, with unparsed values.
pub(crate) struct Members<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Collect).map(Self)
    }
}

impl<'a> Members<'a> {
    pub(crate) fn of(raw: &'a RawValue, path: &str) -> Result<Self, Problem> {
        needs(raw, Kind::Object, path, "an object is needed")?;
        parse(raw, path)
    }

    pub(crate) fn repeated(&self) -> Option<&str> {
        let mut seen = HashSet::new();
        self.0.iter().map(|(name, _)| name.as_str()).find(|name| !seen.insert(*name))
    }
}

/// The kind of a JSON value, by its first character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Number,
    Bool,
    Null,
}

impl Kind {
    pub(crate) fn of(raw: &RawValue) -> Self {
        match raw.get().as_bytes().first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'"') => Self::String,
            Some(b't' | b'f') => Self::Bool,
            Some(b'n') => Self::Null,
            _ => Self::Number,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::String => "a string",
            Self::Number => "a number",
            Self::Bool => "a boolean",
            Self::Null => "null",
        }
    }
}

pub(crate) fn array<'a>(raw: &'a RawValue, path: &str) -> Result<Vec<&'a RawValue>, Problem> {
    needs(raw, Kind::Array, path, "an array is needed")?;
    parse(raw, path)
}

pub(crate) fn string(raw: &RawValue, path: &str) -> Result<String, Problem> {
    needs(raw, Kind::String, path, "a string is needed")?;
    parse(raw, path)
}

/// Rejects a value of another kind. `what` tells the client what is needed.
pub(crate) fn needs(
    raw: &RawValue,
    kind: Kind,
    path: &str,
    what: impl Display,
) -> Result<(), Problem> {
    let found = Kind::of(raw);
    if found == kind {
        return Ok(());
    }
    Err(Problem::bad("wrong_type", path, format_args!("it is {}; {what}", found.name())))
}

/// Parses a part of a valid JSON text. It can fail only on a string that is not valid Unicode.
pub(crate) fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue, path: &str) -> Result<T, Problem> {
    serde_json::from_str(raw.get()).map_err(|error| Problem::bad("invalid_json", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Attributes, Problem> {
        let table = TableConfig::new("items", "items-metadata").with(|table| {
            (table.partition_key_name, table.sort_key_name) = ("pk".to_owned(), "sk".to_owned());
        });
        read_attributes(&RawValue::from_string(json.to_owned()).unwrap(), &table)
    }

    #[test]
    fn errors_name_the_attribute() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(32), "]".repeat(32));
        let rows = [
            ("[]", "attributes", "wrong_type"),
            (r#"{"pk":1}"#, "attributes.pk", "reserved_attribute"),
            (r#"{"_sh:v":1}"#, "attributes._sh:v", "reserved_attribute"),
            (r#"{"":1}"#, "attributes", "invalid_attribute"),
            (r#"{"a":{"b":1,"b":2}}"#, "attributes.a.b", "repeated_field"),
            (
                r#"{"a":[1,123456789012345678901234567890123456789]}"#,
                "attributes.a[1]",
                "invalid_number",
            ),
            (r#"{"a":1e126}"#, "attributes.a", "invalid_number"),
            (r#"{"a":{"$binary":"*"}}"#, "attributes.a.$binary", "invalid_attribute"),
            (r#"{"a":{"$number_set":["1"]}}"#, "attributes.a.$number_set[0]", "invalid_number"),
            (r#"{"a":{"$string_set":[]}}"#, "attributes.a.$string_set", "invalid_attribute"),
            (r#"{"a":{"$string_set":["x","x"]}}"#, "attributes.a.$string_set", "invalid_attribute"),
            (r#"{"a":{"$number_set":[1,2,1.0]}}"#, "attributes.a.$number_set", "invalid_attribute"),
            (r#"{"a":{"$what":1}}"#, "attributes.a.$what", "invalid_attribute"),
            (r#"{"a":"\ud800"}"#, "attributes.a", "invalid_json"),
            (
                &deep,
                "attributes.a[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]",
                "invalid_attribute",
            ),
        ];
        for (json, field, code) in rows {
            let problem = read(json).unwrap_err();
            let detail = problem.detail();
            assert_eq!(problem.code(), code, "{json}: {detail}");
            assert!(detail.starts_with(&format!("{field}: ")), "{json}: {detail}");
        }
    }
}
