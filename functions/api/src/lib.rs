//! The HTTP contract that the writer and the reader share: parameters, bodies, items as JSON,
//! problems, and the start of a function.

mod body;
mod item;
mod request;
mod response;
mod start;

/// The OpenAPI 3.1 description of the API, as YAML.
pub const OPENAPI: &str = include_str!("../openapi.yaml");

pub use aws_config::SdkConfig;
pub use body::{
    MAX_PAYLOAD_BYTES, NewItem, attributes_body, body_too_large, escaped_len, fitting_items, item,
    item_body, items_body, patch_body,
};
pub use item::{ItemJson, SortKeyJson};
pub use lambda_http::{Request, Response};
pub use request::{
    Function, Operation, Parameters, conditions, create_only, flag, idempotency_key,
    no_idempotency_key, no_route, not_allowed, partition_key, route, sort_key, unconditional,
};
pub use response::{Problem, cause, json, no_content, not_modified, tagged, with_sources};
pub use start::{
    Access, Telemetry, agree, aws_configuration, bare_table_name, invocation_deadline, serve,
    since_epoch,
};
