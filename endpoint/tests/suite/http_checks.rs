//! What the HTTP server lets through.
