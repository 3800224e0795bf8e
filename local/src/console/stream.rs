//! Server-sent events: the last two minutes at once, and then each second.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver};

use super::Console;
use super::decisions::Numbered;
use super::sample::Sample;

/// Seconds that a page begins with.
const SAMPLES: usize = 120;
/// Decisions that a page begins with.
const DECISIONS: usize = 50;
/// Events that wait for a slow page; it misses the oldest beyond these.
const WAITING: usize = 64;

/// An event as it is sent.
#[derive(Debug, Clone)]
struct Message {
    event: &'static str,
    data: Arc<str>,
}

/// What pages are shown.
#[derive(Debug)]
pub(super) struct Feed {
    past: Mutex<Past>,
    live: broadcast::Sender<Message>,
}

#[derive(Debug, Default)]
struct Past {
    samples: VecDeque<Arc<str>>,
    decisions: VecDeque<Arc<str>>,
}

impl Default for Feed {
    fn default() -> Self {
        Self { past: Mutex::default(), live: broadcast::Sender::new(WAITING) }
    }
}

impl Feed {
    pub(super) fn sample(&self, sample: &Sample) {
        self.add("sample", sample, |past| (&mut past.samples, SAMPLES));
    }

    pub(super) fn decision(&self, decision: &Numbered) {
        self.add("decision", decision, |past| (&mut past.decisions, DECISIONS));
    }

    fn add(
        &self,
        event: &'static str,
        value: &impl Serialize,
        kept: impl FnOnce(&mut Past) -> (&mut VecDeque<Arc<str>>, usize),
    ) {
        let data: Arc<str> = match serde_json::to_string(value) {
            Ok(text) => text.into(),
            Err(error) => return tracing::error!(%error, event, "an event for the console cannot be written"),
        };
        // Under the lock, so that a page that connects now gets it once.
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let (list, most) = kept(&mut past);
        list.push_back(Arc::clone(&data));
        if list.len() > most {
            list.pop_front();
        }
        // No page may be open.
        let _ = self.live.send(Message { event, data });
    }

    /// What has been, and what comes.
    fn subscribe(&self) -> (Vec<Message>, Receiver<Message>) {
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let samples: Vec<&str> = past.samples.iter().map(AsRef::as_ref).collect();
        let history = Message { event: "history", data: format!("[{}]", samples.join(",")).into() };
        let decisions = past.decisions.iter().map(|data| Message { event: "decision", data: Arc::clone(data) });
        (std::iter::once(history).chain(decisions).collect(), self.live.subscribe())
    }
}

pub(super) async fn stream(State(console): State<Console>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (past, live) = console.feed.subscribe();
    let live = stream::unfold(live, |mut live| async {
        loop {
            match live.recv().await {
                Ok(message) => return Some((message, live)),
                // The page goes on with what comes next.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let mut stopped = console.stopped;
    let until = async move {
        // An edition that has gone has stopped, too.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let events = stream::iter(past).chain(live).take_until(Box::pin(until));
    let events = events.map(|message| Ok(Event::default().event(message.event).data(&*message.data)));
    Sse::new(events).keep_alive(KeepAlive::default())
}
