//! The directory: more copies of its pages on request, and the schedule's comparison with the
//! metadata.

use serde_json::json;
use sharding::maintenance::MAX_COPIES;
use tokio::time::Instant as Deadline;

use crate::Scaler;
use crate::event::WholeNumber;
use crate::response::{Handled, Outcome, Report};

impl Scaler {
    /// Raises the number of copies of each page. A lower number changes nothing.
    pub(crate) async fn raise_copies(&self, asked: WholeNumber, deadline: Deadline) -> Handled {
        let copies = u32::try_from(asked.0).ok().filter(|copies| (1..=MAX_COPIES).contains(copies));
        let allowed = format!("1 to {MAX_COPIES}");
        let copies = copies.ok_or_else(|| asked.refused("copies", allowed))?;
        let details = json!({"copies": copies});
        if self.config.dry_run {
            return Ok(Report { outcome: Outcome::DryRun(json!({})), details });
        }
        let raised = self.maintenance(deadline).raise_directory_copies(copies).await;
        let effect = "the copies of the directory could not be raised";
        let failed = |error| Outcome::of_error(&error, effect);
        Ok(Report { outcome: raised.map_or_else(failed, |()| Outcome::Handled), details })
    }

    /// Adds to the pages what the metadata has and they lack, because an actor that changed a key
    /// may have stopped between the two. The next run repeats a failure.
    pub(crate) async fn repair_directory(&self, deadline: Deadline) {
        if self.config.dry_run {
            return;
        }
        match self.maintenance(deadline).repair_directory().await {
            Ok(behind) => tracing::info!(behind, "compared the directory with the metadata"),
            Err(error) => {
                tracing::error!(%error, "the directory could not be compared with the metadata; the next run tries again");
            }
        }
    }
}
