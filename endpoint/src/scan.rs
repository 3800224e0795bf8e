//! `Scan` of the table. First come the keys that had several shards when it began, each in the order
//! of the sort key, as a query reads them. Then come DynamoDB's own pages without those keys.

use serde_json::{Value, json};
use sharding::PartitionKey;
use sharding::internal::Patterns;
use tokio::time::Instant;

use crate::entries::{self, MEMBERS, armed};
use crate::expression::Placeholders;
use crate::grown::Grown;
use crate::item;
use crate::query::{PAGE_MARGIN, PartOf, UNLIMITED, consumed, objects, query};
use crate::reply::{Failure, Members, Reply};
use crate::table::{SEPARATOR, ServedTable};
use crate::upstream::Upstream;
use crate::write::check_members;

/// The bytes at which a page asks for no more. (DynamoDB developer guide, "Scan".)
const PAGE_BYTES: usize = 1_024 * 1_024;

/// Where a scan goes on.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    /// The epoch second at which it began. 0 if no key comes before DynamoDB's own pages.
    began: u64,
    part: Part,
    /// The key of an item, as it is stored or as the client knows it.
    key: Members,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Among the keys that had several shards.
    Grown,
    /// In DynamoDB's own pages.
    Native,
}

impl Place {
    /// A `LastEvaluatedKey`, or any key that the client makes. The first three parts of a place are
    /// the partition key, the letter of the part, and the time.
    fn of(table: &ServedTable, start: &Members) -> Self {
        let text = start.get(table.partition_key_name()).and_then(|it| it.get("S")?.as_str());
        let place = text.and_then(|text| {
            let (stored, tail) = text.rsplit_once(SEPARATOR)?;
            let part = match tail.get(..1)? {
                "g" => Part::Grown,
                "n" => Part::Native,
                _ => return None,
            };
            let key = with_partition_key(table, start, stored);
            Some(Self { began: tail[1..].parse().ok()?, part, key })
        });
        place.unwrap_or_else(|| Self { began: 0, part: Part::Native, key: start.clone() })
    }

    fn last_evaluated(&self, table: &ServedTable) -> Members {
        // A key of another program may look like a place.
        if self.began == 0 && Self::of(table, &self.key).key == self.key {
            return self.key.clone();
        }
        let letter = match self.part {
            Part::Grown => 'g',
            Part::Native => 'n',
        };
        let text = format!("{}{SEPARATOR}{letter}{}", self.partition_key(table), self.began);
        with_partition_key(table, &self.key, &text)
    }

    fn partition_key(&self, table: &ServedTable) -> &str {
        let key = self.key.get(table.partition_key_name()).and_then(|it| it.get("S"));
        key.and_then(Value::as_str).unwrap_or_default()
    }
}

fn with_partition_key(table: &ServedTable, key: &Members, text: &str) -> Members {
    let mut key = key.clone();
    key.insert(table.partition_key_name().to_owned(), item::string(text));
    key
}

/// A page of a scan.
pub(crate) async fn page(
    (table, upstream): (&ServedTable, &Upstream),
    patterns: &Patterns,
    body: &Members,
    deadline: Instant,
) -> Result<Reply, Failure> {
    check_members("Scan", body, &MEMBERS)?;
    let limit = body.get("Limit").filter(|limit| !limit.is_null());
    let is_valid = limit.is_none_or(|limit| limit.as_u64().is_some_and(|limit| limit > 0));
    // The parts of a parallel scan may begin at different times. An index has its own order.
    let is_native =
        ["IndexName", "Segment", "TotalSegments"].iter().any(|it| body.contains_key(*it));
    if is_native || !is_valid {
        return entries::page((table, upstream), patterns, ("Scan", body), &|_| false, deadline)
            .await;
    }
    let start = body.get("ExclusiveStartKey").and_then(Value::as_object);
    let place = start.map(|start| Place::of(table, start));
    let began = place.as_ref().map(|place| place.began);
    let grown = table.grown.get(&table.engine, began, deadline).await?;
    let began = began.unwrap_or(grown.at);
    let limit = limit.and_then(Value::as_u64).unwrap_or(UNLIMITED as u64);
    let scan = Scan { table, upstream, patterns, body, grown: &grown, began, limit, deadline };
    let mut page = Page::default();
    let native = match place {
        Some(Place { part: Part::Native, key, .. }) => Some(key),
        place => {
            if let Some(next) = scan.of_grown(&mut page, place.as_ref()).await? {
                return Ok(scan.reply(page, Some(&next)));
            }
            None
        }
    };
    let next = scan.of_native(&mut page, native).await?;
    Ok(scan.reply(page, next.as_ref()))
}

/// What a page has so far.
#[derive(Debug, Default)]
struct Page {
    items: Vec<Members>,
    count: u64,
    scanned: u64,
    bytes: usize,
    /// `ConsumedCapacity` as DynamoDB said it, and the sum of its units.
    capacity: Option<Value>,
    units: f64,
    requests: u32,
}

impl Page {
    /// Adds the answer of a part, and returns its `LastEvaluatedKey`.
    fn add(&mut self, reply: &Reply) -> Option<Members> {
        self.bytes += reply.body.len();
        self.requests += 1;
        let mut answer = reply.members();
        let count = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
        self.count += count("Count");
        self.scanned += count("ScannedCount");
        self.units += consumed(&answer);
        self.capacity = answer.remove("ConsumedCapacity");
        self.items.extend(objects(answer.remove("Items")));
        let next = answer.remove("LastEvaluatedKey");
        next.and_then(crate::query::object)
    }
}

/// A request for a page.
struct Scan<'a> {
    table: &'a ServedTable,
    upstream: &'a Upstream,
    patterns: &'a Patterns,
    body: &'a Members,
    grown: &'a Grown,
    began: u64,
    limit: u64,
    deadline: Instant,
}

impl Scan<'_> {
    fn is_full(&self, page: &Page) -> bool {
        page.scanned >= self.limit
            || page.bytes >= PAGE_BYTES
            || Instant::now() >= self.deadline - PAGE_MARGIN
    }

    fn place(&self, part: Part, key: Members) -> Place {
        Place { began: self.began, part, key }
    }

    /// The end of all items under a stored key.
    fn end_of(&self, stored: &str) -> Members {
        let mut key = Members::new();
        key.insert(self.table.partition_key_name().to_owned(), item::string(stored));
        let highest = item::outermost_sort_key(self.table, true);
        key.insert(self.table.sort_key_name().to_owned(), highest);
        key
    }

    fn request(&self, page: &Page, start: Option<Members>) -> Members {
        let mut body = self.body.clone();
        body.remove("ExclusiveStartKey");
        body.extend(start.map(|start| ("ExclusiveStartKey".to_owned(), Value::Object(start))));
        if body.contains_key("Limit") {
            body.insert("Limit".to_owned(), Value::from(self.limit - page.scanned));
        }
        body
    }

    /// The keys that had several shards when the scan began. Returns where it goes on among them.
    async fn of_grown(
        &self,
        page: &mut Page,
        place: Option<&Place>,
    ) -> Result<Option<Place>, Failure> {
        let from = place.map(|place| PartitionKey::new(place.partition_key(self.table)));
        let from = from.transpose().map_err(|error| {
            Failure::validation(format!("The provided starting key is invalid: {error}"))
        })?;
        for key in self.grown.before(self.began, from.as_ref()) {
            let start = place.filter(|_| from.as_ref() == Some(key)).map(|place| place.key.clone());
            let mut body = self.request(page, start);
            let mut placeholders = Placeholders::of(self.body);
            let name = placeholders.name(self.table.partition_key_name());
            let value = placeholders.value(item::string(key.as_str()));
            body.insert("ExpressionAttributeNames".to_owned(), Value::Object(placeholders.names));
            body.insert("ExpressionAttributeValues".to_owned(), Value::Object(placeholders.values));
            let condition = format!("{name} = {value}");
            body.insert("KeyConditionExpression".to_owned(), Value::from(condition));
            let of = (self.table, self.upstream);
            let reply = query(of, None, (key, PartOf::Scan), &body, self.deadline).await?;
            let next = page.add(&reply);
            let next = next.or_else(|| self.is_full(page).then(|| self.end_of(key.as_str())));
            if let Some(next) = next {
                return Ok(Some(self.place(Part::Grown, next)));
            }
        }
        Ok(None)
    }

    /// DynamoDB's own pages. Returns where the scan goes on.
    async fn of_native(
        &self,
        page: &mut Page,
        mut start: Option<Members>,
    ) -> Result<Option<Place>, Failure> {
        let is_grown = |key: &PartitionKey| self.grown.has(key, self.began);
        loop {
            let body = self.request(page, start);
            let (of, request) = ((self.table, self.upstream), ("Scan", &body));
            let reply = entries::page(of, self.patterns, request, &is_grown, self.deadline).await?;
            let Some(next) = page.add(&reply) else { return Ok(None) };
            let last = armed(self.table, self.patterns, &next)?;
            if !last.is_some_and(|(key, _)| is_grown(&key)) {
                return Ok(Some(self.place(Part::Native, next)));
            }
            // The rest under this stored key is left out.
            let place = self.place(Part::Native, next);
            let next = self.end_of(place.partition_key(self.table));
            if self.is_full(page) {
                return Ok(Some(self.place(Part::Native, next)));
            }
            start = Some(next);
        }
    }

    fn reply(&self, page: Page, next: Option<&Place>) -> Reply {
        let mut answer = Members::new();
        answer.insert("Count".to_owned(), Value::from(page.count));
        answer.insert("ScannedCount".to_owned(), Value::from(page.scanned));
        if self.body.get("Select").and_then(Value::as_str) != Some("COUNT") {
            answer.insert("Items".to_owned(), page.items.into_iter().map(Value::Object).collect());
        }
        let next = next.map(|next| Value::Object(next.last_evaluated(self.table)));
        answer.extend(next.map(|next| ("LastEvaluatedKey".to_owned(), next)));
        let capacity = page.capacity.map(|mut capacity| {
            if page.requests > 1 {
                capacity = json!({ "TableName": self.table.name, "CapacityUnits": page.units });
            }
            ("ConsumedCapacity".to_owned(), capacity)
        });
        answer.extend(capacity);
        Reply::ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use sharding::TableConfig;
    use sharding::internal::TableEngine;

    use super::*;

    #[test]
    fn a_place_is_what_the_client_gives_back() {
        let config = aws_sdk_dynamodb::Config::builder().behavior_version_latest().build();
        let client = aws_sdk_dynamodb::Client::from_conf(config);
        let engine = TableEngine::new(&client, TableConfig::new("orders", "orders-metadata"));
        let table = ServedTable::of_engine(engine);
        let key = |text: &str| {
            let mut key = Members::new();
            key.insert(table.partition_key_name().to_owned(), item::string(text));
            key.insert(table.sort_key_name().to_owned(), item::string("s"));
            key
        };
        // The keys of shards and of other programs, and those that look like a place.
        for text in ["a", "a\u{1f}s3", "a\u{1f}g12", "a\u{1f}n0", "a\u{1f}nx", "a\u{1f}", ""] {
            for (began, part) in
                [(0, Part::Native), (1_700_000_000, Part::Native), (7, Part::Grown)]
            {
                let place = Place { began, part, key: key(text) };
                assert_eq!(Place::of(&table, &place.last_evaluated(&table)), place, "{text:?}");
            }
        }
        let plain = Place { began: 0, part: Part::Native, key: key("a\u{1f}s3") };
        assert_eq!(plain.last_evaluated(&table), plain.key);
    }
}
