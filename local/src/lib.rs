//! The laptop edition: the functions' own handlers behind HTTP, over an embedded DynamoDB engine with partition limits.

pub mod advise;
mod alarm;
mod clients;
mod console;
mod decisions;
pub mod demo;
mod drain;
mod dynamodb_port;
mod edition;
mod guard;
mod http_api;
pub mod load;
pub mod plan;
mod records;
mod shortage;
pub mod simulate;
mod tables;
mod traffic;
pub mod whole_table;

pub use clients::{Clients, clients_over, in_process_clients};
pub use edition::{Edition, EditionError, ServeOptions};
pub use records::RecordsError;
pub use tables::create_tables;
