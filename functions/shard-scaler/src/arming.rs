//! Direct events about armed keys: arm, disarm, status.

use serde_json::json;
use sharding::TableError;
use sharding::maintenance::{ArmingObstacle, KeyPattern};
use tokio::time::Instant as Deadline;

use crate::Scaler;
use crate::event::EventError;
use crate::response::{Handled, Outcome, Report};

const FAILED: &str = "the armed keys could not be read or changed";

impl Scaler {
    /// Arms the keys of a pattern, unless the table has something that does not fit, and the event
    /// does not allow it.
    pub(crate) async fn arm(&self, pattern: &str, allow: &[String], deadline: Deadline) -> Handled {
        let pattern = parsed(pattern)?;
        let is_known = |name: &String| ArmingObstacle::NAMES.iter().any(|(known, _)| known == name);
        if let Some(unknown) = allow.iter().find(|name| !is_known(name)) {
            let why = format!("it has {unknown:?}; allowed: replicas, stream, index and metadata");
            return Err(EventError::new("allow", why));
        }
        let maintenance = self.maintenance(deadline);
        let mut details = json!({"pattern": pattern.to_string()});
        let armed = async {
            let found = maintenance.arming_obstacles().await?;
            let names = found.into_iter().map(ArmingObstacle::as_str);
            let not_allowed: Vec<_> =
                names.filter(|it| !allow.iter().any(|name| name == it)).collect();
            if !not_allowed.is_empty() {
                let names = not_allowed.join(", ");
                let reason = format!("the table has {names}: see docs/adopting.md, and allow it");
                return Ok(Outcome::Unchanged { reason });
            }
            if self.config.dry_run {
                return Ok(Outcome::DryRun(json!({})));
            }
            let from = maintenance.arm(&pattern).await?;
            tracing::info!(audit = true, pattern = %pattern, %from, "keys are armed");
            details["counts_from"] = from.into();
            Ok::<_, TableError>(Outcome::Handled)
        };
        let outcome = armed.await.unwrap_or_else(|error| Outcome::of_error(&error, FAILED));
        Ok(Report { outcome, details })
    }

    pub(crate) async fn disarm(&self, pattern: &str, deadline: Deadline) -> Handled {
        let pattern = parsed(pattern)?;
        let details = json!({"pattern": pattern.to_string()});
        if self.config.dry_run {
            return Ok(Report { outcome: Outcome::DryRun(json!({})), details });
        }
        let outcome = match self.maintenance(deadline).disarm(&pattern).await {
            Ok(()) => Outcome::Handled,
            Err(TableError::ConditionFailed) => {
                let reason = "the table has no such pattern, or it counts, or will within minutes";
                Outcome::unchanged(reason)
            }
            Err(error) => Outcome::of_error(&error, FAILED),
        };
        Ok(Report { outcome, details })
    }

    pub(crate) async fn status(&self, deadline: Deadline) -> Report {
        match self.maintenance(deadline).armed().await {
            Ok(armed) => {
                let patterns: serde_json::Map<_, _> = armed
                    .into_iter()
                    .map(|(pattern, from)| (pattern.to_string(), from.into()))
                    .collect();
                Report { outcome: Outcome::Handled, details: json!({ "armed": patterns }) }
            }
            Err(error) => Report::of(Outcome::of_error(&error, FAILED)),
        }
    }
}

fn parsed(pattern: &str) -> Result<KeyPattern, EventError> {
    pattern.parse().map_err(|error| EventError::new("pattern", error))
}
