//! A query of an armed key, and what it asks of one shard: the client's request under the stored
//! key of the shard, with what decides which copy is the newest.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use serde_json::Value;
use sharding::internal::KeySession;
use sharding::internal::protocol::names::LOGICAL_KEY;
use sharding::{Order, PartitionKey, ShardNumber};
use tokio::time::Instant;

use crate::expression::{self, Placeholders};
use crate::index::Index;
use crate::item;
use crate::position::Position;
use crate::read::{Projection, shard_key};
use crate::reply::{Failure, Members};
use crate::table::ServedTable;

/// A query of an armed key.
pub(crate) struct Query<'a> {
    pub(crate) table: &'a ServedTable,
    pub(crate) session: KeySession<'a>,
    /// The highest era of the copies that were read.
    pub(crate) era: AtomicU64,
    pub(crate) key: &'a PartitionKey,
    pub(crate) body: &'a Members,
    pub(crate) index: Option<&'a Index>,
    pub(crate) order: Order,
    pub(crate) start: Option<Position>,
    pub(crate) limit: Option<usize>,
    /// The key condition, before and after the client's placeholder for the partition key.
    pub(crate) condition: [&'a str; 2],
    pub(crate) has_filter: bool,
    /// Whether the filter names a key of the table, as that of a `Scan` may. DynamoDB refuses that in
    /// a query, so the shards are scanned.
    pub(crate) filters_keys: bool,
    /// When a page that has begun ends, so that the rest of the request is in time.
    pub(crate) page_ends: Instant,
}

/// What is asked of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The keys, and what decides which copy is the newest.
    Keys,
    /// The items as the client wants them, with its filter.
    Items,
}

impl Query<'_> {
    /// The request to one shard.
    pub(crate) fn request(
        &self,
        shard: ShardNumber,
        what: What,
    ) -> Result<(Members, Projection), Failure> {
        let stored = shard_key(&self.session, shard);
        let mut placeholders = Placeholders::of(self.body);
        let scans = self.filters_keys && what == What::Items;
        let condition = if scans {
            String::new()
        } else {
            let own = placeholders.value(item::string(&stored));
            self.condition.join(own.as_str())
        };
        let shown = self.shown(what, &mut placeholders);
        let of = (self.index, self.index.is_none_or(Index::shows_ours));
        let projection = Projection::in_index(self.table, of, shown.as_deref(), &mut placeholders)?;
        let mut body = Members::new();
        body.insert("TableName".to_owned(), Value::from(self.table.name.as_str()));
        let select = (what != What::Keys && self.select() != Some("COUNT")).then_some("Select");
        for name in ["IndexName", "ConsistentRead", "ScanIndexForward"].into_iter().chain(select) {
            body.extend(self.body.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        body.extend(projection.members.clone());
        let of_filter = item::text(self.body, "FilterExpression");
        if let Some(text) = of_filter.filter(|_| what == What::Items) {
            let key = self.table.partition_key_name();
            let is_elsewhere = scans && !self.table.is_key_itself(shard);
            let logical = |name: &str| (is_elsewhere && name == key).then_some(LOGICAL_KEY);
            let text = expression::renamed(text, &mut placeholders, logical);
            body.insert("FilterExpression".to_owned(), Value::from(text));
        }
        let text = |name: &str| item::text(&body, name).unwrap_or_default().to_owned();
        let (projected, filtered) = (text("ProjectionExpression"), text("FilterExpression"));
        let used = [condition.as_str(), projected.as_str(), filtered.as_str()];
        // The other expressions of the client use the rest. DynamoDB has no part in those here.
        let of_client = ["KeyConditionExpression", "FilterExpression", "ProjectionExpression"];
        let of_client = of_client.map(|name| item::text(self.body, name).unwrap_or_default());
        placeholders.into_body(&mut body, &of_client, &used);
        if !scans {
            body.insert("KeyConditionExpression".to_owned(), Value::from(condition));
        }
        body.insert("ReturnConsumedCapacity".to_owned(), Value::from("TOTAL"));
        Ok((body, projection))
    }

    pub(crate) fn select(&self) -> Option<&str> {
        item::text(self.body, "Select")
    }

    /// The projection without what the endpoint adds; `None` for all that there is.
    fn shown(&self, what: What, placeholders: &mut Placeholders) -> Option<String> {
        if what == What::Keys || self.select() == Some("COUNT") {
            return Some(placeholders.name(self.table.sort_key_name()));
        }
        item::text(self.body, "ProjectionExpression").map(str::to_owned)
    }

    /// How the copies of an item are read: as the index shows it, with what decides which copy is
    /// the newest.
    pub(crate) fn copies(&self, what: What) -> Result<Members, Failure> {
        let mut placeholders = Placeholders::of(self.body);
        let mut shown = self.shown(what, &mut placeholders);
        if let (None, Some(index)) = (&shown, self.index)
            && self.select() != Some("ALL_ATTRIBUTES")
            && let Some(included) = &index.included
        {
            let names = [self.table.partition_key_name(), self.table.sort_key_name()]
                .into_iter()
                .chain(index.keys.iter().map(|(name, _)| name.as_str()))
                .chain(included.iter().map(String::as_str).filter(|name| !item::is_ours(name)));
            let names: BTreeSet<String> = names.map(|name| placeholders.name(name)).collect();
            shown = Some(names.into_iter().collect::<Vec<_>>().join(", "));
        }
        let (of, shown) = ((self.index, true), shown.as_deref());
        Ok(Projection::in_index(self.table, of, shown, &mut placeholders)?.whole)
    }

    /// Where a shard continues after a position.
    pub(crate) fn start(&self, shard: ShardNumber, after: &Position) -> Value {
        let stored = shard_key(&self.session, shard);
        Value::Object(after.key(self.table, self.index, &stored))
    }
}
