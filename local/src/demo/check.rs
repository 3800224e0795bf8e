//! Whether a reader finds what was acknowledged, each item once and in order.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use lambda_http::Body;
use serde::Deserialize;

use super::KEY;
use crate::http_api::Functions;
use crate::traffic::{Generated, epoch_micros, request};

/// How far back each check reads.
const SPAN: Duration = Duration::from_secs(2);
/// Between two checks.
const PAUSE: Duration = Duration::from_millis(200);

/// What reads found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Pages read.
    pub pages: u64,
    /// Acknowledged items that were looked for.
    pub items: u64,
    /// Of them, those that were not found.
    pub missing: u64,
    /// Items that came twice or out of order.
    pub misplaced: u64,
    /// Checks that broke off: a page had no answer in time.
    pub broken_off: u64,
}

impl AddAssign for Checked {
    fn add_assign(&mut self, other: Self) {
        self.pages += other.pages;
        self.items += other.items;
        self.missing += other.missing;
        self.misplaced += other.misplaced;
        self.broken_off += other.broken_off;
    }
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Listed>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    sort_key: String,
}

/// Checks again and again, until it is dropped.
pub(super) async fn check_on(functions: Functions, generated: Generated, sum: Arc<Mutex<Checked>>) {
    let span = u64::try_from(SPAN.as_micros()).unwrap_or(u64::MAX);
    loop {
        let acknowledged = generated.acknowledged_from(epoch_micros().saturating_sub(span));
        let checked = check(&functions, &acknowledged).await;
        *sum.lock().unwrap_or_else(PoisonError::into_inner) += checked;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads the key from the first of these sort keys on; all of them were acknowledged before.
async fn check(functions: &Functions, acknowledged: &[u64]) -> Checked {
    let mut checked = Checked::default();
    let (Some(first), Some(last)) = (acknowledged.first(), acknowledged.last()) else { return checked };
    let mut found: Vec<u64> = Vec::new();
    let mut cursor = String::new();
    loop {
        let uri = format!("/items?partition_key={KEY}&consistent=true&limit=1000&from={first}&to={last}{cursor}");
        let response = functions.answer(request("GET", &uri, Body::Empty)).await;
        let page = (response.status() == StatusCode::OK).then(|| serde_json::from_slice::<Page>(response.body()));
        let Some(Ok(page)) = page else {
            checked.broken_off = 1;
            return checked;
        };
        checked.pages += 1;
        found.extend(page.items.iter().filter_map(|item| item.sort_key.parse::<u64>().ok()));
        match page.cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    checked.items = acknowledged.len() as u64;
    checked.misplaced = found.windows(2).filter(|pair| pair.first() >= pair.last()).count() as u64;
    found.sort_unstable();
    checked.missing = acknowledged.iter().filter(|key| found.binary_search(key).is_err()).count() as u64;
    checked
}
