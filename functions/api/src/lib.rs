//! The HTTP contract that the writer and the reader share: parameters, bodies, items as JSON,
//! problems, and the start of a function.

mod body;
mod etag;
mod header;
mod item;
mod media_type;
mod object;
mod patch;
mod payload;
mod problem;
mod query;
mod respond;
mod route;
mod run;
#[cfg(feature = "opentelemetry")]
mod spans;
mod start;
mod telemetry;
mod trigger;

/// The OpenAPI 3.1 description of the API, as YAML.
pub const OPENAPI: &str = include_str!("../openapi.yaml");

pub use aws_config::SdkConfig;
pub use body::{Body, MAX_BATCH_ITEMS, NewItem, attributes_body, item_body, items_body};
pub use etag::tagged;
pub use header::{conditions, create_only, idempotency_key, no_idempotency_key, unconditional};
pub use item::{ItemJson, SortKeyJson};
pub use lambda_http::{Request, Response};
pub use patch::patch_body;
pub use payload::{MAX_PAYLOAD_BYTES, escaped_len};
pub use problem::{Problem, cause, with_sources};
pub use query::{Parameters, flag, not_allowed, partition_key, sort_key};
pub use respond::{fitting_items, item, json, no_content, not_modified};
pub use route::{Function, Operation, no_route, route};
pub use run::{Tracing, serve};
pub use start::{Access, agree, aws_configuration, invocation_deadline, since_epoch};
pub use telemetry::{NAMESPACE, Telemetry, bare_table_name};
pub use trigger::Trigger;
