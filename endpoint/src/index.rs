//! An index whose partition key is the table's own: its keys, and what it shows of an item.

use serde_json::Value;
use sharding::internal::protocol::names::{DELETED, LOGICAL_KEY, VERSION};

/// A local index, or a global one with the table's partition key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    /// Its key attributes without the table's partition key, in its order, each with the letter of
    /// its type.
    pub(crate) keys: Vec<(String, String)>,
    /// The attributes that it shows besides the keys; `None` for all.
    pub(crate) included: Option<Vec<String>>,
}

impl Index {
    /// Reads a description of `DescribeTable`. `None` if the index has another partition key.
    pub(crate) fn of(
        described: &Value,
        definitions: &[Value],
        partition_key: &str,
    ) -> Option<Self> {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let schema = described.get("KeySchema")?.as_array()?;
        let is_own = |key: &Value| text(key, "AttributeName") == partition_key;
        if !schema.iter().any(|key| text(key, "KeyType") == "HASH" && is_own(key)) {
            return None;
        }
        let keys = schema.iter().filter(|key| !is_own(key)).map(|key| {
            let name = text(key, "AttributeName");
            let defined = definitions.iter().find(|it| text(it, "AttributeName") == name);
            let letter = defined.map_or_else(|| "S".to_owned(), |it| text(it, "AttributeType"));
            (name, letter)
        });
        let projection = &described["Projection"];
        let included = projection["NonKeyAttributes"].as_array();
        let included = included.into_iter().flatten().filter_map(Value::as_str);
        let included = (text(projection, "ProjectionType") != "ALL")
            .then(|| included.map(str::to_owned).collect());
        Some(Self { keys: keys.collect(), included })
    }

    /// Whether its entries show what decides which copy is the newest.
    pub(crate) fn shows_ours(&self) -> bool {
        self.included.as_ref().is_none_or(|included| {
            [VERSION, DELETED, LOGICAL_KEY].iter().all(|it| included.iter().any(|name| name == it))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_index_is_read_from_its_description() {
        let definitions = [json!({ "AttributeName": "n", "AttributeType": "N" })];
        let of = |hash: &str, projection: Value| {
            let schema = json!([
                { "AttributeName": hash, "KeyType": "HASH" },
                { "AttributeName": "n", "KeyType": "RANGE" },
            ]);
            Index::of(&json!({ "KeySchema": schema, "Projection": projection }), &definitions, "pk")
        };
        let ours = json!({ "ProjectionType": "INCLUDE",
            "NonKeyAttributes": ["a", "_sh:v", "_sh:d", "_sh:k"] });
        let some = json!({ "ProjectionType": "INCLUDE", "NonKeyAttributes": ["a", "_sh:v"] });
        for (projection, shows_ours) in [
            (json!({ "ProjectionType": "ALL" }), true),
            (json!({ "ProjectionType": "KEYS_ONLY" }), false),
            (ours, true),
            (some, false),
        ] {
            let index = of("pk", projection).expect("an index with the table's partition key");
            assert_eq!(index.keys, [("n".to_owned(), "N".to_owned())]);
            assert_eq!(index.shows_ours(), shows_ours);
        }
        assert_eq!(of("other", json!({ "ProjectionType": "ALL" })), None);
    }
}
