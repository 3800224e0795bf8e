//! Server-sent events: first the last two minutes, and then one sample each second.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver};

use super::Console;

/// The number of past samples that a new page receives.
const MAX_PAST_SAMPLES: usize = 120;
/// The number of past decisions that a new page receives.
const MAX_PAST_DECISIONS: usize = 50;
/// The maximum number of events queued for a slow page. The page misses older ones.
const MAX_QUEUED_EVENTS: usize = 16;

#[derive(Debug, Clone)]
struct Message {
    event: &'static str,
    data: Arc<str>,
}

/// The source of the pages' events.
#[derive(Debug)]
pub(super) struct Feed {
    past: Mutex<Past>,
    live: broadcast::Sender<Message>,
}

#[derive(Debug, Default)]
struct Past {
    /// Samples without partitions, because the page shows only the latest ones.
    samples: VecDeque<Arc<str>>,
    last: Option<Arc<str>>,
    decisions: VecDeque<Arc<str>>,
}

impl Default for Feed {
    fn default() -> Self {
        Self { past: Mutex::default(), live: broadcast::Sender::new(MAX_QUEUED_EVENTS) }
    }
}

impl Feed {
    pub(super) fn sample(&self, mut sample: Value) {
        let whole = Arc::<str>::from(sample.to_string());
        sample["partitions"] = json!([]);
        let short = Arc::<str>::from(sample.to_string());
        // The lock is held while sending, so that a page that connects now gets the sample once.
        let mut past = self.lock();
        past.last = Some(Arc::clone(&whole));
        keep(&mut past.samples, short, MAX_PAST_SAMPLES);
        self.send("sample", whole);
    }

    pub(super) fn decision(&self, decision: &Value) {
        let decision = Arc::<str>::from(decision.to_string());
        let mut past = self.lock();
        keep(&mut past.decisions, Arc::clone(&decision), MAX_PAST_DECISIONS);
        self.send("decision", decision);
    }

    fn send(&self, event: &'static str, data: Arc<str>) {
        // Sending fails if no page is open.
        let _ = self.live.send(Message { event, data });
    }

    /// Returns past events and a receiver of new ones.
    fn subscribe(&self) -> (Vec<Message>, Receiver<Message>) {
        let past = self.lock();
        let before = past.samples.len().saturating_sub(1);
        let samples: Vec<&str> =
            past.samples.iter().take(before).chain(&past.last).map(AsRef::as_ref).collect();
        let history = Message { event: "history", data: format!("[{}]", samples.join(",")).into() };
        let decisions =
            past.decisions.iter().map(|data| Message { event: "decision", data: Arc::clone(data) });
        (std::iter::once(history).chain(decisions).collect(), self.live.subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep(list: &mut VecDeque<Arc<str>>, data: Arc<str>, most: usize) {
    list.push_back(data);
    if list.len() > most {
        list.pop_front();
    }
}

pub(super) async fn stream(
    State(console): State<Console>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (past, live) = console.feed.subscribe();
    let live = stream::unfold(live, |mut live| async {
        loop {
            match live.recv().await {
                Ok(message) => return Some((message, live)),
                // The page continues with the next event.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let mut stopped = console.stopped;
    let until = async move {
        // A closed channel also means that the edition stopped.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let events = stream::iter(past).chain(live).take_until(Box::pin(until));
    let events = events.map(|it| Ok(Event::default().event(it.event).data(&*it.data)));
    Sse::new(events).keep_alive(KeepAlive::default())
}
