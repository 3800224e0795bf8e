//! The load that the page starts and stops.

use std::sync::{Mutex, MutexGuard, PoisonError};

use api::Problem;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Console;
use crate::http_api::to_axum;
use crate::traffic::{Generated, LoadPlan, Totals, generate};

/// The running load. There is at most one.
#[derive(Debug, Default)]
pub(super) struct Load(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    plan: LoadPlan,
    began: Instant,
    generated: Generated,
    /// Dropping it ends the load.
    task: JoinSet<()>,
}

/// The running load, as the page receives it.
#[derive(Serialize)]
pub(super) struct RunningLoad {
    #[serde(flatten)]
    pub(super) plan: LoadPlan,
    seconds: f64,
    #[serde(flatten)]
    totals: Totals,
}

impl Load {
    pub(super) fn running(&self) -> Option<RunningLoad> {
        let load = self.lock();
        load.as_ref().map(|running| RunningLoad {
            plan: running.plan.clone(),
            seconds: running.began.elapsed().as_secs_f64(),
            totals: running.generated.totals(),
        })
    }

    pub(super) fn stop(&self) {
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        let mut load = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A load stops by itself after its maximum duration.
        load.take_if(|running| running.task.try_join_next().is_some());
        load
    }
}

pub(super) async fn start(
    State(console): State<Console>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // A browser lets a page of another origin send JSON only after a preflight request.
    let given = headers.get("content-type").and_then(|value| value.to_str().ok());
    if given.and_then(|value| value.split(';').next()).map(str::trim) != Some("application/json") {
        return to_axum(Problem::media_type(given, &["application/json"], false).into_response());
    }
    let plan = match LoadPlan::parse(&body) {
        Ok(plan) => plan,
        Err(problem) => return to_axum(problem.into_response()),
    };
    let mut load = console.load.lock();
    if load.is_some() {
        let problem = Problem::conflict("load_runs", "a load is already running; stop it first");
        return to_axum(problem.into_response());
    }
    let generated = Generated::default();
    let (functions, mut task) = (console.functions.clone(), JoinSet::new());
    task.spawn(generate(functions, plan.clone(), generated.clone()));
    *load = Some(Running { plan: plan.clone(), began: Instant::now(), generated, task });
    to_axum(api::json(202, &plan))
}

pub(super) async fn stop(State(console): State<Console>) -> Response {
    console.load.stop();
    StatusCode::NO_CONTENT.into_response()
}
