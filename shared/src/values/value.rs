//! Attribute values, independent of the SDK.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use crate::values::key::{PartitionKey, SortKey};

/// The largest size of an item in bytes, including keys and names. (DynamoDB developer guide,
/// "Quotas in Amazon DynamoDB".)
pub const MAX_ITEM_BYTES: usize = 400 * 1_024;

/// A DynamoDB attribute value, for items without a type of their own, and for what serde's model
/// cannot express.
///
/// ```
/// use dynamodb_write_sharding::{Attributes, Value};
///
/// let order = Attributes::from([
///     ("total", Value::N("12.50".into())),
///     ("tags", Value::Ss(vec!["gift".into()])),
/// ]);
/// assert_eq!(order["total"].type_name(), "a number");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    S(String),
    /// A number, with its original digits.
    N(String),
    /// Bytes.
    B(Vec<u8>),
    /// A boolean.
    Bool(bool),
    /// Null.
    Null,
    /// A list.
    L(Vec<Value>),
    /// A map.
    M(Attributes),
    /// A set of strings.
    Ss(Vec<String>),
    /// A set of numbers.
    Ns(Vec<String>),
    /// A set of byte strings.
    Bs(Vec<Vec<u8>>),
}

impl Value {
    /// The name of the type.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::S(_) => "a string",
            Self::N(_) => "a number",
            Self::B(_) => "bytes",
            Self::Bool(_) => "a boolean",
            Self::Null => "null",
            Self::L(_) => "a list",
            Self::M(_) => "a map",
            Self::Ss(_) => "a set of strings",
            Self::Ns(_) => "a set of numbers",
            Self::Bs(_) => "a set of bytes",
        }
    }
}

/// The attributes of an item without a type of its own, without the keys, or of a map within it.
/// They dereference to a map of [`Value`]s.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attributes(BTreeMap<String, Value>);

impl Attributes {
    /// No attributes: an item that consists of its keys.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// As it counts towards the 400 KB of an item. (DynamoDB developer guide, "Item sizes and
    /// formats".)
    pub fn size(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value_size(value)).sum()
    }
}

impl From<BTreeMap<String, Value>> for Attributes {
    fn from(map: BTreeMap<String, Value>) -> Self {
        Self(map)
    }
}

impl<N: Into<String>, const COUNT: usize> From<[(N, Value); COUNT]> for Attributes {
    fn from(attributes: [(N, Value); COUNT]) -> Self {
        attributes.into_iter().collect()
    }
}

impl<N: Into<String>> FromIterator<(N, Value)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (N, Value)>>(attributes: I) -> Self {
        Self(attributes.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl<'a> IntoIterator for &'a Attributes {
    type Item = (&'a String, &'a Value);
    type IntoIter = std::collections::btree_map::Iter<'a, String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl IntoIterator for Attributes {
    type Item = (String, Value);
    type IntoIter = std::collections::btree_map::IntoIter<String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Deref for Attributes {
    type Target = BTreeMap<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Attributes {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// An item as the caller sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The logical partition key.
    pub partition_key: PartitionKey,
    /// The sort key.
    pub sort_key: SortKey,
    /// Everything else.
    pub attributes: Attributes,
}

impl Item {
    /// The approximate write units of storing the item once: its size in KB, rounded up.
    pub fn write_units(&self) -> u64 {
        write_units(2 * self.partition_key.as_str().len() + self.attributes.size())
    }
}

/// The write units of an item of this size: KB, rounded up, and at least one.
pub fn write_units(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(1_024).max(1)
}

pub(crate) fn value_size(value: &Value) -> usize {
    match value {
        Value::S(text) => text.len(),
        Value::N(number) => number_size(number),
        Value::B(bytes) => bytes.len(),
        Value::Bool(_) | Value::Null => 1,
        Value::L(list) => 3 + list.iter().map(|value| 1 + value_size(value)).sum::<usize>(),
        Value::M(map) => 3 + map.len() + map.size(),
        Value::Ss(set) => set.iter().map(String::len).sum(),
        Value::Ns(set) => set.iter().map(|number| number_size(number)).sum(),
        Value::Bs(set) => set.iter().map(Vec::len).sum(),
    }
}

/// About one byte for two significant digits, and one more.
fn number_size(number: &str) -> usize {
    let mantissa = number.split(['e', 'E']).next().unwrap_or(number);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    1 + digits.trim_matches('0').len().div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::{key, text};

    #[test]
    fn names_and_values_count_towards_the_size() {
        let name = Value::S("grape".into());
        let attributes = Attributes::from([("name", name), ("ripe", Value::Bool(true))]);
        assert_eq!(attributes.size(), 4 + 5 + 4 + 1);
        let attributes = Attributes::from([("text", Value::S("x".repeat(1_500)))]);
        let item = Item { partition_key: key("2014-07-09"), sort_key: text("1"), attributes };
        assert_eq!(item.write_units(), 2);
    }
}
