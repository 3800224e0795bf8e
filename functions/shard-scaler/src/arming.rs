//! Direct events about armed keys: arm, disarm, status.

use serde_json::json;
use sharding::TableError;
use sharding::maintenance::{ArmingObstacle, KeyPattern};
use tokio::time::Instant as Deadline;

use crate::Scaler;
use crate::event::EventError;
use crate::response::{Failure, Handled, Outcome, Report};

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
        let armed = async {
            let found = maintenance.arming_obstacles().await?;
            let names = found.into_iter().map(ArmingObstacle::as_str);
            let not_allowed: Vec<_> =
                names.filter(|it| !allow.iter().any(|name| name == it)).collect();
            if !not_allowed.is_empty() {
                let names = not_allowed.join(", ");
                let reason = format!("the table has {names}: see docs/adopting.md, and allow it");
                return Ok((Outcome::Unchanged { reason }, None));
            }
            if self.config.dry_run {
                return Ok((Outcome::DryRun(json!({})), None));
            }
            Ok((Outcome::Handled, Some(maintenance.arm(&pattern).await?)))
        };
        Ok(report(&pattern, armed.await))
    }

    pub(crate) async fn disarm(&self, pattern: &str, deadline: Deadline) -> Handled {
        let pattern = parsed(pattern)?;
        if self.config.dry_run {
            return Ok(report(&pattern, Ok((Outcome::DryRun(json!({})), None))));
        }
        let disarmed = match self.maintenance(deadline).disarm(&pattern).await {
            Ok(()) => Ok((Outcome::Handled, None)),
            Err(TableError::ConditionFailed) => {
                let reason = "the table has no such pattern, or it counts, or will within minutes";
                Ok((Outcome::unchanged(reason), None))
            }
            Err(error) => Err(error),
        };
        Ok(report(&pattern, disarmed))
    }

    pub(crate) async fn status(&self, deadline: Deadline) -> Report {
        match self.maintenance(deadline).armed().await {
            Ok(armed) => {
                let patterns: serde_json::Map<_, _> = armed
                    .into_iter()
                    .map(|(pattern, from)| (pattern.to_string(), from.into()))
                    .collect();
                Report { outcome: Ok(Outcome::Handled), details: json!({ "armed": patterns }) }
            }
            Err(error) => Report::failed(Failure::of(&error, FAILED)),
        }
    }
}

fn parsed(pattern: &str) -> Result<KeyPattern, EventError> {
    pattern.parse().map_err(|error| EventError::new("pattern", error))
}

fn report(pattern: &KeyPattern, done: Result<(Outcome, Option<u64>), TableError>) -> Report {
    let mut details = json!({"pattern": pattern.to_string()});
    let outcome = match done {
        Ok((outcome, from)) => {
            if let Some(from) = from {
                tracing::info!(audit = true, pattern = %pattern, %from, "keys are armed");
                details["counts_from"] = from.into();
            }
            Ok(outcome)
        }
        Err(error) => Err(Failure::of(&error, FAILED)),
    };
    Report { outcome, details }
}
