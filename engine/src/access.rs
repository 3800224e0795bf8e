//! The two kinds of requests that a partition limits.

/// Partitions limit reads and writes independently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// A request that consumes read units.
    Read,
    /// A request that consumes write units.
    Write,
}
