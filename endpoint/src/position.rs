//! Where an entry stands in the order of a query: by the keys of the index, then by the table's sort
//! key. DynamoDB continues a query at such a position, at any shard.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sharding::{Number, SortKey};

use crate::item;
use crate::reply::{Failure, Members};
use crate::table::{Index, ServedTable};

/// The position of an entry. A query of the table itself has no keys of an index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    index: Vec<IndexKey>,
    pub(crate) sort_key: SortKey,
}

/// A key of the index, in DynamoDB's order: strings and binary values by their bytes, and numbers by
/// value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum IndexKey {
    String(String),
    Number(Number),
    Binary(Vec<u8>),
}

impl IndexKey {
    fn of(value: &Value, letter: &str) -> Option<Self> {
        let members = value.as_object().filter(|members| members.len() == 1)?;
        let text = members.get(letter)?.as_str()?;
        match letter {
            "S" => Some(Self::String(text.to_owned())),
            "N" => text.parse().ok().map(Self::Number),
            _ => BASE64_STANDARD.decode(text).ok().map(Self::Binary),
        }
    }

    fn value(&self) -> Value {
        match self {
            Self::String(text) => item::string(text),
            Self::Number(number) => item::number(number),
            Self::Binary(bytes) => json!({ "B": BASE64_STANDARD.encode(bytes) }),
        }
    }
}

impl Position {
    /// The position of an entry, or of an item that an index may show. An entry of an index that was
    /// made anew has not its keys.
    pub(crate) fn of(
        table: &ServedTable,
        index: Option<&Index>,
        entry: &Members,
    ) -> Result<Self, Failure> {
        let sort_key = table.sort_key(entry)?;
        let keys = index_keys(index, entry).ok_or_else(|| {
            table.forget_indexes();
            Failure::internal("sharding-endpoint: an entry has not the keys of its index")
        })?;
        Ok(Self { index: keys, sort_key })
    }

    /// The position at which a client continues. It has exactly the keys.
    pub(crate) fn of_start(
        table: &ServedTable,
        index: Option<&Index>,
        key: &str,
        start: &Members,
    ) -> Result<Self, Failure> {
        let invalid = || Failure::validation("The provided starting key is invalid");
        let keys = index_keys(index, start).ok_or_else(invalid)?;
        let position = Self { index: keys, sort_key: table.sort_key(start)? };
        let (expected, name) = (position.key(table, index, key), table.partition_key_name());
        if start.get(name) != expected.get(name) || start.len() != expected.len() {
            return Err(invalid());
        }
        Ok(position)
    }

    /// Whether an item is here. It may have no keys in the index.
    pub(crate) fn is_of(&self, table: &ServedTable, index: Option<&Index>, item: &Members) -> bool {
        table.sort_key(item).is_ok_and(|it| it == self.sort_key)
            && index_keys(index, item).is_some_and(|it| it == self.index)
    }

    /// The keys of this position under a partition key.
    pub(crate) fn key(&self, table: &ServedTable, index: Option<&Index>, key: &str) -> Members {
        let mut members = table.key(key, item::sort_key_value(&self.sort_key));
        let names = index.into_iter().flat_map(|index| &index.keys);
        members.extend(names.zip(&self.index).map(|((name, _), key)| (name.clone(), key.value())));
        members
    }
}

/// `None` if one is absent or has another type.
fn index_keys(index: Option<&Index>, entry: &Members) -> Option<Vec<IndexKey>> {
    let keys = index.into_iter().flat_map(|index| &index.keys);
    keys.map(|(name, letter)| IndexKey::of(entry.get(name)?, letter)).collect()
}
