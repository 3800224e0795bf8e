//! The ways in which a run can fail, and which failed requests are findings.

use std::fmt;

use sharding::maintenance::{DrainRefused, ScaleError};
use sharding::{ReadError, TableError};

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A promise was broken: the product is wrong, or a broken build was simulated. The first line
    /// names the promise; the others list the writes that reached the table of that item.
    Violation(String),
    /// The simulation itself failed, so the run proves nothing about the product. Fix the
    /// simulation.
    Harness(String),
}

impl Failure {
    /// The simulation cannot go on because of this error.
    pub(super) fn harness(error: impl fmt::Display) -> Self {
        Self::Harness(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(what) => write!(f, "violation: {what}"),
            Self::Harness(what) => write!(f, "the simulation failed: {what}"),
        }
    }
}

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

/// How the simulation handles a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// Capacity or a response is missing: try again.
    TryAgain,
    /// Another instance changes the key: try again, for a limited time.
    Busy,
    /// The simulation never causes this error.
    Unexpected,
}

/// An error of the product, with its class.
pub(super) trait Classified: fmt::Display {
    fn class(&self) -> ErrorClass;

    /// A finding, if the simulation never causes this error.
    fn finding(&self, step: &str) -> Option<Finding> {
        (self.class() == ErrorClass::Unexpected)
            .then(|| Finding::new(format!("I6: {step} fails for good: {self}")))
    }
}

impl Classified for TableError {
    fn class(&self) -> ErrorClass {
        if self.is_retryable() { ErrorClass::TryAgain } else { ErrorClass::Unexpected }
    }
}

impl Classified for ReadError {
    fn class(&self) -> ErrorClass {
        if self.is_retryable() { ErrorClass::TryAgain } else { ErrorClass::Unexpected }
    }
}

impl Classified for ScaleError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Table(error) => error.class(),
            // The width has changed meanwhile.
            Self::Lower { .. } => ErrorClass::Busy,
            Self::TooMany { .. } | _ => ErrorClass::Unexpected,
        }
    }
}

impl Classified for DrainRefused {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Table(error) => error.class(),
            Self::Busy(_) | Self::NotLower { .. } => ErrorClass::Busy,
            Self::NoHomes | _ => ErrorClass::Unexpected,
        }
    }
}
