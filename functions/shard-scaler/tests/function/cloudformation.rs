//! The place where CloudFormation takes answers: a local HTTP server that records them.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde_json::Value;
use tokio::net::TcpListener;

pub(crate) struct CloudFormation {
    url: String,
    recorder: Recorder,
}

#[derive(Clone)]
struct Recorder {
    status: StatusCode,
    answers: Arc<Mutex<Vec<Request<Bytes>>>>,
}

impl CloudFormation {
    /// Takes every answer with this status.
    pub(crate) async fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("the port is known"));
        let recorder = Recorder { status: status.try_into().expect("a status"), answers: Arc::default() };
        let routes = Router::new().fallback(take).with_state(recorder.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, recorder }
    }

    /// The event with a signed URL of this server in place of its own.
    pub(crate) fn ask(&self, mut event: Value) -> Value {
        event["ResponseURL"] = format!("{}/arn%3Aaws%7CExistingTable?Signature=s%2Fecret", self.url).into();
        event
    }

    /// The only answer, and its body.
    pub(crate) fn answer(&self) -> (Request<Bytes>, Value) {
        let answers = self.recorder.answers.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(answers.len(), 1, "{answers:?}");
        (answers[0].clone(), serde_json::from_slice(answers[0].body()).expect("JSON"))
    }
}

async fn take(State(recorder): State<Recorder>, request: Request) -> StatusCode {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 4_096).await.expect("the answer is whole, and not too long");
    recorder.answers.lock().unwrap_or_else(PoisonError::into_inner).push(Request::from_parts(parts, body));
    recorder.status
}
