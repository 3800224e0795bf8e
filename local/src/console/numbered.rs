//! A scaling decision, as the page receives it.

use serde::Serialize;

use crate::decisions::Decision;

#[derive(Debug, Serialize)]
pub(super) struct Numbered {
    pub(super) id: u64,
    /// Seconds since the Unix epoch.
    pub(super) at: f64,
    #[serde(flatten)]
    pub(super) decision: Decision,
}
