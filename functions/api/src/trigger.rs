//! What invokes a function.

/// The kind of event that invokes a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A request to the API.
    Http,
    /// An event of an alarm, a schedule or an operator.
    Event,
}
