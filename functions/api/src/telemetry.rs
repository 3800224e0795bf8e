//! Metrics in CloudWatch's embedded metric format. They are written to the log after each
//! invocation.

use lambda_http::lambda_runtime::Context;
use metrics_cloudwatch_embedded::{Builder, Collector};

/// The namespace of all metrics.
pub const NAMESPACE: &str = "DynamoDBWriteSharding";

/// The name within an ARN, or the name itself. CloudWatch identifies a table by it.
#[must_use]
pub fn bare_table_name(configured: &str) -> &str {
    configured.rsplit_once(":table/").map_or(configured, |(_, bare)| bare)
}

/// Collects the table's metrics.
#[derive(Clone, Copy)]
pub struct Telemetry(&'static Collector);

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Telemetry").finish()
    }
}

impl Telemetry {
    /// Collects all metrics of this process, with the table as their dimension. Call it once in a
    /// process.
    ///
    /// # Errors
    /// Fails if a recorder is already installed.
    pub fn start(table_name: &str) -> Result<Self, lambda_http::Error> {
        let name = bare_table_name(table_name).to_owned();
        let collector =
            Builder::new().cloudwatch_namespace(NAMESPACE).with_dimension("TableName", name).init();
        collector.map(Self).map_err(|error| error.to_string().into())
    }

    /// Writes the metrics since the last call, in a process that is not invoked.
    pub fn flush_period(self) {
        if let Err(error) = self.0.flush(std::io::stdout()) {
            tracing::warn!(%error, "the metrics of a period could not be written");
        }
    }

    /// Writes the metrics of one invocation, with its request and trace as properties.
    pub fn flush(self, context: &Context) {
        self.0.set_property("RequestId", context.request_id.clone());
        if let Some(trace) = &context.xray_trace_id {
            self.0.set_property("XRayTraceId", trace.clone());
        }
        if let Err(error) = self.0.flush(std::io::stdout()) {
            tracing::warn!(%error, "the metrics of an invocation could not be written");
        }
    }
}
