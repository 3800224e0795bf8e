//! Reads of single items of armed keys: the newest copy of all its places.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sharding::internal::KeyJob;
use sharding::internal::protocol::layout::Places;
use sharding::internal::protocol::names::{DELETED, LOGICAL_KEY, VERSION};
use sharding::{PartitionKey, ShardNumber, SortKey};
use tokio::time::{Instant, sleep};

use crate::expression::{self, Placeholders};
use crate::item::{self, check_members, object};
use crate::reply::{Failure, Members, Reply};
use crate::table::{Index, ServedTable, check_is_key};
use crate::upstream::{CHECKED_AFTER, READ_PAUSE, THROTTLED_FOR, repeated};

/// A projection that also has what decides which copy is the newest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Projection {
    /// `ProjectionExpression`, and `ExpressionAttributeNames` with those of the client's other
    /// expressions; empty for all attributes.
    pub(crate) members: Members,
    /// The same for a request that has no other expression.
    pub(crate) whole: Members,
    /// The keys that the client did not ask for.
    hidden: BTreeSet<String>,
}

impl Projection {
    /// The client's projection with ours, of the table or of what an index shows: with the keys, and
    /// with our attributes if the index has them. The names are those of its other expressions, too.
    pub(crate) fn of(
        table: &ServedTable,
        (index, has_ours): (Option<&Index>, bool),
        text: Option<&str>,
        placeholders: &mut Placeholders,
    ) -> Result<Self, Failure> {
        let Some(text) = text else { return Ok(Self::default()) };
        let named: Vec<String> =
            expression::attributes(text, placeholders).into_iter().map(str::to_owned).collect();
        item::check_names(named.iter().map(String::as_str))?;
        let of_index = index.into_iter().flat_map(|index| &index.keys);
        let keys: Vec<&str> = [table.partition_key_name(), table.sort_key_name()]
            .into_iter()
            .chain(of_index.map(|(name, _)| name.as_str()))
            .collect();
        if expression::names_a_part(text, &keys, placeholders) {
            return Err(Failure::unsupported("a part of a key in a projection"));
        }
        let is_added = |key: &&str| !named.iter().any(|name| name == key);
        let hidden: BTreeSet<String> =
            keys.into_iter().filter(is_added).map(str::to_owned).collect();
        let ours: &[&str] = if has_ours { &[VERSION, DELETED, LOGICAL_KEY] } else { &[] };
        let added = hidden.iter().map(String::as_str).chain(ours.iter().copied());
        let added: Vec<String> = added.map(|name| placeholders.name(name)).collect();
        let text = [text.to_owned()].into_iter().chain(added).collect::<Vec<_>>().join(", ");
        let text = Value::from(text);
        let mut members = Members::from_iter([("ProjectionExpression".to_owned(), text)]);
        let (used, mut whole) = (expression::placeholders(&members), members.clone());
        let all = placeholders.names.clone();
        let own = all.clone().into_iter().filter(|(name, _)| used.contains(name)).collect();
        whole.insert("ExpressionAttributeNames".to_owned(), Value::Object(own));
        members.insert("ExpressionAttributeNames".to_owned(), Value::Object(all));
        Ok(Self { members, whole, hidden })
    }

    /// Whether it hides an attribute that only this endpoint asked for.
    pub(crate) fn hides(&self, name: &str) -> bool {
        self.hidden.contains(name)
    }

    /// The item as the client gets it.
    pub(crate) fn show(&self, table: &ServedTable, item: &mut Members, key: &PartitionKey) {
        table.strip(item, key);
        item.retain(|name, _| !self.hides(name));
    }
}

/// The partition key that a shard stores. An armed key is short enough for every shard.
pub(crate) fn shard_key(session: &KeyJob<'_>, shard: ShardNumber) -> String {
    session.shard_key(shard).unwrap_or_default()
}

/// The copies of an item at its places that count.
pub(crate) async fn copies(
    table: &ServedTable,
    session: &KeyJob<'_>,
    (key, sort_key): (&PartitionKey, &SortKey),
    places: &Places,
    how: &Members,
) -> Result<Vec<(ShardNumber, Members)>, Failure> {
    let stored_keys = places.all().into_iter().map(|shard| (shard, shard_key(session, shard)));
    let stored_keys: Vec<_> = stored_keys.collect();
    let keys = stored_keys.iter().map(|(_, key)| table.key(key, item::sort_key_value(sort_key)));
    let mut of_table = how.clone();
    of_table.entry("ConsistentRead").or_insert(Value::Bool(true));
    of_table.insert("Keys".to_owned(), keys.map(Value::Object).collect());
    let mut body = Members::new();
    body.insert("RequestItems".to_owned(), json!({ &table.name: of_table }));
    let (mut found, until) = (Vec::new(), Instant::now() + THROTTLED_FOR);
    loop {
        let reply = repeated(&table.upstream, "BatchGetItem", &body, CHECKED_AFTER).await?;
        let mut answer = reply.members();
        let items = answer.get_mut("Responses").and_then(|it| it.get_mut(&table.name));
        for stored in items.and_then(Value::as_array_mut).into_iter().flatten() {
            let Value::Object(stored) = stored.take() else { continue };
            let stored_key = table.key_text(&stored);
            let shard = stored_keys.iter().find(|(_, key)| Some(key.as_str()) == stored_key);
            let Some((shard, _)) = shard else { continue };
            if table.counts(&stored, key, *shard) {
                found.push((*shard, stored));
            }
        }
        let missing = answer.remove("UnprocessedKeys");
        let missing = missing.filter(|it| it.as_object().is_some_and(|it| !it.is_empty()));
        let Some(missing) = missing else { return Ok(found) };
        if Instant::now() + READ_PAUSE > until {
            return Err(Failure::throttled("sharding-endpoint: a copy of the item was not read"));
        }
        sleep(READ_PAUSE).await;
        body.insert("RequestItems".to_owned(), missing);
    }
}

/// The newest of the copies. Of equal ones, a drain has made one.
pub(crate) fn newest(copies: Vec<(ShardNumber, Members)>) -> Option<(ShardNumber, Members)> {
    copies.into_iter().max_by_key(|(_, stored)| item::version(stored))
}

pub(crate) fn highest_era<'a>(stored: impl IntoIterator<Item = &'a Members>) -> u64 {
    stored.into_iter().map(|it| item::version(it).era()).max().unwrap_or_default()
}

/// `GetItem` of an armed key.
pub(crate) async fn get(
    table: &ServedTable,
    key: &PartitionKey,
    body: &Members,
    deadline: Instant,
) -> Result<Reply, Failure> {
    check_members("GetItem", body)?;
    let wanted = item::map(body, "Key");
    check_is_key(&wanted)?;
    let sort_key = table.sort_key(&wanted)?;
    let text = item::text(body, "ProjectionExpression");
    let projection = Projection::of(table, (None, true), text, &mut Placeholders::of(body))?;
    let is_consistent = body.get("ConsistentRead").cloned().unwrap_or(Value::Bool(false));
    let mut how = Members::from_iter([("ConsistentRead".to_owned(), is_consistent)]);
    // What the client names and does not use, DynamoDB refuses.
    let names = body.get("ExpressionAttributeNames").cloned();
    how.extend(names.map(|names| ("ExpressionAttributeNames".to_owned(), names)));
    how.extend(projection.members.clone());
    let session = table.engine.job(key, deadline);
    let began = table.engine.now();
    loop {
        let view = session.view().await?;
        let places = session.places(&sort_key, &view);
        let mut answer;
        let (found, era) = if places.old.is_empty() {
            let one = table.with_partition_key(&wanted, &shard_key(&session, places.home));
            let mut request = body.clone();
            request.extend(how.clone());
            request.insert("Key".to_owned(), Value::Object(one));
            let reply = repeated(&table.upstream, "GetItem", &request, CHECKED_AFTER).await?;
            answer = reply.members();
            let item = answer.remove("Item").and_then(object);
            let item = item.filter(|item| table.counts(item, key, places.home));
            let era = highest_era(item.as_ref());
            (item, era)
        } else {
            let copies = copies(table, &session, (key, &sort_key), &places, &how).await?;
            let era = highest_era(copies.iter().map(|(_, stored)| stored));
            answer = Members::new();
            table.add_capacity(&mut answer, body, places.all().len() as f64);
            (newest(copies).map(|(_, stored)| stored), era)
        };
        if !session.is_correct(began, era, &view).await? {
            continue;
        }
        session.end().await;
        if let Some(mut item) = found.filter(|item| !item::is_tombstone(item)) {
            projection.show(table, &mut item, key);
            answer.insert("Item".to_owned(), Value::Object(item));
        }
        return Ok(Reply::ok(answer));
    }
}
