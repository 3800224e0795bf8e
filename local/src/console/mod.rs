//! The console: a page that shows the edition's live activity and generates load.

mod decisions;
mod load;
mod page;
mod sampler;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use embedded_dynamodb::Engine;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::http_api::Functions;
use load::Load;
use stream::Feed;

#[derive(Debug, Clone)]
pub(crate) struct Console {
    functions: Functions,
    feed: Arc<Feed>,
    load: Arc<Load>,
    /// Becomes true when the edition stops; streams then end.
    stopped: watch::Receiver<bool>,
}

impl Console {
    pub(crate) fn new(functions: Functions, stopped: watch::Receiver<bool>) -> Self {
        Self { functions, feed: Arc::default(), load: Arc::default(), stopped }
    }

    /// Starts the tasks that sample the edition once a second and listen for decisions.
    pub(crate) fn watch(&self, engine: Option<Engine>, tasks: &mut JoinSet<()>) {
        let (load, feed) = (Arc::clone(&self.load), Arc::clone(&self.feed));
        tasks.spawn(sampler::sample(self.functions.clone(), engine, load, feed));
        let events = self.functions.table.maintenance().events();
        tasks.spawn(decisions::listen(events, Arc::clone(&self.feed)));
    }

    pub(crate) fn stop_load(&self) {
        self.load.stop();
    }

    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/", get(page::entrance))
            .route("/console", get(page::index))
            .route("/console/", get(page::entrance))
            .route("/console/stream", get(stream::stream))
            .route("/console/load", post(load::start).delete(load::stop))
            .route("/console/{*path}", get(page::file))
            .with_state(self)
    }
}
