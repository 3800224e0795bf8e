//! A table that the endpoint serves: its keys, as its items have them, its indexes, and the crate's
//! engine for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admin::take_key_names;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::{ScalarAttributeType, TimeToLiveStatus};
use serde_json::{Value, json};
use sharding::internal::protocol::names::{DELETED, LOGICAL_KEY, VERSION};
use sharding::internal::{
    MAX_SHARDED_KEY_BYTES, MAX_SORT_KEY_BYTES, Patterns, SUFFIX_MARK, ShardKeys, TableEngine,
};
use sharding::{
    Attributes, PartitionKey, Placement, ShardNumber, SortKey, SortKeyType, TableConfig, Writes,
};
use tokio::time::Instant;

use crate::grown::GrownKeys;
use crate::item;
use crate::reply::{Failure, Members};
use crate::upstream::{CHECKED_AFTER, Upstream, UpstreamError, repeated};

/// Of a longer key, this many bytes are matched with the patterns.
const MATCHED_BYTES: usize = 2_000;
/// How long a description of an index is used. Another program may make the index anew.
const DESCRIBED_FOR: Duration = Duration::from_secs(60);

const NO_KEY: &str = "The provided key element does not match the schema";

/// A table with its engine.
#[derive(Debug, Clone)]
pub(crate) struct ServedTable {
    pub(crate) engine: TableEngine,
    pub(crate) upstream: Upstream,
    pub(crate) name: String,
    arn: Option<String>,
    indexes: Arc<Mutex<Indexes>>,
    pub(crate) grown: GrownKeys,
}

/// The indexes as they were described, each `None` if it has another partition key.
type Indexes = HashMap<String, (Option<Arc<Index>>, Instant)>;

impl ServedTable {
    /// Describes the table and takes the settings from the description.
    pub(crate) async fn open(
        client: &Client,
        upstream: &Upstream,
        mut config: TableConfig,
    ) -> Result<Self, UpstreamError> {
        let name = config.table_name.clone();
        let wrong = |why: &str| UpstreamError(format!("the table {name}: {why}"));
        let is_served = config.shard_keys == ShardKeys::KeyFirst
            && config.placement == Placement::Calculated
            && config.writes() == Writes::Items;
        if !is_served {
            return Err(wrong(
                "the endpoint needs ADOPT_SHARDS=0, SHARD_PLACEMENT=calculated and WRITES=items",
            ));
        }
        let table = take_key_names(client, &mut config).await;
        let table = table.map_err(|error| UpstreamError(error.to_string()))?;
        let ttl = client.describe_time_to_live().table_name(&name).send().await;
        let ttl = ttl.map_err(|error| wrong(&DisplayErrorContext(&error).to_string()))?;
        let ttl = ttl.time_to_live_description.and_then(|ttl| {
            use TimeToLiveStatus::{Enabled, Enabling};
            let is_on = matches!(ttl.time_to_live_status(), Some(Enabled | Enabling));
            ttl.attribute_name.filter(|_| is_on)
        });
        config.ttl_attribute = ttl.or(config.ttl_attribute);
        let is_of = |name: &str, types: &[ScalarAttributeType]| {
            let mut defined = table.attribute_definitions().iter();
            defined.any(|it| it.attribute_name() == name && types.contains(it.attribute_type()))
        };
        use ScalarAttributeType::{N, S};
        let can_be_armed = table.key_schema().len() == 2
            && is_of(&config.partition_key_name, &[S])
            && is_of(&config.sort_key_name, &[S, N]);
        if !can_be_armed {
            return Err(wrong("its keys cannot be armed. Do not name it: its requests pass"));
        }
        // A tombstone has the keys of its item, and expires when it would.
        let is_key =
            |name: &String| *name == config.partition_key_name || *name == config.sort_key_name;
        config.ttl_attribute = config.ttl_attribute.take().filter(|name| !is_key(name));
        let arn = table.table_arn().map(str::to_owned);
        let engine = TableEngine::new(client, config);
        Ok(Self { arn, ..Self::of_engine(engine, upstream.clone()) })
    }

    /// A table whose engine this process has.
    pub(crate) fn of_engine(engine: TableEngine, upstream: Upstream) -> Self {
        let name = engine.config().table_name.clone();
        let (indexes, grown) = (Arc::default(), GrownKeys::default());
        Self { engine, upstream, name, arn: None, indexes, grown }
    }

    /// Whether a request that names a table means this one.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        // A server on this machine has no account.
        self.name == name || self.arn.as_ref().map_or(self.is_arn(name), |arn| arn == name)
    }

    /// Whether this is the ARN of a table with this name, here or elsewhere.
    pub(crate) fn is_arn(&self, name: &str) -> bool {
        name.rsplit_once(":table/").is_some_and(|(_, bare)| bare == self.name)
    }

    pub(crate) fn partition_key_name(&self) -> &str {
        &self.engine.config().partition_key_name
    }

    pub(crate) fn sort_key_name(&self) -> &str {
        &self.engine.config().sort_key_name
    }

    pub(crate) fn sort_key_letter(&self) -> &'static str {
        match self.engine.config().sort_key_type {
            SortKeyType::String => "S",
            SortKeyType::Number => "N",
        }
    }

    /// A key of the table: this stored partition key, and this sort key.
    pub(crate) fn key(&self, stored: &str, sort_key: Value) -> Members {
        Members::from_iter([
            (self.partition_key_name().to_owned(), item::string(stored)),
            (self.sort_key_name().to_owned(), sort_key),
        ])
    }

    /// A key of the table under another partition key.
    pub(crate) fn with_partition_key(&self, key: &Members, text: &str) -> Members {
        let mut key = key.clone();
        key.insert(self.partition_key_name().to_owned(), item::string(text));
        key
    }

    /// The partition key of an item or of a key; `None` if it is absent or has another type.
    pub(crate) fn key_text<'a>(&self, item: &'a Members) -> Option<&'a str> {
        item::attribute(item, self.partition_key_name(), "S")
    }

    /// The sort key of a key, or of a stored item.
    pub(crate) fn sort_key(&self, key: &Members) -> Result<SortKey, Failure> {
        let text = self.sort_key_text(key)?.ok_or_else(|| Failure::validation(NO_KEY))?;
        self.parsed_sort_key(text)
    }

    /// The sort key of an item to put.
    pub(crate) fn sort_key_to_put(&self, item: &Members) -> Result<SortKey, Failure> {
        let name = self.sort_key_name();
        let Some(text) = self.sort_key_text(item)? else {
            let stored = item.get(name).and_then(Value::as_object);
            let why = match stored.and_then(|value| value.keys().next()) {
                None => format!("Missing the key {name} in the item"),
                Some(actual) => {
                    let expected = self.sort_key_letter();
                    format!("Type mismatch for key {name} expected: {expected} actual: {actual}")
                }
            };
            let why = format!("One or more parameter values were invalid: {why}");
            return Err(Failure::validation(why));
        };
        self.parsed_sort_key(text)
    }

    /// The text of the sort key; `None` if it is absent or has another type.
    fn sort_key_text<'a>(&self, key: &'a Members) -> Result<Option<&'a str>, Failure> {
        item::check_one_type(key.get(self.sort_key_name()))?;
        Ok(item::attribute(key, self.sort_key_name(), self.sort_key_letter()))
    }

    fn parsed_sort_key(&self, text: &str) -> Result<SortKey, Failure> {
        let name = self.sort_key_name();
        SortKey::parse(self.engine.config().sort_key_type, text).map_err(|error| {
            Failure::validation(if text.is_empty() {
                format!(
                    "One or more parameter values are not valid. The AttributeValue for a key \
                     attribute cannot contain an empty string value. Key: {name}"
                )
            } else if text.len() > MAX_SORT_KEY_BYTES {
                format!(
                    "One or more parameter values were invalid: Aggregated size of all range keys \
                     has exceeded the size limit of {MAX_SORT_KEY_BYTES} bytes"
                )
            } else {
                format!("One or more parameter values were invalid: the key {name}: {error}")
            })
        })
    }

    /// The lowest sort key that DynamoDB takes, or the highest.
    pub(crate) fn outermost_sort_key(&self, is_highest: bool) -> Value {
        match (self.engine.config().sort_key_type, is_highest) {
            (SortKeyType::String, false) => item::string("\0"),
            (SortKeyType::String, true) => item::string(
                &char::MAX.to_string().repeat(MAX_SORT_KEY_BYTES / char::MAX.len_utf8()),
            ),
            (SortKeyType::Number, is_highest) => {
                let sign = if is_highest { "" } else { "-" };
                item::number(format!("{sign}9.{}E+125", "9".repeat(37)))
            }
        }
    }

    /// The attributes of an item without its keys, in the crate's types. `None` if DynamoDB must
    /// judge them.
    pub(crate) fn attributes(&self, item: &Members) -> Option<Attributes> {
        let is_key = |name: &str| name == self.partition_key_name() || name == self.sort_key_name();
        let attributes = item.iter().filter(|(name, _)| !is_key(name));
        attributes.map(|(name, value)| Some((name.clone(), item::typed(value)?))).collect()
    }

    /// Whether a stored item counts as one of the key: on a shard whose stored key is not the key
    /// itself, only items with our logical key do.
    pub(crate) fn counts(&self, stored: &Members, key: &PartitionKey, shard: ShardNumber) -> bool {
        self.is_key_itself(shard) || item::attribute(stored, LOGICAL_KEY, "S") == Some(key.as_str())
    }

    /// Leaves the product's attributes out of an answer, and shows the client's key.
    pub(crate) fn strip(&self, item: &mut Members, key: &PartitionKey) {
        item.retain(|name, _| !item::is_ours(name));
        if let Some(stored) = item.get_mut(self.partition_key_name()) {
            *stored = item::string(key.as_str());
        }
    }

    /// Adds the `ConsumedCapacity` of these units to an answer, if the request asks for it.
    pub(crate) fn add_capacity(&self, answer: &mut Members, body: &Members, units: f64) {
        if item::text(body, "ReturnConsumedCapacity").is_some_and(|wanted| wanted != "NONE") {
            let capacity = json!({ "TableName": self.name, "CapacityUnits": units });
            answer.insert("ConsumedCapacity".to_owned(), capacity);
        }
    }

    /// An index, if it has the table's own partition key.
    pub(crate) async fn own_index(&self, index: &str) -> Result<Option<Arc<Index>>, Failure> {
        let known = || self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let lasts = |described: &Instant| described.elapsed() < DESCRIBED_FOR;
        if let Some((own, _)) = known().get(index).filter(|(_, described)| lasts(described)) {
            return Ok(own.clone());
        }
        let body = Members::from_iter([("TableName".to_owned(), Value::from(self.name.as_str()))]);
        let answer = repeated(&self.upstream, "DescribeTable", &body, CHECKED_AFTER).await?;
        let described = item::map(&answer.members(), "Table");
        let definitions = item::list(&described, "AttributeDefinitions");
        let lists = ["LocalSecondaryIndexes", "GlobalSecondaryIndexes"].into_iter();
        let all = lists.flat_map(|kind| item::list(&described, kind)).map(|described| {
            let name = described["IndexName"].as_str().unwrap_or_default();
            let own = Index::of(&described, &definitions, self.partition_key_name());
            (name.to_owned(), (own.map(Arc::new), Instant::now()))
        });
        let all: Indexes = all.collect();
        // If the index does not exist, DynamoDB says so.
        let own = all.get(index).and_then(|(own, _)| own.clone());
        *known() = all;
        Ok(own)
    }

    /// Has the indexes described again: one was made anew with other keys.
    pub(crate) fn forget_indexes(&self) {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn is_key_itself(&self, shard: ShardNumber) -> bool {
        self.engine.config().shard_keys.is_key_itself(shard)
    }

    /// The armed key of an item or of a key. `None` if no pattern matches it, or if DynamoDB refuses
    /// it.
    pub(crate) fn armed(
        &self,
        patterns: &Patterns,
        item: &Members,
    ) -> Result<Option<PartitionKey>, Failure> {
        item::check_one_type(item.get(self.partition_key_name()))?;
        self.key_text(item).map_or(Ok(None), |text| self.armed_text(patterns, text))
    }

    /// The armed key of a stored item, and its shard. `None` if the item is no armed key's.
    pub(crate) fn armed_shard(
        &self,
        patterns: &Patterns,
        stored: &Members,
    ) -> Option<(PartitionKey, ShardNumber)> {
        let text = self.key_text(stored)?;
        if let Some((key, shard)) = self.engine.config().shard_keys.parse(text)
            && shard != ShardNumber::FIRST
        {
            return patterns.matches(&key).then_some((key, shard));
        }
        Some((self.armed_text(patterns, text).ok()??, ShardNumber::FIRST))
    }

    /// The armed key of this text.
    pub(crate) fn armed_text(
        &self,
        patterns: &Patterns,
        text: &str,
    ) -> Result<Option<PartitionKey>, Failure> {
        if let Ok(key) = PartitionKey::new(text)
            && text.len() <= MAX_SHARDED_KEY_BYTES
            && !text.contains(SUFFIX_MARK)
        {
            return Ok(patterns.matches(&key).then_some(key));
        }
        let before = text.split(SUFFIX_MARK).next().unwrap_or_default();
        match PartitionKey::new(&before[..before.floor_char_boundary(MATCHED_BYTES)]) {
            Ok(key) if patterns.matches(&key) => Err(Failure::validation(format!(
                "One or more parameter values were invalid: an armed key of {} has at most \
                 {MAX_SHARDED_KEY_BYTES} bytes and no character U+001F (sharding-endpoint)",
                self.name
            ))),
            // DynamoDB judges it.
            Ok(_) | Err(_) => Ok(None),
        }
    }
}

/// Refuses a key that has more than its two parts.
pub(crate) fn check_is_key(key: &Members) -> Result<(), Failure> {
    if key.len() == 2 { Ok(()) } else { Err(Failure::validation(NO_KEY)) }
}

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
