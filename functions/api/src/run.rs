//! A function's process: its log, its spans where they are compiled in, and the loop that takes invocations.

use aws_config::SdkConfig;
use lambda_http::lambda_runtime::{LambdaInvocation, Runtime};
use lambda_http::tower::Service;
use lambda_http::{Body, Error, Request, RequestExt, Response, service_fn};
use sharding::internal::{Deadline, TableEngine};

use crate::start::{Access, invocation_deadline, start_table};
use crate::telemetry::Telemetry;

/// What invokes a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A request to the API.
    Http,
    /// An alarm, a schedule or a person.
    Event,
}

/// The log and the spans of a process.
#[derive(Debug)]
pub struct Tracing {
    #[cfg(feature = "opentelemetry")]
    spans: Option<crate::spans::Spans>,
}

impl Tracing {
    /// Writes the log as `AWS_LAMBDA_LOG_FORMAT` and `AWS_LAMBDA_LOG_LEVEL` say. With the feature `opentelemetry`, spans go to
    /// the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names, if it names one. Once in a process.
    ///
    /// # Errors
    /// Where an `OTEL_*` variable is wrong.
    pub fn start() -> Result<Self, Error> {
        #[cfg(feature = "opentelemetry")]
        if let Some(spans) = crate::spans::Spans::start()? {
            return Ok(Self { spans: Some(spans) });
        }
        lambda_http::tracing::init_default_subscriber();
        Ok(Self {
            #[cfg(feature = "opentelemetry")]
            spans: None,
        })
    }

    /// Takes invocations for ever.
    ///
    /// # Errors
    /// Where the runtime API fails.
    pub async fn run<S>(self, runtime: Runtime<S>, trigger: Trigger) -> Result<(), Error>
    where
        S: Service<LambdaInvocation, Response = (), Error = Error>,
    {
        #[cfg(feature = "opentelemetry")]
        if let Some(spans) = self.spans {
            return spans.run(runtime, trigger).await;
        }
        #[cfg(not(feature = "opentelemetry"))]
        let _ = trigger;
        runtime.layer(lambda_http::lambda_runtime::layers::TracingLayer::new()).run().await
    }
}

/// Serves the routes of one function on Lambda, with the table that the environment describes. `started` is called
/// once, before the first invocation, and may begin what goes on beside them.
///
/// # Errors
/// Where a variable is wrong, the function and the table do not agree on what the table takes, or the runtime API fails.
pub async fn serve<S, H, F>(access: Access, started: S, handle: H) -> Result<(), Error>
where
    S: FnOnce(&'static TableEngine, &SdkConfig),
    H: Fn(&'static TableEngine, Request, Deadline) -> F + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let tracing = Tracing::start()?;
    let (table, aws) = start_table(access).await?;
    // For the whole life of the process.
    let table: &'static TableEngine = Box::leak(Box::new(table));
    let telemetry = Telemetry::start(&table.config().table_name)?;
    started(table, &aws);
    let runtime = lambda_http::runtime(service_fn(move |request: Request| {
        let context = request.lambda_context();
        let answer = handle(table, request, invocation_deadline(&context));
        async move {
            let response = answer.await;
            telemetry.flush(&context);
            Ok::<_, Error>(response)
        }
    }));
    tracing.run(runtime, Trigger::Http).await
}
