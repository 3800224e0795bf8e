//! `Scan` of the table. First come keys that have several shards when it begins, each in the order of
//! the sort key, as a query reads them. Then come DynamoDB's own pages without those keys.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sharding::PartitionKey;
use sharding::internal::{Patterns, SUFFIX_MARK};
use tokio::time::Instant;

use crate::entries::{self, armed};
use crate::expression::Placeholders;
use crate::grown::{self, MARK_LETTERS};
use crate::item;
use crate::query::{PAGE_MARGIN, PartOf, UNLIMITED, consumed, objects, query};
use crate::reply::{Failure, Members, Reply};
use crate::table::ServedTable;
use crate::upstream::Upstream;
use crate::write::check_members;

const MEMBERS: [&str; 13] = [
    "TableName",
    "IndexName",
    "Segment",
    "TotalSegments",
    "FilterExpression",
    "ProjectionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "Limit",
    "ExclusiveStartKey",
    "ConsistentRead",
    "Select",
    "ReturnConsumedCapacity",
];

/// The bytes at which a page asks for no more. (DynamoDB developer guide, "Scan".)
const PAGE_BYTES: usize = 1_024 * 1_024;
/// The keys that come first, at most. Each is named in every `LastEvaluatedKey`.
const MAX_GROWN_KEYS: usize = 50;

/// Where a scan goes on. It names the keys that come first, because all pages must agree on them,
/// whichever process reads them.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    /// The marks of the keys that come first.
    together: BTreeSet<String>,
    part: Part,
    /// The key of an item, as it is stored or as the client knows it.
    key: Members,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Among the keys that come first.
    Grown,
    /// In DynamoDB's own pages.
    Native,
}

impl Place {
    /// A `LastEvaluatedKey`, or any key that the client makes. The partition key of a place is that
    /// of the item, the letter of the part, and the marks.
    fn of(table: &ServedTable, start: &Members) -> Self {
        let text = start.get(table.partition_key_name()).and_then(|it| it.get("S")?.as_str());
        let place = text.and_then(|text| {
            let (stored, tail) = text.rsplit_once(SUFFIX_MARK)?;
            let (part, marks) = match tail.split_at_checked(1)? {
                ("g", marks) => (Part::Grown, marks),
                ("n", marks) => (Part::Native, marks),
                _ => return None,
            };
            if !marks.is_ascii() || !marks.len().is_multiple_of(MARK_LETTERS) {
                return None;
            }
            let mark = |at| marks[at..at + MARK_LETTERS].to_owned();
            let together = (0..marks.len()).step_by(MARK_LETTERS).map(mark).collect();
            Some(Self { together, part, key: with_partition_key(table, start, stored) })
        });
        place.unwrap_or_else(|| Self {
            together: BTreeSet::new(),
            part: Part::Native,
            key: start.clone(),
        })
    }

    fn last_evaluated(&self, table: &ServedTable) -> Members {
        // A key of another program may look like a place.
        if self.together.is_empty() && Self::of(table, &self.key).key == self.key {
            return self.key.clone();
        }
        let letter = match self.part {
            Part::Grown => "g",
            Part::Native => "n",
        };
        let marks = [letter].into_iter().chain(self.together.iter().map(String::as_str));
        let tail = marks.collect::<String>();
        let text = format!("{}{SUFFIX_MARK}{tail}", self.partition_key(table));
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

/// Whether DynamoDB's own pages are all of a scan: those of an index, whose order is its own, and the
/// parts of a parallel scan, which begin at different times. And what DynamoDB refuses.
pub(crate) fn is_native(body: &Members) -> bool {
    let has = |name: &str| body.get(name).is_some_and(|value| !value.is_null());
    let is_wrong = |name: &str, is_right: fn(&Value) -> bool| has(name) && !is_right(&body[name]);
    ["IndexName", "Segment", "TotalSegments"].into_iter().any(has)
        || is_wrong("Limit", |limit| limit.as_u64().is_some_and(|limit| limit > 0))
        || is_wrong("ExclusiveStartKey", Value::is_object)
}

/// A page of a scan.
pub(crate) async fn page(
    (table, upstream): (&ServedTable, &Upstream),
    patterns: &Patterns,
    body: &Members,
    deadline: Instant,
) -> Result<Reply, Failure> {
    check_members("Scan", body, &MEMBERS)?;
    let start = body.get("ExclusiveStartKey").and_then(Value::as_object);
    let place = start.map(|start| Place::of(table, start));
    let (together, keys) = match &place {
        Some(place) if place.part == Part::Native => (place.together.clone(), Vec::new()),
        place => {
            let marks = place.as_ref().map(|place| &place.together);
            let grown = table.grown.get(&table.engine, marks).await?;
            let is_armed = |key: &PartitionKey| patterns.matches(key);
            let together = marks.cloned().unwrap_or_else(|| grown.widest(MAX_GROWN_KEYS, is_armed));
            let keys = grown.keys(&together).ok_or_else(|| {
                Failure::internal(
                    "sharding-endpoint: the metadata of a key of this scan is missing",
                )
            })?;
            (together, keys)
        }
    };
    let limit = body.get("Limit").and_then(Value::as_u64).unwrap_or(UNLIMITED as u64);
    let scan = Scan { table, upstream, patterns, body, together, limit, deadline };
    let (mut page, mut reached) = (Page::default(), None);
    let read = scan.read(&mut page, &mut reached, &keys, place).await;
    match (read, reached) {
        // A page that has begun may end early.
        (Err(failure), Some(reached)) if failure.is_throttled() && page.scanned > 0 => {
            Ok(scan.reply(page, Some(&reached)))
        }
        (Err(failure), _) => Err(failure),
        (Ok(()), next) => Ok(scan.reply(page, next.as_ref())),
    }
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
    together: BTreeSet<String>,
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
        Place { together: self.together.clone(), part, key }
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
        body.retain(|name, value| !value.is_null() && name != "ExclusiveStartKey");
        body.extend(start.map(|start| ("ExclusiveStartKey".to_owned(), Value::Object(start))));
        if body.contains_key("Limit") {
            body.insert("Limit".to_owned(), Value::from(self.limit - page.scanned));
        }
        body
    }

    /// Reads a page, and follows where the scan goes on. That is `None` at its end.
    async fn read(
        &self,
        page: &mut Page,
        reached: &mut Option<Place>,
        keys: &[PartitionKey],
        place: Option<Place>,
    ) -> Result<(), Failure> {
        let mut start = None;
        match place {
            Some(Place { part: Part::Native, key, .. }) => start = Some(key),
            place => {
                if self.of_grown(page, reached, keys, place).await? {
                    return Ok(());
                }
            }
        }
        let is_together = |key: &PartitionKey| {
            !self.together.is_empty() && self.together.contains(&grown::mark(key))
        };
        loop {
            let body = self.request(page, start);
            let (of, request) = ((self.table, self.upstream), ("Scan", &body));
            let reply =
                entries::page(of, self.patterns, request, &is_together, self.deadline).await?;
            let Some(next) = page.add(&reply) else {
                *reached = None;
                return Ok(());
            };
            let last = armed(self.table, self.patterns, &next)?;
            let place = reached.insert(self.place(Part::Native, next));
            if !last.is_some_and(|(key, _)| is_together(&key)) {
                return Ok(());
            }
            // The rest under this stored key is left out.
            place.key = self.end_of(place.partition_key(self.table));
            if self.is_full(page) {
                return Ok(());
            }
            start = Some(place.key.clone());
        }
    }

    /// The keys that come first. Returns whether the page ends among them.
    async fn of_grown(
        &self,
        page: &mut Page,
        reached: &mut Option<Place>,
        keys: &[PartitionKey],
        place: Option<Place>,
    ) -> Result<bool, Failure> {
        let (from, mut start) = place.map_or((String::new(), None), |place| {
            (place.partition_key(self.table).to_owned(), Some(place.key))
        });
        for key in keys.iter().filter(|key| key.as_str() >= from.as_str()) {
            let mut body = self.request(page, start.take().filter(|_| key.as_str() == from));
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
            let ends = next.is_some() || self.is_full(page);
            let at = next.unwrap_or_else(|| self.end_of(key.as_str()));
            *reached = Some(self.place(Part::Grown, at));
            if ends {
                return Ok(true);
            }
        }
        Ok(false)
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
    use sharding::internal::TableEngine;
    use sharding::{SortKeyType, TableConfig};

    use super::*;
    use crate::grown::mark;
    use crate::position::Position;

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
        let marks = |count: u32| -> BTreeSet<String> {
            let key = |number: u32| PartitionKey::new(&number.to_string()).expect("a key");
            (0..count).map(|number| mark(&key(number))).collect()
        };
        let of_another = format!("a\u{1f}n{}", "x".repeat(MARK_LETTERS));
        // The keys of shards and of other programs, and those that look like a place.
        for text in ["a", "a\u{1f}s3", "a\u{1f}n", &of_another, "a\u{1f}g1", "a\u{1f}\u{e9}", ""] {
            for (count, part) in [(0, Part::Native), (3, Part::Native), (50, Part::Grown)] {
                let place = Place { together: marks(count), part, key: key(text) };
                assert_eq!(Place::of(&table, &place.last_evaluated(&table)), place, "{text:?}");
            }
        }
        let together = BTreeSet::new();
        let plain = Place { together, part: Part::Native, key: key("a\u{1f}s3") };
        assert_eq!(plain.last_evaluated(&table), plain.key);
    }

    #[test]
    fn every_sort_key_is_between_the_lowest_and_the_highest() {
        let config = aws_sdk_dynamodb::Config::builder().behavior_version_latest().build();
        let client = aws_sdk_dynamodb::Client::from_conf(config);
        for (kind, middle) in [(SortKeyType::String, "\u{7f}"), (SortKeyType::Number, "-1e100")] {
            let config = TableConfig::new("orders", "orders-metadata");
            let config = config.with(|config| config.sort_key_type = kind);
            let table = ServedTable::of_engine(TableEngine::new(&client, config));
            let position = |sort_key: Value| {
                let key = Members::from_iter([(table.sort_key_name().to_owned(), sort_key)]);
                Position::of(&table, None, &key).expect("a position")
            };
            let middle = json!({ table.sort_key_letter(): middle });
            let [lowest, highest] =
                [false, true].map(|is_highest| item::outermost_sort_key(&table, is_highest));
            assert!(position(lowest) < position(middle.clone()));
            assert!(position(middle) < position(highest));
        }
    }
}
