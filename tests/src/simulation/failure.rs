//! How a run can fail, and what makes a failed request a finding.

use std::fmt;

use sharding::internal::{DrainRefused, ReadError, ScaleError, TableError};

/// Why a run did not come to a good end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A promise was broken: the product is wrong, or was made so on purpose. The first line says what; the rest is what reached the
    /// table of that item.
    Violation(String),
    /// The simulation itself could not go on: nothing is known of the product. Mend the simulation.
    Harness(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(what) => write!(f, "violation: {what}"),
            Self::Harness(what) => write!(f, "the simulation failed: {what}"),
        }
    }
}

/// A promise that a check has found broken.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) what: String,
    /// Of which item, if it is about one.
    pub(super) sort_key: Option<String>,
}

impl Finding {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), sort_key: None }
    }

    pub(super) fn of(sort_key: &str, what: impl Into<String>) -> Self {
        Self { what: what.into(), sort_key: Some(sort_key.to_owned()) }
    }

    /// With the step that found it.
    pub(super) fn during(self, step: &str) -> Self {
        Self { what: format!("{step}: {}", self.what), ..self }
    }
}

/// What a failed request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// Capacity or a response did not come: try again.
    TryAgain,
    /// Somebody else is at the key: try again, but not for ever.
    Busy,
    /// Nothing that the simulation does may lead to it.
    IsWrong,
}

/// An error of the product, judged.
pub(super) trait Judged: fmt::Display {
    fn says(&self) -> Says;

    /// A finding, where nothing that the simulation does may lead to this error.
    fn finding(&self, step: &str) -> Option<Finding> {
        (self.says() == Says::IsWrong).then(|| Finding::new(format!("I6: {step} fails for good: {self}")))
    }
}

impl Judged for TableError {
    fn says(&self) -> Says {
        if self.is_retryable() { Says::TryAgain } else { Says::IsWrong }
    }
}

impl Judged for ReadError {
    fn says(&self) -> Says {
        match self {
            Self::Capacity(_) => Says::TryAgain,
            Self::Table(error) => error.says(),
        }
    }
}

impl Judged for ScaleError {
    fn says(&self) -> Says {
        match self {
            Self::Table(error) => error.says(),
            // The width has changed meanwhile.
            Self::Lower { .. } => Says::Busy,
            Self::TooMany { .. } => Says::IsWrong,
        }
    }
}

impl Judged for DrainRefused {
    fn says(&self) -> Says {
        match self {
            Self::Table(error) => error.says(),
            Self::Busy(_) | Self::NotLower { .. } => Says::Busy,
            Self::NoHomes | Self::NotAdopting => Says::IsWrong,
        }
    }
}
