//! A Lambda runtime API: real function binaries fetch events from it and send responses to it, as
//! on Lambda.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The time limit of a function's response in a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads a sample event of `events/`.
pub fn event(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../events").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// As [`event`], but with the current time as the time at which the alarms changed their state.
pub fn event_of_now(name: &str) -> Value {
    let now = aws_smithy_types::DateTime::from_secs_f64(wall_clock().as_secs_f64());
    let now = now.fmt(aws_smithy_types::date_time::Format::DateTime).expect("a current time");
    let text =
        STATE_CHANGES.iter().fold(event(name).to_string(), |text, time| text.replace(time, &now));
    serde_json::from_str(&text).expect("JSON, as before")
}

/// The machine's time, since the epoch.
#[expect(clippy::disallowed_methods, reason = "Lambda and alarms use wall-clock time")]
pub fn wall_clock() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// The times at which the alarms of the samples changed their state.
const STATE_CHANGES: [&str; 3] = [
    "2026-11-20T12:03:09.412+0000",
    "2026-11-20T12:09:09.401+0000",
    "2026-11-19T08:15:41.093+0000",
];
/// The headers of an event.
const HEADERS: [(&str, &str); 4] = [
    ("lambda-runtime-aws-request-id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd"),
    ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:123456789012:function:test"),
    (
        "lambda-runtime-trace-id",
        "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=0",
    ),
    ("content-type", "application/json"),
];
/// The environment variable that names a folder with other builds of the functions' binaries, in
/// the layout of `cargo lambda build` in `target/lambda`.
const BINARIES: &str = "FUNCTION_BINARIES";

/// A function's process. It is killed when dropped.
#[derive(Debug)]
pub struct Function {
    events: mpsc::Sender<String>,
    responses: mpsc::Receiver<Value>,
    process: Child,
    log: JoinHandle<String>,
    started: Instant,
    asked: watch::Receiver<Option<Instant>>,
}

#[derive(Clone)]
struct RuntimeApi {
    events: Arc<Mutex<mpsc::Receiver<String>>>,
    responses: mpsc::Sender<Value>,
    asked: watch::Sender<Option<Instant>>,
}

impl Function {
    /// Starts a binary as Lambda does, with these variables.
    pub async fn start(binary: &str, variables: &[(&str, String)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("the port is known");
        let (events, waiting) = mpsc::channel(1);
        let (sender, responses) = mpsc::channel(1);
        let (first, asked) = watch::channel(None);
        let state =
            RuntimeApi { events: Arc::new(Mutex::new(waiting)), responses: sender, asked: first };
        let routes = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/{kind}", post(receive_response))
            .route("/2018-06-01/runtime/init/error", post(StatusCode::ACCEPTED))
            .with_state(state);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let mut binary = PathBuf::from(binary);
        let name = binary.file_name().expect("the binary has a name").to_owned();
        if let Some(folder) = std::env::var_os(BINARIES) {
            binary = Path::new(&folder).join(&name).join("bootstrap");
        }
        let mut command = Command::new(&binary);
        command
            .env_clear()
            .env("AWS_LAMBDA_RUNTIME_API", address.to_string())
            .env("AWS_LAMBDA_FUNCTION_NAME", name)
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_LOG_STREAM_NAME", "test")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", "test")
            .env("AWS_LAMBDA_LOG_FORMAT", "JSON")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let started = Instant::now();
        let mut process =
            command.spawn().unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
        let mut stdout = process.stdout.take().expect("it is piped");
        let log = tokio::spawn(async move {
            let mut bytes = Vec::new();
            // The log is everything that the process wrote before its end.
            let _ = stdout.read_to_end(&mut bytes).await;
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Self { events, responses, process, log, started, asked }
    }

    /// The environment variables of a function that uses the tables at a DynamoDB-compatible URL.
    pub fn variables(endpoint_url: &str) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", endpoint_url.to_owned()),
            ("TABLE_NAME", "items".to_owned()),
            ("METADATA_TABLE_NAME", "items-metadata".to_owned()),
        ]
    }

    /// Invokes the function with an event, and returns its response.
    pub async fn invoke(&mut self, event: Value) -> Value {
        self.invoke_text(event.to_string()).await
    }

    /// As [`Function::invoke`], with text that may be invalid JSON.
    pub async fn invoke_text(&mut self, event: String) -> Value {
        self.events.send(event).await.expect("the runtime API runs");
        let response = tokio::time::timeout(PATIENCE, self.responses.recv()).await;
        response.expect("the function responds in time").expect("the runtime API runs")
    }

    /// Waits until the function asks for its first event, and returns the duration of its start.
    pub async fn ready(&mut self) -> Duration {
        let asked = tokio::time::timeout(PATIENCE, self.asked.wait_for(Option::is_some)).await;
        let asked = asked.expect("the function starts in time").expect("the runtime API runs");
        asked.map_or(Duration::ZERO, |at| at.duration_since(self.started))
    }

    /// The peak resident memory of the process, in kilobytes; 0 if the system does not report it.
    pub fn peak_kilobytes(&self) -> u64 {
        let peak = self.process.id().and_then(|id| peak_kilobytes(&id.to_string()));
        peak.unwrap_or_default()
    }

    /// Stops the function, and returns its log.
    pub async fn stop(mut self) -> String {
        self.process.kill().await.expect("the function is stopped");
        self.log.await.expect("its log was read")
    }

    /// Runs a binary that must fail to start, and returns its log.
    pub async fn refusal(binary: &str, variables: &[(&str, String)]) -> String {
        let function = Self::start(binary, variables).await;
        let output = tokio::time::timeout(PATIENCE, function.process.wait_with_output()).await;
        let output = output.expect("the function stops").expect("its log can be read");
        assert!(!output.status.success(), "the function must fail");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// The peak resident memory of a process, which may be `self`, in kilobytes; `None` if the system
/// does not report it.
pub fn peak_kilobytes(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

async fn next(State(api): State<RuntimeApi>) -> Result<impl IntoResponse, StatusCode> {
    api.asked.send_if_modified(|asked| {
        let first = asked.is_none();
        asked.get_or_insert_with(Instant::now);
        first
    });
    let event = api.events.lock().await.recv().await.ok_or(StatusCode::GONE)?;
    let deadline = (wall_clock() + Duration::from_secs(10)).as_millis().to_string();
    let deadline = [("lambda-runtime-deadline-ms", deadline)];
    Ok((deadline, HEADERS, event))
}

async fn receive_response(
    UrlPath((_, kind)): UrlPath<(String, String)>,
    State(api): State<RuntimeApi>,
    body: Bytes,
) -> impl IntoResponse {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let response =
        if kind == "error" { serde_json::json!({ "function_error": body }) } else { body };
    // The test may have ended.
    let _ = api.responses.send(response).await;
    (StatusCode::ACCEPTED, "{\"status\":\"OK\"}")
}
