//! The local edition: the functions' own handlers behind HTTP, over an embedded DynamoDB engine
//! with partition limits.

mod clients;
mod console;
mod decisions;
pub mod demo;
mod dynamodb_port;
mod edition;
mod guard;
mod http_api;
pub mod load;
mod traffic;
pub mod variables;
mod wake;

pub use clients::{clients_over, in_process_clients};
pub use edition::{Edition, EditionError, ServeOptions};
