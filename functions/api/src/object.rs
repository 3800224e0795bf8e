//! The parts of a JSON text. Objects are lists of members, which show repeated members, and numbers
//! keep all their digits.

use std::fmt::Display;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::problem::Problem;

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
        let mut seen = std::collections::HashSet::new();
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
