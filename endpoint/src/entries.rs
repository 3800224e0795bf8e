//! `Scan`, and `Query` on an index with another partition key: DynamoDB's own pages, in which entries
//! of armed keys are checked. Of an item with several copies, one entry stays.

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use sharding::internal::Patterns;
use sharding::internal::protocol::layout::{Layout, Places};
use sharding::internal::protocol::names::{LOGICAL_KEY, VERSION};
use sharding::internal::protocol::view::View;
use sharding::{PartitionKey, ShardNumber};
use tokio::time::Instant;

use crate::expression::{self, Placeholders};
use crate::item::{self, check_members};
use crate::page::{objects, page_reply};
use crate::read::{Projection, copies, highest_era, newest, shard_key};
use crate::reply::{Failure, Members, Reply};
use crate::table::ServedTable;
use crate::upstream::{Upstream, repeated};

/// The entries that are checked at once.
const CONCURRENCY: usize = 32;
/// The largest number of items of a transaction. (DynamoDB API reference, `TransactGetItems`.)
const MAX_GETS: usize = 100;

/// A page of a scan, or of a query on an index with another partition key, without the entries of
/// the armed keys that are left out.
pub(crate) async fn page(
    table: &ServedTable,
    patterns: &Patterns,
    (operation, body): (&str, &Members),
    left_out: &(dyn Fn(&PartitionKey) -> bool + Sync),
    deadline: Instant,
) -> Result<Reply, Failure> {
    check_members(operation, body)?;
    let mut request = body.clone();
    let mut placeholders = Placeholders::of(body);
    // To be checked, an entry must be seen.
    let text = if item::text(body, "Select") == Some("COUNT") {
        request.remove("Select");
        Some(placeholders.name(table.sort_key_name()))
    } else {
        item::text(body, "ProjectionExpression").map(str::to_owned)
    };
    // An index shows only what it has.
    let is_index = body.contains_key("IndexName");
    if is_index && text.is_some() {
        return Err(Failure::unsupported("a projection, or COUNT, of an index"));
    }
    let filter = item::text(body, "FilterExpression").unwrap_or_default();
    expression::check(body, "FilterExpression", &placeholders)?;
    let named = expression::attributes(filter, &placeholders);
    let names_key = named.contains(&table.partition_key_name());
    if is_index && names_key {
        return Err(Failure::unsupported("a filter of an index that names the partition key"));
    }
    if names_key {
        let filter = placed(table, filter, &mut placeholders);
        request.insert("FilterExpression".to_owned(), Value::from(filter));
        let names = Value::Object(placeholders.names.clone());
        request.insert("ExpressionAttributeNames".to_owned(), names);
    }
    let projection = Projection::of(table, (None, true), text.as_deref(), &mut placeholders)?;
    request.extend(projection.members.clone());
    let lasts = || patterns.last();
    let mut answer = repeated(&table.upstream, operation, &request, &lasts).await?.members();
    let (is_filtered, projection) = (body.contains_key("FilterExpression"), &projection);
    let checks = Checks { table, patterns, left_out, is_index, is_filtered, projection, deadline };
    let found = objects(answer.remove("Items"));
    let scanned_here = found.len();
    let shown: Vec<_> = found.into_iter().map(|entry| checks.shown(entry).boxed()).collect();
    let shown: Vec<_> = stream::iter(shown).buffered(CONCURRENCY).try_collect().await?;
    let shown: Vec<Members> = shown.into_iter().flatten().collect();
    let hidden = scanned_here - shown.len();
    Ok(page_reply(body, answer, shown, hidden))
}

/// How the entries of a page are checked.
struct Checks<'a> {
    table: &'a ServedTable,
    patterns: &'a Patterns,
    left_out: &'a (dyn Fn(&PartitionKey) -> bool + Sync),
    is_index: bool,
    is_filtered: bool,
    projection: &'a Projection,
    deadline: Instant,
}

impl Checks<'_> {
    /// An entry as the client gets it; `None` if it gets it elsewhere, or not at all.
    async fn shown(&self, mut entry: Members) -> Result<Option<Members>, Failure> {
        let Some((key, shard)) = self.table.armed_shard(self.patterns, &entry) else {
            entry.retain(|name, _| !self.projection.hides(name));
            return Ok(Some(entry));
        };
        if (self.left_out)(&key) {
            return Ok(None);
        }
        Ok(self.kept(entry, &key, shard).await?.map(|mut entry| {
            self.projection.show(self.table, &mut entry, &key);
            entry
        }))
    }

    /// The item of an armed key that is shown at this entry. An entry of an index, or behind a
    /// filter, stays if it is the newest copy. A scan shows an item at the first of its old places
    /// that has a copy, because nobody writes there.
    async fn kept(
        &self,
        entry: Members,
        key: &PartitionKey,
        shard: ShardNumber,
    ) -> Result<Option<Members>, Failure> {
        let (as_it_is, table) = (self.is_index || self.is_filtered, self.table);
        let sort_key = table.sort_key(&entry)?;
        // An index may not have our attributes. Then the copies themselves tell.
        if !as_it_is && !table.counts(&entry, key, shard) {
            return Ok(None);
        }
        let session = table.engine.job(key, self.deadline);
        let view = session.view().await?;
        let places = session.places(&sort_key, &view);
        let is_seen = entry.contains_key(VERSION);
        match Standing::of(&entry, is_seen || !self.is_index, shard, (&places, &view)) {
            Standing::Hidden => return Ok(None),
            Standing::Newest if as_it_is || places.old.is_empty() => return Ok(Some(entry)),
            Standing::Newest | Standing::Unknown => {}
        }
        let how = &self.projection.whole;
        let found = copies(table, &session, (key, &sort_key), &places, how).await?;
        let once_open = View { layout: once_open(&view.layout), asked_at: view.asked_at };
        let later = session.places(&sort_key, &once_open);
        let first_old =
            found.iter().map(|(shard, _)| *shard).filter(|shard| later.old.contains(shard)).min();
        let Some((at, newest)) = newest(found) else { return Ok(None) };
        if item::is_tombstone(&newest) {
            return Ok(None);
        }
        if as_it_is {
            let is_same =
                at == shard && (!is_seen || item::version(&newest) == item::version(&entry));
            return Ok(is_same.then_some(entry));
        }
        Ok((first_old.unwrap_or(later.home) == shard).then_some(newest))
    }
}

/// A filter that names the table's partition key, for items at every shard: on a shard whose stored
/// key is not the client's, the key is our logical key.
fn placed(table: &ServedTable, text: &str, placeholders: &mut Placeholders) -> String {
    let new_name = |name: &str, _| (name == table.partition_key_name()).then_some(LOGICAL_KEY);
    let at_further_shards = expression::renamed(text, placeholders, new_name);
    let (first, further) = (placeholders.absent(LOGICAL_KEY), placeholders.exists(LOGICAL_KEY));
    let (text, renamed) = (expression::grouped(text), expression::grouped(&at_further_shards));
    format!("({first} AND {text}) OR ({further} AND {renamed})")
}

/// The layout once a closed key is open. Its present home is an old place then, and the next one may
/// have copies already: a view of the closed key lasts a little longer.
fn once_open(layout: &Layout) -> Layout {
    let number_of_shards = layout.closing.unwrap_or(layout.number_of_shards);
    Layout { number_of_shards, closing: None, ..layout.clone() }
}

/// What an entry by itself says of the copy that it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is no copy, or a deleted item.
    Hidden,
    /// It is the item's only copy, or the newest of several: at home, of the view's era, and no later
    /// era has begun.
    Newest,
    /// Read all copies.
    Unknown,
}

impl Standing {
    /// Of an entry that shows our attributes, or of one of an index that does not have them.
    pub(crate) fn of(
        entry: &Members,
        is_seen: bool,
        shard: ShardNumber,
        (places, view): (&Places, &View),
    ) -> Self {
        if !places.contains(shard) {
            return Self::Hidden;
        }
        // While a view of a closed key lasts, the next era may have copies elsewhere.
        let is_at_home = view.layout.closing.is_none()
            && shard == places.home
            && item::version(entry).era() == view.layout.era;
        if !is_seen || !(places.old.is_empty() || is_at_home) {
            return Self::Unknown;
        }
        if item::is_tombstone(entry) { Self::Hidden } else { Self::Newest }
    }
}

/// `TransactGetItems`, of which some items are those of `armed` keys: such an item is read at home,
/// and at the place of its newest copy as it was read before.
pub(crate) async fn transact_get(
    upstream: &Upstream,
    patterns: &[Patterns],
    armed: Vec<Option<(&ServedTable, PartitionKey)>>,
    body: &Members,
    deadline: Instant,
) -> Result<Reply, Failure> {
    let (mut gets, mut parts) = (Vec::new(), Vec::new());
    for (wanted, armed) in item::list(body, "TransactItems").into_iter().zip(armed) {
        let Some((table, partition_key)) = armed else {
            gets.push(wanted);
            parts.push(None);
            continue;
        };
        let get = wanted.get("Get").and_then(Value::as_object).cloned().unwrap_or_default();
        let key = item::map(&get, "Key");
        let sort_key = table.sort_key(&key)?;
        let text = item::text(&get, "ProjectionExpression");
        let projection = Projection::of(table, (None, true), text, &mut Placeholders::of(&get))?;
        let session = table.engine.job(&partition_key, deadline);
        let began = table.engine.now();
        let view = session.view().await?;
        let places = session.places(&sort_key, &view);
        let mut at = vec![places.home];
        if !places.old.is_empty() {
            let of = (&partition_key, &sort_key);
            let found = copies(table, &session, of, &places, &Members::new()).await?;
            at.extend(newest(found).map(|(shard, _)| shard).filter(|it| *it != places.home));
        }
        for shard in &at {
            let mut one = get.clone();
            let of_shard = table.with_partition_key(&key, &shard_key(&session, *shard));
            one.insert("Key".to_owned(), Value::Object(of_shard));
            one.extend(projection.members.clone());
            gets.push(json!({ "Get": one }));
        }
        drop(session);
        parts.push(Some((table, partition_key, at, projection, began, view)));
    }
    // An armed item counts two from the first day, so that nothing is refused once it has grown.
    if parts.len() + parts.iter().flatten().count() > MAX_GETS {
        return Err(Failure::unsupported("a transaction of more than 100 copies of items"));
    }
    let mut request = body.clone();
    request.insert("TransactItems".to_owned(), Value::Array(gets));
    let gets_of_parts: Vec<usize> =
        parts.iter().map(|part| part.as_ref().map_or(1, |(_, _, at, ..)| at.len())).collect();
    let lasts = || patterns.iter().all(Patterns::last);
    let reply = repeated(upstream, "TransactGetItems", &request, &lasts).await;
    let mut answer = reply.map_err(|failure| failure.with_reasons_of(&gets_of_parts))?.members();
    let mut responses = item::list(&answer, "Responses").into_iter();
    let mut shown = Vec::new();
    for part in parts {
        let Some((table, key, at, projection, began, view)) = part else {
            shown.extend(responses.next());
            continue;
        };
        let found: Vec<(ShardNumber, Members)> = at
            .into_iter()
            .zip(responses.by_ref())
            .filter_map(|(shard, response)| {
                let stored = response.get("Item")?.as_object()?.clone();
                table.counts(&stored, &key, shard).then_some((shard, stored))
            })
            .collect();
        let era = highest_era(found.iter().map(|(_, stored)| stored));
        if !table.engine.job(&key, deadline).is_correct(began, era, &view).await? {
            return Err(Failure::throttled("sharding-endpoint: a key's width changed meanwhile"));
        }
        let item = newest(found).map(|(_, stored)| stored);
        let item = item.filter(|stored| !item::is_tombstone(stored)).map(|mut item| {
            projection.show(table, &mut item, &key);
            json!({ "Item": item })
        });
        shown.push(item.unwrap_or_else(|| json!({})));
    }
    answer.insert("Responses".to_owned(), Value::Array(shown));
    Ok(Reply::ok(answer))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use sharding::ShardCount;
    use sharding::internal::protocol::layout::FIRST_ERA;
    use sharding::internal::protocol::view::Moment;

    use super::*;

    #[test]
    fn while_a_key_closes_its_home_is_already_an_old_place() {
        let shard = |number| ShardNumber::new(number).expect("a shard");
        let home = |width: ShardCount| shard(if width == ShardCount::ONE { 1 } else { 11 });
        let closing = ShardCount::new(12);
        let layout = Layout { closing, ..Layout::unlisted(ShardCount::ONE) };
        let old = BTreeSet::from([shard(1)]);
        assert_eq!(once_open(&layout).places(home), Places { home: shard(11), old });
    }

    #[test]
    fn home_is_not_known_to_be_the_newest_while_a_key_closes() {
        let version = item::number("1001700000000000000000000000");
        let entry = Members::from_iter([(VERSION.to_owned(), version)]);
        let old = ShardNumber::new(3).expect("a shard");
        let places = Places { home: ShardNumber::FIRST, old: BTreeSet::from([old]) };
        let standing = |closing| {
            let layout = Layout { closing, ..Layout::unlisted(ShardCount::ONE) };
            assert_eq!(item::version(&entry).era(), FIRST_ERA);
            let asked_at = Moment { monotonic: Duration::ZERO, wall: Duration::ZERO };
            Standing::of(&entry, true, ShardNumber::FIRST, (&places, &View { layout, asked_at }))
        };
        assert_eq!(standing(None), Standing::Newest);
        assert_eq!(standing(ShardCount::new(4)), Standing::Unknown);
    }
}
