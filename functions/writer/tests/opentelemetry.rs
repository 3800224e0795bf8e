//! Runs the writer's binary with spans. The spans reach a collector, belong to the X-Ray trace of
//! the invocation, and contain no part of an item.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use local::ServeOptions;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use system_tests::{Function, TestEdition, config, event};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);
/// The trace that the runtime API passes to every invocation.
const TRACE_ID: &str = "5bef4de7ad49b0e87f6ef6c87fc2e700";
const PARENT: &str = "9a9197af755a6419";

/// An OTLP collector that forwards the bodies it receives.
async fn collector() -> (String, mpsc::Receiver<Bytes>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("the port is known"));
    let (send, received) = mpsc::channel(16);
    let take = async |State(send): State<mpsc::Sender<Bytes>>, body: Bytes| {
        send.send(body).await.expect("the test listens");
    };
    let routes = Router::new().route("/v1/traces", post(take)).with_state(send);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, received)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn spans(body: &Bytes) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(&body[..]).expect("an OTLP request");
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

#[tokio::test]
async fn an_invocation_and_its_calls_are_spans_of_its_trace() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let (url, mut received) = collector().await;
    let mut variables = Function::variables(&edition.dynamodb_url());
    variables.push(("OTEL_EXPORTER_OTLP_ENDPOINT", url));
    let mut writer = Function::start(env!("CARGO_BIN_EXE_writer"), &variables).await;
    assert_eq!(writer.invoke(event("writer-post-item")).await["statusCode"], 201);

    let body = timeout(PATIENCE, received.recv()).await.expect("in time").expect("spans");
    let spans = spans(&body);
    let named = |name: &str| spans.iter().find(|span| span.name == name).expect("a span");
    let (invocation, put) = (named("writer"), named("DynamoDB.PutItem"));
    assert_eq!(hex(&invocation.trace_id), TRACE_ID);
    assert_eq!(hex(&invocation.parent_span_id), PARENT);
    assert_eq!(hex(&put.trace_id), TRACE_ID);
    let sent = String::from_utf8_lossy(&body);
    for part in ["firetvGen2", "123456789101"] {
        assert!(!sent.contains(part), "neither keys nor attributes: {sent}");
    }

    // The response does not depend on the collector.
    drop(received);
    assert_eq!(writer.invoke(event("writer-post-item")).await["statusCode"], 201);
    let log = writer.stop().await;
    assert!(log.contains("\"ShardingWrites\""), "the metrics are written as before: {log}");
}

/// The collector accepts connections and never responds. One invocation waits half a second for it,
/// and the next ones do not wait.
#[tokio::test]
async fn a_collector_that_hangs_is_left_alone() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("the port is known"));
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            open.push(connection);
        }
    });
    let mut variables = Function::variables(&edition.dynamodb_url());
    variables.push(("OTEL_EXPORTER_OTLP_ENDPOINT", url));
    let mut writer = Function::start(env!("CARGO_BIN_EXE_writer"), &variables).await;
    let began = tokio::time::Instant::now();
    for _ in 0..6 {
        assert_eq!(writer.invoke(event("writer-post-item")).await["statusCode"], 201);
    }
    // The exporter's own timeout is five seconds, so six waits would take thirty.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
