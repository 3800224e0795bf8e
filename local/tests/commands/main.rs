//! The commands as processes: what they print, how they end, and that a killed one loses nothing.

mod demo;
mod endpoint_url;
mod shrinking_audit_log;
