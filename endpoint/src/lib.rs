//! A DynamoDB endpoint on this machine. It speaks DynamoDB's own protocol, so a program in any
//! language uses sharded keys by one variable. Requests about keys that are not armed pass as they
//! came; those about armed keys follow the protocol of the `sharding` crate.

mod batch;
mod entries;
mod expression;
mod grown;
mod item;
mod merged;
mod observed;
mod page;
mod position;
mod query;
mod read;
mod reply;
mod request;
mod scan;
mod served;
mod server;
mod service;
mod start;
mod table;
mod upstream;
mod write;

pub use observed::{Observed, observations};
pub use reply::Reply;
pub use served::Service;
pub use server::{Server, request_id};
pub use start::open;
pub use upstream::{Upstream, UpstreamError};
