//! The commands as processes: what they print, and how they end.

mod advise;
mod closed_pipe;
mod plan;
