//! The commands as processes: their output and exit codes.

mod advise;
mod closed_pipe;
mod plan;
