//! Runs the commands as processes. Checks their output, their exit status, and that a killed
//! process loses nothing.

mod demo;
mod dynamodb_port;
mod endpoint_url;
mod killed;
