//! A client that makes random writes and checked reads of its own items.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::interval;

use super::site::{Cut, Site};

/// The number of sort keys of a client in each key.
const OWN: usize = 50;
/// The pause between two requests of a client.
const PACE: Duration = Duration::from_millis(15);

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) acknowledged: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) scans: AtomicU64,
    pub(crate) pages: AtomicU64,
    pub(crate) scanned_items: AtomicU64,
    pub(crate) failed_reads: AtomicU64,
}

fn increment(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// The events of the log's first lines, by key and sort key.
pub(crate) type Log = BTreeMap<String, BTreeMap<String, Value>>;
/// The possible states of an item: absent, or the write with this number.
type Allowed = BTreeSet<Option<u64>>;

/// The requested number of rounds, in which all items are stored, and the completed ones.
#[derive(Clone)]
pub(crate) struct Rounds {
    pub(crate) wanted: watch::Receiver<u32>,
    pub(crate) stored: Arc<Semaphore>,
}

pub(crate) struct Client {
    pub(crate) name: u64,
    pub(crate) site: Site,
    pub(crate) rng: StdRng,
    pub(crate) log: Arc<Log>,
    pub(crate) keys: Arc<Vec<String>>,
    /// The client's own items. An item without an entry is absent.
    pub(crate) items: BTreeMap<(String, String), Allowed>,
    pub(crate) writes: u64,
    pub(crate) counts: Arc<Counts>,
}

impl Client {
    pub(crate) async fn run(
        mut self,
        rounds: Rounds,
        stop: Arc<AtomicBool>,
    ) -> BTreeMap<(String, String), Allowed> {
        let mut ticks = interval(PACE);
        let mut stored = 0;
        while !stop.load(Ordering::Relaxed) {
            let round = *rounds.wanted.borrow();
            if stored < round {
                self.store_all().await;
                stored = round;
                rounds.stored.add_permits(1);
            }
            ticks.tick().await;
            let key = self.keys[self.rng.random_range(0..self.keys.len())].clone();
            let sort_key = self.own_sort_key(&key);
            match self.rng.random_range(0..100) {
                0..25 => self.put(&key, &sort_key, "POST").await,
                25..40 => self.put(&key, &sort_key, "PUT").await,
                40..55 => self.delete(&key, &sort_key).await,
                55..70 => self.create(&key, &sort_key).await,
                70..92 => self.get(&key, &sort_key).await,
                92..98 => self.get_event(&key).await,
                _ => self.scan(&key).await,
            }
        }
        for key in Arc::clone(&self.keys).iter() {
            self.scan(key).await;
        }
        self.items
    }

    /// Stores all of the client's items, at their home under the current width.
    async fn store_all(&mut self) {
        for key in Arc::clone(&self.keys).iter() {
            for number in 0..OWN {
                let sort_key = self.sort_key(key, number);
                self.put(key, &sort_key, "POST").await;
            }
        }
    }

    fn own_sort_key(&mut self, key: &str) -> String {
        let number = self.rng.random_range(0..OWN);
        self.sort_key(key, number)
    }

    /// Returns a sort key between the events of the log.
    fn sort_key(&self, key: &str, number: usize) -> String {
        let events = &self.log[key];
        let beside = events.keys().nth(events.len() * number / OWN).expect("a key has events");
        format!("{beside}+{number:02}+{}", self.name)
    }

    fn allowed(&mut self, key: &str, sort_key: &str) -> &mut Allowed {
        let own = self.items.entry((key.to_owned(), sort_key.to_owned()));
        own.or_insert_with(|| BTreeSet::from([None]))
    }

    fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes * 10 + self.name
    }

    /// Updates the possible states of an item after a write, by the response.
    fn record(
        &mut self,
        (key, sort_key): (&str, &str),
        written: Option<u64>,
        response: &Result<(u16, Value), Cut>,
    ) {
        let counts = Arc::clone(&self.counts);
        let allowed = self.allowed(key, sort_key);
        match response {
            Ok((200 | 201 | 204, _)) => {
                increment(&counts.acknowledged);
                *allowed = BTreeSet::from([written]);
            }
            Ok((503, problem)) if problem["code"] != "outcome_unknown" => {
                increment(&counts.rejected)
            }
            Ok((503, _)) | Err(Cut) => {
                increment(&counts.unknown);
                allowed.insert(written);
            }
            Ok((status, problem)) => panic!("{key} {sort_key}: {status} {problem}"),
        }
    }

    async fn put(&mut self, key: &str, sort_key: &str, method: &str) {
        let number = self.next_write();
        let response = if method == "PUT" {
            self.site
                .send(
                    method,
                    &of_item(key, sort_key),
                    &[],
                    Some(&json!({"attributes": {"n": number}})),
                )
                .await
        } else {
            self.site.send(method, "/items", &[], Some(&body(key, sort_key, number))).await
        };
        self.record((key, sort_key), Some(number), &response);
    }

    async fn delete(&mut self, key: &str, sort_key: &str) {
        let response = self.site.send("DELETE", &of_item(key, sort_key), &[], None).await;
        self.record((key, sort_key), None, &response);
    }

    /// Repeats the request until its outcome is known. A create-only write recognizes its own
    /// earlier attempt.
    async fn create(&mut self, key: &str, sort_key: &str) {
        let number = self.next_write();
        let name = format!("{}-{number}", self.name);
        let headers = [("if-none-match", "*"), ("idempotency-key", name.as_str())];
        let before = self.allowed(key, sort_key).clone();
        loop {
            let response = self
                .site
                .send("POST", "/items", &headers, Some(&body(key, sort_key, number)))
                .await;
            match &response {
                Ok((201, _)) => {
                    assert!(
                        before.contains(&None),
                        "{key} {sort_key}: created although it may be {before:?}"
                    );
                    return self.record((key, sort_key), Some(number), &response);
                }
                Ok((412, _)) => {
                    increment(&self.counts.rejected);
                    let others: Allowed = before.iter().copied().filter(Option::is_some).collect();
                    assert!(
                        !others.is_empty(),
                        "{key} {sort_key}: the response is 412, and the item does not exist"
                    );
                    *self.allowed(key, sort_key) = others;
                    return;
                }
                _ => self.record((key, sort_key), Some(number), &response),
            }
        }
    }

    async fn get(&mut self, key: &str, sort_key: &str) {
        let Some(found) = self.read_item(key, sort_key).await else { return };
        let found = found.map(|item| number_of(&item));
        self.observe(key, sort_key, found);
    }

    async fn get_event(&mut self, key: &str) {
        let (log, place) = (Arc::clone(&self.log), self.rng.random_range(0..self.log[key].len()));
        let (sort_key, event) = log[key].iter().nth(place).expect("it is below the length");
        let Some(found) = self.read_item(key, sort_key).await else { return };
        assert_eq!(
            found.map(|item| item["attributes"].clone()),
            Some(event.clone()),
            "{key} {sort_key}"
        );
    }

    /// Reads an item, which may be absent. Returns `None` if the read failed.
    async fn read_item(&self, key: &str, sort_key: &str) -> Option<Option<Value>> {
        let path = format!("{}&consistent=true", of_item(key, sort_key));
        match self.site.send("GET", &path, &[], None).await {
            Ok((200, item)) => {
                increment(&self.counts.gets);
                Some(Some(item))
            }
            Ok((404, _)) => {
                increment(&self.counts.gets);
                Some(None)
            }
            Ok((503, _)) | Err(Cut) => {
                increment(&self.counts.failed_reads);
                None
            }
            Ok((status, problem)) => panic!("{key} {sort_key}: {status} {problem}"),
        }
    }

    fn observe(&mut self, key: &str, sort_key: &str, found: Option<u64>) {
        let allowed = self.allowed(key, sort_key);
        assert!(allowed.contains(&found), "{key} {sort_key} is {found:?}, and may be {allowed:?}");
        *allowed = BTreeSet::from([found]);
    }

    /// Reads every page of a key and checks it: the events of the log and this client's own items
    /// are complete, and all items appear once and in order. The number of other clients' items is
    /// unknown. A cursor from before a kill is valid after it.
    async fn scan(&mut self, key: &str) {
        let (limit, descending) = (self.rng.random_range(20..300), self.rng.random_bool(0.5));
        let order = if descending { "desc" } else { "asc" };
        let path = format!(
            "/items?partition_key={}&consistent=true&limit={limit}&order={order}",
            encode(key)
        );
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let place =
                cursor.as_ref().map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
            match self.site.send("GET", &format!("{path}{place}"), &[], None).await {
                Ok((200, page)) => {
                    increment(&self.counts.pages);
                    items.extend(page["items"].as_array().expect("items").iter().cloned());
                    cursor = page["cursor"].as_str().map(str::to_owned);
                    if cursor.is_none() {
                        break;
                    }
                }
                Ok((503, _)) | Err(Cut) => increment(&self.counts.failed_reads),
                Ok((status, problem)) => panic!("{key}: {status} {problem}"),
            }
        }
        increment(&self.counts.scans);
        self.counts.scanned_items.fetch_add(items.len() as u64, Ordering::Relaxed);
        if descending {
            items.reverse();
        }
        let sort_keys: Vec<&str> = items.iter().map(sort_key_of).collect();
        assert!(
            sort_keys.is_sorted_by(|one, next| one < next),
            "{key}: twice or out of order: {sort_keys:?}"
        );
        let (log, own) = (Arc::clone(&self.log), format!("+{}", self.name));
        let events = &log[key];
        let found = items.iter().filter(|item| !sort_key_of(item).contains('+'));
        let found: Vec<_> = found.map(|item| (sort_key_of(item), &item["attributes"])).collect();
        let wanted: Vec<_> =
            events.iter().map(|(sort_key, event)| (sort_key.as_str(), event)).collect();
        assert_eq!(found, wanted, "{key}");
        let own_items = items.iter().filter(|item| sort_key_of(item).ends_with(&own));
        let found: BTreeMap<String, u64> =
            own_items.map(|item| (sort_key_of(item).to_owned(), number_of(item))).collect();
        let known: Vec<String> = self
            .items
            .keys()
            .filter(|(of, _)| of == key)
            .map(|(_, sort_key)| sort_key.clone())
            .collect();
        assert!(
            found.keys().all(|sort_key| known.contains(sort_key)),
            "{key}: {found:?} were never written"
        );
        for sort_key in known {
            self.observe(key, &sort_key, found.get(&sort_key).copied());
        }
    }
}

fn sort_key_of(item: &Value) -> &str {
    item["sort_key"].as_str().expect("a sort key")
}

fn number_of(item: &Value) -> u64 {
    item["attributes"]["n"].as_u64().unwrap_or_else(|| panic!("{item}"))
}

fn body(key: &str, sort_key: &str, number: u64) -> Value {
    json!({"partition_key": key, "sort_key": sort_key, "attributes": {"n": number}})
}

fn of_item(key: &str, sort_key: &str) -> String {
    format!("/item?partition_key={}&sort_key={}", encode(key), encode(sort_key))
}

fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
