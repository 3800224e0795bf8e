//! Broken promises, and which failed requests are findings.

use std::fmt;

use sharding::maintenance::{DrainRefused, ScaleError};
use sharding::{ReadError, TableError};

/// A broken promise.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) what: String,
    /// The sort key of the item, if the finding is about one item.
    pub(super) sort_key: Option<String>,
}

impl Finding {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), sort_key: None }
    }

    pub(super) fn of(sort_key: &str, what: impl Into<String>) -> Self {
        Self { what: what.into(), sort_key: Some(sort_key.to_owned()) }
    }

    /// Adds the step that found it.
    pub(super) fn during(self, step: &str) -> Self {
        Self { what: format!("{step}: {}", self.what), ..self }
    }
}

/// An error of the product.
pub(super) trait Classified: fmt::Display {
    /// Whether to try again: capacity or a response is missing, or another instance changes the
    /// key. The simulation never causes any other error.
    fn is_transient(&self) -> bool;
}

impl Classified for TableError {
    fn is_transient(&self) -> bool {
        self.is_retryable()
    }
}

impl Classified for ReadError {
    fn is_transient(&self) -> bool {
        self.is_retryable()
    }
}

impl Classified for ScaleError {
    fn is_transient(&self) -> bool {
        match self {
            Self::Table(error) => error.is_retryable(),
            // The width has changed meanwhile.
            Self::Lower { .. } => true,
            Self::TooMany { .. } | _ => false,
        }
    }
}

impl Classified for DrainRefused {
    fn is_transient(&self) -> bool {
        match self {
            Self::Table(error) => error.is_retryable(),
            Self::Busy(_) | Self::NotLower { .. } => true,
            Self::NoHomes | _ => false,
        }
    }
}
