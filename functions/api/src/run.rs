//! A function's process: its log, its spans if they are compiled in, and the invocation loop.

use std::time::Duration;

use aws_config::SdkConfig;
use lambda_http::lambda_runtime::{LambdaInvocation, Runtime};
use lambda_http::tower::Service;
use lambda_http::{Body, Error, Request, RequestExt, Response, service_fn};
use sharding::{ShardedTable, TableConfig};
use tokio::time::Instant as Deadline;

use crate::start::{Access, agree, aws_configuration, invocation_deadline};
use crate::telemetry::Telemetry;
use crate::trigger::Trigger;

/// The log and the spans of a process.
#[derive(Debug)]
pub struct Tracing {
    #[cfg(feature = "opentelemetry")]
    spans: Option<crate::spans::Spans>,
}

impl Tracing {
    /// Sets up the log with the format `AWS_LAMBDA_LOG_FORMAT` and the level
    /// `AWS_LAMBDA_LOG_LEVEL`. With the feature `opentelemetry`, spans are sent to the collector
    /// that `OTEL_EXPORTER_OTLP_ENDPOINT` names, if it is set. Call it once in a process.
    ///
    /// # Errors
    /// Fails if an `OTEL_*` variable is wrong.
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

    /// Handles invocations forever.
    ///
    /// # Errors
    /// Fails if the runtime API fails.
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

/// Serves the routes of one function on Lambda, with the table that the environment describes.
/// `started` is called once, before the first invocation, and may start background tasks.
///
/// # Errors
/// Fails if a variable is wrong, if the function and the table disagree on which writes the table
/// accepts, or if the runtime API fails.
pub async fn serve<S, H, F>(access: Access, started: S, handle: H) -> Result<(), Error>
where
    S: FnOnce(&'static ShardedTable, &SdkConfig),
    H: Fn(&'static ShardedTable, Request, Deadline) -> F + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let tracing = Tracing::start()?;
    let config = TableConfig::from_variables(|name| std::env::var(name).ok())?;
    let aws = aws_configuration().await;
    let table = ShardedTable::new(&aws_sdk_dynamodb::Client::new(&aws), config);
    agree(&table, access).await?;
    // The table lives as long as the process.
    let table: &'static ShardedTable = Box::leak(Box::new(table));
    let telemetry = Telemetry::start(&table.config().table_name)?;
    started(table, &aws);
    let runtime = lambda_http::runtime(service_fn(move |request: Request| {
        let context = request.lambda_context();
        table.invoked(Duration::from_millis(context.deadline));
        let handled = handle(table, request, invocation_deadline(&context));
        async move {
            let response = handled.await;
            telemetry.flush(&context);
            Ok::<_, Error>(response)
        }
    }));
    tracing.run(runtime, Trigger::Http).await
}
