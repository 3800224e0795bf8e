//! OpenTelemetry spans: one for each invocation, as a child of the trace in its X-Ray header, and
//! one for each SDK call. They are sent after the response, to a collector next to the function.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task;
use std::time::Duration;

use lambda_http::Error;
use lambda_http::lambda_runtime::layers::{OpenTelemetryFaasTrigger, OpenTelemetryLayer};
use lambda_http::lambda_runtime::{LambdaInvocation, Runtime};
use lambda_http::tower::Service;
use lambda_http::tower::layer::layer_fn;
use lambda_http::tracing::subscriber::filter::{EnvFilter, LevelFilter, filter_fn};
use lambda_http::tracing::subscriber::layer::{Layer, SubscriberExt};
use lambda_http::tracing::subscriber::util::SubscriberInitExt;
use lambda_http::tracing::subscriber::{Registry, fmt, registry};
use lambda_http::tracing::{Level, Metadata};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_aws::trace::{XrayIdGenerator, XrayPropagator};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tokio::time::Instant;

/// Variables that turn spans on. The exporter reads them, too.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
/// Variables that set the exporter's timeout. The default is [`EXPORT_TIMEOUT`].
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"];
/// The variable that selects the spans to send. The default is all.
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
/// The default timeout of an export. Spans are sent after the response, but before Lambda freezes
/// the function: the time is billed, and the next invocation waits for it.
const EXPORT_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the exporter pauses after a collector did not respond in time.
const PAUSE: Duration = Duration::from_secs(30);
const TRACE_HEADER: &str = "x-amzn-trace-id";
/// The prefix of the SDK's spans. The SDK opens a span for each call, at the level `DEBUG`.
const SDK: &str = "aws_sdk_";

#[derive(Debug)]
pub(crate) struct Spans(SdkTracerProvider);

impl Spans {
    /// Sets up the log and the spans. Returns `None` if no collector is named; the caller then sets
    /// up the log.
    pub(crate) fn start() -> Result<Option<Self>, Error> {
        if !ENDPOINTS.iter().any(|name| is_set(name)) {
            return Ok(None);
        }
        let mut exporter = opentelemetry_otlp::SpanExporter::builder().with_http();
        if !TIMEOUTS.iter().any(|name| is_set(name)) {
            exporter = exporter.with_timeout(EXPORT_TIMEOUT);
        }
        let mut provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter.build()?)
            .with_id_generator(XrayIdGenerator::default());
        if !is_set(SAMPLER) {
            // Lambda marks every trace as "not sampled" if X-Ray is not active. A user who names a
            // collector still wants the spans.
            provider = provider.with_sampler(Sampler::AlwaysOn);
        }
        let provider = provider.build();
        let spans = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer(env!("CARGO_PKG_NAME")))
            .with_filter(filter_fn(is_exported));
        registry().with(log()).with(spans).try_init()?;
        Ok(Some(Self(provider)))
    }

    pub(crate) async fn run<S>(self, runtime: Runtime<S>, is_http: bool) -> Result<(), Error>
    where
        S: Service<LambdaInvocation, Response = (), Error = Error>,
    {
        let provider = self.0;
        let paused_until = Arc::new(Mutex::new(None::<Instant>));
        let flush = move || {
            let mut paused_until = paused_until.lock().unwrap_or_else(PoisonError::into_inner);
            let began = Instant::now();
            if paused_until.is_some_and(|until| began < until) {
                return;
            }
            let flushed = provider.force_flush();
            let is_slow = flushed.is_err() || began.elapsed() >= EXPORT_TIMEOUT;
            *paused_until = is_slow.then(|| began + PAUSE);
            if let Err(error) = flushed {
                tracing::warn!(%error, "the spans of an invocation could not be sent");
            }
        };
        let other = OpenTelemetryFaasTrigger::Other;
        let trigger = if is_http { OpenTelemetryFaasTrigger::Http } else { other };
        // The last layer is the outermost, so its trace is the parent of the span that the first
        // layer opens.
        runtime
            .layer(OpenTelemetryLayer::new(flush).with_trigger(trigger))
            .layer(layer_fn(|inner| InXRayTrace { inner, propagator: XrayPropagator::new() }))
            .run()
            .await
    }
}

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.is_empty())
}

fn is_exported(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && (*metadata.level() <= Level::INFO || metadata.target().starts_with(SDK))
}

/// A log layer with the same format as the runtime's default subscriber.
fn log() -> Box<dyn Layer<Registry> + Send + Sync> {
    let level = std::env::var("AWS_LAMBDA_LOG_LEVEL").or_else(|_| std::env::var("RUST_LOG"));
    let level = level.ok().and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::INFO);
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let lines = fmt::layer().with_target(false).without_time();
    match std::env::var("AWS_LAMBDA_LOG_FORMAT") {
        Ok(name) if name.eq_ignore_ascii_case("json") => lines.json().with_filter(filter).boxed(),
        _ => lines.with_filter(filter).boxed(),
    }
}

/// Attaches the invocation's X-Ray trace to the current context while it calls the inner service.
struct InXRayTrace<S> {
    inner: S,
    propagator: XrayPropagator,
}

impl<S: Service<LambdaInvocation>> Service<LambdaInvocation> for InXRayTrace<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> task::Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, invocation: LambdaInvocation) -> S::Future {
        let trace = invocation.context.xray_trace_id.clone().unwrap_or_default();
        let carrier = HashMap::from([(TRACE_HEADER.to_owned(), trace)]);
        let _attached = self.propagator.extract(&carrier).attach();
        self.inner.call(invocation)
    }
}
