//! Finds the keys that an operation touches in its JSON.

use serde_json::Value;

use crate::access::Access;
use crate::key_condition;
use crate::partitions::StoredKey;

/// One key that an operation touches.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Touched {
    pub(crate) table: String,
    /// The partition key's attribute value as JSON text, which is hashed.
    pub(crate) key: StoredKey,
    pub(crate) access: Access,
    /// The key's share of the units that a batch consumes.
    pub(crate) weight: f64,
    /// The indexes that a write also touches, by the name from [`index_resource`], with their keys.
    pub(crate) indexes: Vec<(String, StoredKey)>,
    /// The table or index whose partition is overdrawn, and so rejects the key.
    pub(crate) closed_by: Option<String>,
}

impl Touched {
    /// The table and the indexes, each with its key.
    pub(crate) fn resources(&self) -> impl Iterator<Item = (&str, &StoredKey)> {
        let of_indexes = self.indexes.iter().map(|(resource, key)| (resource.as_str(), key));
        std::iter::once((self.table.as_str(), &self.key)).chain(of_indexes)
    }
}

/// The names of a table's key attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyNames {
    pub(crate) partition_key: String,
    /// The global secondary indexes, by the name from [`index_resource`], with the names of their
    /// partition keys.
    pub(crate) indexes: Vec<(String, String)>,
}

/// The separator between the names of a table and its index, as in an ARN.
const INDEX: &str = "/index/";

/// The name of an index's partitions.
pub(crate) fn index_resource(table: &str, index: &str) -> String {
    format!("{table}{INDEX}{index}")
}

/// The table and the index that a resource name consists of.
pub(crate) fn table_and_index(resource: &str) -> (&str, Option<&str>) {
    resource.split_once(INDEX).map_or((resource, None), |(table, index)| (table, Some(index)))
}

/// The table of a request, by name or by ARN.
pub(crate) fn table_name(body: &Value) -> Option<&str> {
    body.get("TableName").and_then(Value::as_str).map(bare_name)
}

pub(crate) fn bare_name(name: &str) -> &str {
    name.rsplit_once(":table/").map_or(name, |(_, bare)| bare)
}

/// Returns the keys of an operation in the order of its items; empty if partition limits do not
/// apply to it.
pub(crate) fn touched(
    operation: &str,
    body: &Value,
    key_names: impl Fn(&str) -> Option<KeyNames>,
) -> Vec<Touched> {
    let find = Finder { key_names };
    let single = |attributes: &str, access| {
        table_name(body)
            .and_then(|table| find.in_item(table, body.get(attributes)?, access))
            .into_iter()
            .collect()
    };
    match operation {
        "PutItem" => single("Item", Access::Write),
        "UpdateItem" | "DeleteItem" => single("Key", Access::Write),
        "GetItem" => single("Key", Access::Read),
        "Query" if body.get("IndexName").is_none() => find.in_query(body).into_iter().collect(),
        "BatchWriteItem" => batch(body)
            .filter_map(|(table, request)| find.in_item(table, written(request)?, Access::Write))
            .collect(),
        "BatchGetItem" => {
            batch(body).filter_map(|(table, key)| find.in_item(table, key, Access::Read)).collect()
        }
        "TransactWriteItems" => find.in_transaction(body, Access::Write),
        "TransactGetItems" => find.in_transaction(body, Access::Read),
        _ => Vec::new(),
    }
}

/// The item or key of one request of a BatchWriteItem.
pub(crate) fn written(request: &Value) -> Option<&Value> {
    request.pointer("/PutRequest/Item").or_else(|| request.pointer("/DeleteRequest/Key"))
}

fn batch(body: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let tables = body.get("RequestItems").and_then(Value::as_object).into_iter().flatten();
    tables.flat_map(|(table, requests)| {
        let requests = requests.get("Keys").unwrap_or(requests).as_array().into_iter().flatten();
        requests.map(move |request| (bare_name(table), request))
    })
}

struct Finder<F> {
    key_names: F,
}

impl<F: Fn(&str) -> Option<KeyNames>> Finder<F> {
    fn in_item(&self, table: &str, item: &Value, access: Access) -> Option<Touched> {
        let names = (self.key_names)(table)?;
        let key = StoredKey::new(item.get(names.partition_key)?.to_string());
        let indexes = if access == Access::Write { names.indexes } else { Vec::new() };
        let named = |(resource, name): (String, String)| {
            Some((resource, StoredKey::new(item.get(name)?.to_string())))
        };
        let indexes = indexes.into_iter().filter_map(named).collect();
        let (table, weight) = (table.to_owned(), item.to_string().len() as f64);
        Some(Touched { table, key, access, weight, indexes, closed_by: None })
    }

    fn in_transaction(&self, body: &Value, access: Access) -> Vec<Touched> {
        let actions = body.get("TransactItems").and_then(Value::as_array).into_iter().flatten();
        let touched = actions.filter_map(|action| {
            let (_, action) = action.as_object()?.iter().next()?;
            let item = action.get("Item").or_else(|| action.get("Key"))?;
            let touched = self.in_item(table_name(action)?, item, access)?;
            // A transaction bills each of its actions in whole units, and a check of an absent item
            // as one.
            Some(Touched { weight: (touched.weight / 1_024.0).ceil(), ..touched })
        });
        touched.collect()
    }

    /// The partition key of a query: `name = :value`, with or without name placeholders, or the
    /// older `KeyConditions`.
    fn in_query(&self, body: &Value) -> Option<Touched> {
        let table = table_name(body)?;
        let name = (self.key_names)(table)?.partition_key;
        let key = match body.get("KeyConditionExpression").and_then(Value::as_str) {
            Some(expression) => {
                let resolve = |word: &str| key_condition::attribute(body, word) == name;
                let words = key_condition::words(expression);
                let value = words.windows(3).find_map(|window| match window {
                    [left, sign, right] if sign == "=" && resolve(left) => Some(right),
                    [left, sign, right] if sign == "=" && resolve(right) => Some(left),
                    _ => None,
                })?;
                body.get("ExpressionAttributeValues")?.get(value)?
            }
            None => body.get("KeyConditions")?.get(&name)?.pointer("/AttributeValueList/0")?,
        };
        let (table, key) = (table.to_owned(), StoredKey::new(key.to_string()));
        let (access, indexes) = (Access::Read, Vec::new());
        Some(Touched { table, key, access, weight: 1.0, indexes, closed_by: None })
    }
}

/// The text of a string key; a key of another type stays JSON.
pub(crate) fn bare_key(key: &str) -> String {
    let parsed: Option<Value> = serde_json::from_str(key).ok();
    parsed
        .and_then(|value| value.get("S")?.as_str().map(str::to_owned))
        .unwrap_or_else(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keys(operation: &str, body: &Value) -> Vec<String> {
        let names = KeyNames { partition_key: "pk".into(), indexes: Vec::new() };
        touched(operation, body, |_| Some(names.clone()))
            .into_iter()
            .map(|touched| touched.key.text().to_owned())
            .collect()
    }

    #[test]
    fn the_partition_key_of_a_query_is_found_however_it_is_written() {
        let value = json!({"S": "a.1"});
        let rows = [
            json!({"TableName": "t", "KeyConditionExpression": "#p = :p AND begins_with(#s, :x)",
                "ExpressionAttributeNames": {"#p": "pk", "#s": "sk"},
                "ExpressionAttributeValues": {":p": value, ":x": {"S": "x"}}}),
            json!({"TableName": "t", "KeyConditionExpression": "(sk=:x)AND(pk=:p)",
                "ExpressionAttributeValues": {":p": value, ":x": {"S": "x"}}}),
            json!({"TableName": "arn:aws:dynamodb:r:1:table/t", "KeyConditionExpression": ":p = pk",
                "ExpressionAttributeValues": {":p": value}}),
            json!({"TableName": "t",
                "KeyConditions": {"pk": {"ComparisonOperator": "EQ", "AttributeValueList": [value]}}}),
        ];
        for body in rows {
            assert_eq!(keys("Query", &body), [value.to_string()], "{body}");
        }
        assert!(keys("Query", &json!({"TableName": "t", "IndexName": "i"})).is_empty());
    }

    #[test]
    fn batches_and_transactions_touch_each_of_their_keys() {
        let put = json!({"RequestItems": {"t": [
            {"PutRequest": {"Item": {"pk": {"S": "a"}, "v": {"N": "1"}}}},
            {"DeleteRequest": {"Key": {"pk": {"S": "b"}}}}]}});
        assert_eq!(keys("BatchWriteItem", &put), [r#"{"S":"a"}"#, r#"{"S":"b"}"#]);
        let get =
            json!({"RequestItems": {"t": {"Keys": [{"pk": {"S": "a"}}, {"pk": {"S": "b"}}]}}});
        assert_eq!(keys("BatchGetItem", &get).len(), 2);
        let transaction = json!({"TransactItems": [
            {"Put": {"TableName": "t", "Item": {"pk": {"S": "a"}}}},
            {"ConditionCheck": {"TableName": "t", "Key": {"pk": {"S": "b"}}}}]});
        assert_eq!(keys("TransactWriteItems", &transaction).len(), 2);
    }

    #[test]
    fn a_write_touches_the_indexes_whose_key_it_names() {
        let indexes = [("replica", "pk"), ("by-owner", "owner")]
            .map(|(name, key)| (index_resource("t", name), key.to_owned()))
            .to_vec();
        let names = KeyNames { partition_key: "pk".into(), indexes };
        let whole = json!({"TableName": "t", "Item": {"pk": {"S": "a"}, "owner": {"S": "o"}}});
        let sparse = json!({"TableName": "t", "Item": {"pk": {"S": "a"}}});
        let key = json!({"TableName": "t", "Key": {"pk": {"S": "a"}}});
        let (replica, owner) =
            (("t/index/replica", r#"{"S":"a"}"#), ("t/index/by-owner", r#"{"S":"o"}"#));
        let rows = [
            ("PutItem", &whole, vec![replica, owner]),
            ("PutItem", &sparse, vec![replica]),
            ("DeleteItem", &key, vec![replica]),
            ("GetItem", &key, vec![]),
        ];
        for (operation, body, expected) in rows {
            let touched = touched(operation, body, |_| Some(names.clone()));
            let resources = touched.iter().flat_map(|one| one.resources().skip(1));
            let indexes: Vec<_> = resources.map(|(name, key)| (name, key.text())).collect();
            assert_eq!(indexes, expected, "{operation} {body}");
        }
    }
}
