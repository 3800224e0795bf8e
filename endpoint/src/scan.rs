//! `Scan` of the table. First come keys that have several shards when it begins, each in the order of
//! the sort key, as a query reads them. Then come DynamoDB's own pages without those keys.

use std::collections::BTreeSet;

use serde_json::Value;
use sharding::PartitionKey;
use sharding::internal::{Patterns, SUFFIX_MARK};
use tokio::time::Instant;

use crate::entries;
use crate::expression::Placeholders;
use crate::grown::{self, MARK_LETTERS};
use crate::item::{self, check_members, object};
use crate::page::{PAGE_BYTES, PAGE_MARGIN, UNLIMITED, consumed, objects};
use crate::query::query;
use crate::reply::{Failure, Members, Reply};
use crate::table::ServedTable;

/// The keys that come first, at most. Each is named in every `LastEvaluatedKey`.
const MAX_GROWN_KEYS: usize = 50;

/// Where a scan goes on. It names the keys that come first, because all pages must agree on them,
/// whichever process reads them.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    /// The marks of the keys that come first.
    together: BTreeSet<String>,
    /// Whether it is among the keys that come first, and not in DynamoDB's own pages.
    is_grown: bool,
    /// The key of an item, as it is stored or as the client knows it.
    key: Members,
}

impl Place {
    /// A `LastEvaluatedKey`, or any key that the client makes. The partition key of a place is that
    /// of the item, the letter of the part, and the marks.
    fn of(table: &ServedTable, start: &Members) -> Self {
        let place = table.key_text(start).and_then(|text| {
            let (stored, tail) = text.rsplit_once(SUFFIX_MARK)?;
            let (letter, marks) = tail.split_at_checked(1)?;
            if !["g", "n"].contains(&letter)
                || !marks.is_ascii()
                || !marks.len().is_multiple_of(MARK_LETTERS)
            {
                return None;
            }
            let is_grown = letter == "g";
            let mark = |at| marks[at..at + MARK_LETTERS].to_owned();
            let together = (0..marks.len()).step_by(MARK_LETTERS).map(mark).collect();
            Some(Self { together, is_grown, key: table.with_partition_key(start, stored) })
        });
        let together = BTreeSet::new();
        place.unwrap_or_else(|| Self { together, is_grown: false, key: start.clone() })
    }

    fn last_evaluated(&self, table: &ServedTable) -> Members {
        // A key of another program may look like a place.
        if self.together.is_empty() && Self::of(table, &self.key).key == self.key {
            return self.key.clone();
        }
        let letter = if self.is_grown { "g" } else { "n" };
        let marks = [letter].into_iter().chain(self.together.iter().map(String::as_str));
        let tail = marks.collect::<String>();
        let text = format!("{}{SUFFIX_MARK}{tail}", self.partition_key(table));
        table.with_partition_key(&self.key, &text)
    }

    fn partition_key(&self, table: &ServedTable) -> &str {
        table.key_text(&self.key).unwrap_or_default()
    }
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

pub(crate) async fn page(
    table: &ServedTable,
    patterns: &Patterns,
    body: &Members,
    deadline: Instant,
) -> Result<Reply, Failure> {
    check_members("Scan", body)?;
    let start = body.get("ExclusiveStartKey").and_then(Value::as_object);
    let place = start.map(|start| Place::of(table, start));
    let (together, keys) = match &place {
        Some(place) if !place.is_grown => (place.together.clone(), Vec::new()),
        place => {
            let marks = place.as_ref().map(|place| &place.together);
            let grown = table.grown.get(&table.engine, marks).await?;
            let together = marks.cloned().unwrap_or_else(|| grown.widest(MAX_GROWN_KEYS));
            let missing = "sharding-endpoint: the metadata of a key of this scan is missing";
            let keys = grown.keys(&together).ok_or_else(|| Failure::internal(missing))?;
            (together, keys)
        }
    };
    let limit = body.get("Limit").and_then(Value::as_u64).unwrap_or(UNLIMITED as u64);
    let page = Page::default();
    let mut scan = Scan { table, patterns, body, together, limit, deadline, page };
    let read = scan.read(&keys, place).await;
    let has_begun = scan.page.reached.is_some() && scan.page.scanned > 0;
    match read {
        Err(failure) if !failure.is_throttled() || !has_begun => Err(failure),
        // A page that has begun may end early.
        Ok(()) | Err(_) => Ok(scan.reply()),
    }
}

/// What a page has so far.
#[derive(Debug, Default)]
struct Page {
    items: Vec<Members>,
    count: u64,
    scanned: u64,
    bytes: usize,
    /// The read units.
    units: f64,
    /// Where the scan goes on: whether among the keys that come first, and after which key. That is
    /// `None` at its end.
    reached: Option<(bool, Members)>,
}

impl Page {
    /// Adds the answer of a part, and returns its `LastEvaluatedKey`.
    fn add(&mut self, reply: &Reply) -> Option<Members> {
        self.bytes += reply.body.len();
        let mut answer = reply.members();
        let count = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
        self.count += count("Count");
        self.scanned += count("ScannedCount");
        self.units += consumed(&answer);
        self.items.extend(objects(answer.remove("Items")));
        answer.remove("LastEvaluatedKey").and_then(object)
    }
}

/// A request for a page.
struct Scan<'a> {
    table: &'a ServedTable,
    patterns: &'a Patterns,
    body: &'a Members,
    together: BTreeSet<String>,
    limit: u64,
    deadline: Instant,
    page: Page,
}

impl Scan<'_> {
    fn is_full(&self) -> bool {
        self.page.scanned >= self.limit
            || self.page.bytes >= PAGE_BYTES
            || Instant::now() >= self.deadline - PAGE_MARGIN
    }

    /// The end of all items under a stored key.
    fn end_of(&self, stored: &str) -> Members {
        self.table.key(stored, self.table.outermost_sort_key(true))
    }

    fn request(&self, start: Option<Members>) -> Members {
        let mut body = self.body.clone();
        body.retain(|name, value| !value.is_null() && name != "ExclusiveStartKey");
        body.extend(start.map(|start| ("ExclusiveStartKey".to_owned(), Value::Object(start))));
        if body.contains_key("Limit") {
            body.insert("Limit".to_owned(), Value::from(self.limit - self.page.scanned));
        }
        body
    }

    async fn read(&mut self, keys: &[PartitionKey], place: Option<Place>) -> Result<(), Failure> {
        let mut start = None;
        if let Some(Place { is_grown: false, key, .. }) = place {
            start = Some(key);
        } else if self.ends_in_grown(keys, place).await? {
            return Ok(());
        }
        let (table, patterns, together) = (self.table, self.patterns, self.together.clone());
        let is_together =
            |key: &PartitionKey| !together.is_empty() && together.contains(&grown::mark(key));
        loop {
            let request = ("Scan", &self.request(start));
            let reply =
                entries::page(table, patterns, request, &is_together, self.deadline).await?;
            let Some(next) = self.page.add(&reply) else {
                self.page.reached = None;
                return Ok(());
            };
            let last = table.armed_shard(patterns, &next);
            if !last.is_some_and(|(key, _)| is_together(&key)) {
                self.page.reached = Some((false, next));
                return Ok(());
            }
            // The rest under this stored key is left out.
            let end = self.end_of(table.key_text(&next).unwrap_or_default());
            self.page.reached = Some((false, end.clone()));
            if self.is_full() {
                return Ok(());
            }
            start = Some(end);
        }
    }

    /// Reads the keys that come first. Returns whether the page ends among them.
    async fn ends_in_grown(
        &mut self,
        keys: &[PartitionKey],
        place: Option<Place>,
    ) -> Result<bool, Failure> {
        let (from, mut start) = place.map_or((String::new(), None), |place| {
            (place.partition_key(self.table).to_owned(), Some(place.key))
        });
        for key in keys.iter().filter(|key| key.as_str() >= from.as_str()) {
            let mut body = self.request(start.take().filter(|_| key.as_str() == from));
            let mut placeholders = Placeholders::of(self.body);
            let (name, value) = (self.table.partition_key_name(), item::string(key.as_str()));
            let condition = placeholders.compared(name, "=", value);
            body.insert("KeyConditionExpression".to_owned(), Value::from(condition));
            placeholders.into_body(&mut body, self.body);
            let reply = query(self.table, None, (key, true), &body, self.deadline).await?;
            let next = self.page.add(&reply);
            let ends = next.is_some() || self.is_full();
            let at = next.unwrap_or_else(|| self.end_of(key.as_str()));
            self.page.reached = Some((true, at));
            if ends {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn reply(self) -> Reply {
        let page = self.page;
        let mut answer = Members::new();
        answer.insert("Count".to_owned(), Value::from(page.count));
        answer.insert("ScannedCount".to_owned(), Value::from(page.scanned));
        if item::text(self.body, "Select") != Some("COUNT") {
            answer.insert("Items".to_owned(), page.items.into_iter().map(Value::Object).collect());
        }
        if let Some((is_grown, key)) = page.reached {
            let next = Place { together: self.together, is_grown, key };
            let next = Value::Object(next.last_evaluated(self.table));
            answer.insert("LastEvaluatedKey".to_owned(), next);
        }
        self.table.add_capacity(&mut answer, self.body, page.units);
        Reply::ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::Client;
    use aws_smithy_runtime_api::client::http::SharedHttpConnector;
    use embedded_dynamodb::{Engine, InProcess};
    use serde_json::json;
    use sharding::internal::TableEngine;
    use sharding::{SortKeyType, TableConfig};

    use super::*;
    use crate::grown::mark;
    use crate::position::Position;
    use crate::upstream::Upstream;

    async fn table(sort_key_type: SortKeyType) -> ServedTable {
        let engine = Engine::in_memory().expect("a database");
        let aws = engine.sdk_config();
        let connector = SharedHttpConnector::new(InProcess::new(engine));
        let upstream = Upstream::over(&aws, connector).await.expect("an upstream");
        let config = TableConfig::new("orders", "orders-metadata");
        let config = config.with(|config| config.sort_key_type = sort_key_type);
        ServedTable::of_engine(TableEngine::new(&Client::new(&aws), config), upstream)
    }

    #[tokio::test]
    async fn a_place_is_what_the_client_gives_back() {
        let table = table(SortKeyType::String).await;
        let key = |text: &str| table.key(text, item::string("s"));
        let marks = |count: u32| -> BTreeSet<String> {
            let key = |number: u32| PartitionKey::new(&number.to_string()).expect("a key");
            (0..count).map(|number| mark(&key(number))).collect()
        };
        let of_another = format!("a\u{1f}n{}", "x".repeat(MARK_LETTERS));
        // The keys of shards and of other programs, and those that look like a place.
        for text in ["a", "a\u{1f}s3", "a\u{1f}n", &of_another, "a\u{1f}g1", "a\u{1f}\u{e9}", ""] {
            for (count, is_grown) in [(0, false), (3, false), (50, true)] {
                let place = Place { together: marks(count), is_grown, key: key(text) };
                assert_eq!(Place::of(&table, &place.last_evaluated(&table)), place, "{text:?}");
            }
        }
        let together = BTreeSet::new();
        let plain = Place { together, is_grown: false, key: key("a\u{1f}s3") };
        assert_eq!(plain.last_evaluated(&table), plain.key);
    }

    #[tokio::test]
    async fn every_sort_key_is_between_the_lowest_and_the_highest() {
        for (kind, middle) in [(SortKeyType::String, "\u{7f}"), (SortKeyType::Number, "-1e100")] {
            let table = table(kind).await;
            let position = |sort_key: Value| {
                Position::of(&table, None, &table.key("k", sort_key)).expect("a position")
            };
            let middle = json!({ table.sort_key_letter(): middle });
            let [lowest, highest] =
                [false, true].map(|is_highest| table.outermost_sort_key(is_highest));
            assert!(position(lowest) < position(middle.clone()));
            assert!(position(middle) < position(highest));
        }
    }
}
