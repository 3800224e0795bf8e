//! Direct access to the metadata table, to simulate other programs, dead actors and lost items.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use sharding::internal::ShardKeys;
use sharding::internal::protocol::directory::{Division, KeyDigest, PAGES};
use sharding::{PartitionKey, Placement, SortKeyType, TableConfig, Writes};

/// The key of the item with the table's mode.
pub const TABLE_ITEM: &str = "_sharding:table";

/// An item of the metadata table, including its key.
pub type Stored = HashMap<String, AttributeValue>;

const TABLE: &str = "items-metadata";
const KEY: &str = "partition_key";

/// The division of a new directory in tests. A process would draw another secret.
pub const DIVISION: Division = Division { pages: PAGES, seed: 7 };

/// The table item of a table that was empty, before the directory is made.
pub fn table_item(config: &TableConfig) -> [(&'static str, AttributeValue); 9] {
    let writes = Writes::NAMES.iter().find(|(_, writes)| *writes == config.writes());
    let placement = Placement::NAMES.iter().find(|(_, it)| *it == config.placement);
    let (writes, placement) = (writes.expect("a name").0, placement.expect("a name").0);
    assert_eq!(config.shard_keys, ShardKeys::KeyFirst);
    let kind = if config.sort_key_type == SortKeyType::Number { "N" } else { "S" };
    let keys = format!("{} S, {} {kind}", config.partition_key_name, config.sort_key_name);
    [
        ("writes", text(writes)),
        ("protocol", number(4)),
        ("layout", text("key first")),
        ("placement", text(placement)),
        ("keys", text(&keys)),
        ("armed", AttributeValue::M(HashMap::from([("*".to_owned(), number(0))]))),
        ("pages", number(u64::from(DIVISION.pages))),
        ("seed", number(DIVISION.seed)),
        ("copies", number(1)),
    ]
}

/// Reads an item.
pub async fn read(client: &Client, key: &str) -> Option<Stored> {
    let get = client.get_item().table_name(TABLE).key(KEY, text(key)).consistent_read(true);
    get.send().await.expect("a response").item
}

/// Stores these attributes as the item of a key, unconditionally.
pub async fn store<const N: usize>(
    client: &Client,
    key: &str,
    attributes: [(&str, AttributeValue); N],
) {
    let mut item = Stored::from(attributes.map(|(name, value)| (name.to_owned(), value)));
    item.insert(KEY.to_owned(), text(key));
    put_back(client, item).await;
}

/// Stores an item as it was read before.
pub async fn put_back(client: &Client, item: Stored) {
    client.put_item().table_name(TABLE).set_item(Some(item)).send().await.expect("stored");
}

/// Sets attributes of a metadata item, and keeps the others.
pub async fn set<const N: usize>(
    client: &Client,
    key: &str,
    attributes: [(&str, AttributeValue); N],
) {
    let mut item = read(client, key).await.unwrap_or_default();
    item.insert(KEY.to_owned(), text(key));
    item.extend(attributes.map(|(name, value)| (name.to_owned(), value)));
    put_back(client, item).await;
}

/// Removes an attribute of a metadata item.
pub async fn remove(client: &Client, key: &str, attribute: &str) {
    let update = client.update_item().table_name(TABLE).key(KEY, text(key));
    let update = update.update_expression("REMOVE #a").expression_attribute_names("#a", attribute);
    update.send().await.expect("removed");
}

/// Deletes an item, to simulate its loss.
pub async fn lose(client: &Client, key: &str) {
    let delete = client.delete_item().table_name(TABLE).key(KEY, text(key));
    delete.send().await.expect("deleted");
}

/// The key of a copy of a page of a new directory.
pub fn page_copy(page: u32, copy: u32) -> String {
    copy_of(DIVISION, page, copy)
}

fn copy_of(Division { pages, .. }: Division, page: u32, copy: u32) -> String {
    format!("_sharding:page:{pages}:{page}:{copy}")
}

fn digest(key: &str) -> KeyDigest {
    KeyDigest::of(&PartitionKey::new(key).expect("a key"))
}

/// The key of a copy of the page that lists a logical key, in a new directory.
pub fn page_key(key: &str, copy: u32) -> String {
    page_key_in(DIVISION, key, copy)
}

/// As [`page_key`], in another directory.
pub fn page_key_in(division: Division, key: &str, copy: u32) -> String {
    copy_of(division, division.page_of(digest(key)), copy)
}

/// As [`page_key`], in the directory that the table item describes.
pub async fn stored_page_key(client: &Client, key: &str, copy: u32) -> String {
    let table = read(client, TABLE_ITEM).await.expect("a table item");
    let pages = u32::try_from(number_of(&table, "pages")).expect("a small number");
    page_key_in(Division { pages, seed: number_of(&table, "seed") }, key, copy)
}

/// The name of a logical key's entry in its page.
pub fn entry_name(key: &str) -> String {
    format!("key:{}", digest(key))
}

/// A logical key's entry in a copy of its page.
pub async fn entry(client: &Client, key: &str, copy: u32) -> Option<String> {
    let page = read(client, &page_key(key, copy)).await?;
    page.get(&entry_name(key))?.as_s().ok().cloned()
}

/// A number in DynamoDB's format.
pub fn number(n: u64) -> AttributeValue {
    AttributeValue::N(n.to_string())
}

/// A string in DynamoDB's format.
pub fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// A numeric attribute of an item.
pub fn number_of(item: &Stored, name: &str) -> u64 {
    let text = item.get(name).and_then(|value| value.as_n().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{name}: {item:?}"))
}
