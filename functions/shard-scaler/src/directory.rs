//! The directory: more copies of its pages on request, and the schedule's comparison with the metadata.

use serde_json::{Value, json};
use sharding::internal::{Deadline, MAX_COPIES};

use crate::Scaler;
use crate::failure::failed;
use crate::told::refused;

impl Scaler {
    /// Raises the number of copies of each page. A lower number than there is changes nothing.
    pub(crate) async fn raise_copies(&self, copies: i128, deadline: Deadline) -> Value {
        let Some(copies) = u32::try_from(copies).ok().filter(|copies| (1..=MAX_COPIES).contains(copies)) else {
            return refused("copies", format_args!("it is {copies}; allowed: 1 to {MAX_COPIES}"));
        };
        if self.config.dry_run {
            return json!({"action": "copies", "outcome": "dry-run", "copies": copies});
        }
        // Boxed: the SDK's futures nest deeply.
        match Box::pin(self.table.raise_directory_copies(copies, deadline)).await {
            Ok(()) => json!({"action": "copies", "outcome": "handled", "copies": copies}),
            Err(error) => {
                tracing::error!(%error, copies, "the copies of the directory could not be raised");
                failed(json!({"action": "copies", "copies": copies}), &error, error.is_retryable())
            }
        }
    }

    /// Writes to the pages what the metadata says and they do not: whoever changed a key may have stopped between the two. A failure is left to
    /// the next run.
    pub(crate) async fn repair_directory(&self, deadline: Deadline) {
        if self.config.dry_run {
            return;
        }
        match Box::pin(self.table.repair_directory(deadline)).await {
            Ok(behind) => tracing::info!(behind, "compared the directory with the metadata"),
            Err(error) => {
                tracing::error!(%error, "the directory could not be compared with the metadata; the next run tries again");
            }
        }
    }
}
