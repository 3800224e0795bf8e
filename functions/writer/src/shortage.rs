//! Reports that a table is short of partitions.
//!
//! Writers report a shortage because only they detect it at once: a CloudWatch alarm fires a minute
//! or more after the first throttle, and the raise itself takes more minutes. This module does not
//! limit the rate of events: for each key, one of all instances that detect the shortage has the
//! event, every few seconds while the shortage lasts.

use sharding::maintenance::{ScalingDecision, ScalingEvent, ScalingReason, ScalingStep};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Calls `report` for each event about a table that is short of partitions, with the warm
/// throughput that the table needs, in write units per second. It makes one call at a time. Of the
/// events that arrive during a call, it reports the highest need next. It returns when the table is
/// dropped.
///
/// `now_seconds` returns the seconds since the Unix epoch.
pub async fn watch<R>(
    mut events: Receiver<ScalingEvent>,
    now_seconds: impl Fn() -> u64,
    report: impl Fn(u64) -> R,
) where
    R: Future<Output = ()>,
{
    loop {
        let mut most = match events.recv().await {
            Ok(event) => needed(&event, now_seconds()),
            // Missed events are repeated.
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        loop {
            match events.try_recv() {
                Ok(event) => most = most.max(needed(&event, now_seconds())),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        if let Some(write_units) = most {
            report(write_units).await;
        }
    }
}

/// The write units that an event requires.
fn needed(event: &ScalingEvent, now_seconds: u64) -> Option<u64> {
    let ScalingStep::Unchanged(ScalingDecision::ShortOfPartitions { until, write_units }) =
        event.step
    else {
        return None;
    };
    // The shard-scaler handles its own reports, for all keys of a report together.
    let is_own = !matches!(event.reason, ScalingReason::Reported { .. });
    // Lambda may have frozen this process before it handled the event. A raise cannot be undone, so
    // a shortage that may be over must not request one.
    write_units.filter(|_| is_own && now_seconds <= until)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::ready;

    use sharding::maintenance::Pressure;
    use sharding::{PartitionKey, ShardCount};
    use tokio::sync::broadcast::{Sender, channel};

    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn seen() -> ScalingReason {
        ScalingReason::Throttled(Pressure::default())
    }

    fn event(step: ScalingStep, reason: ScalingReason) -> ScalingEvent {
        let partition_key = PartitionKey::new("hot").unwrap();
        ScalingEvent { partition_key, from: ShardCount::ONE, step, reason }
    }

    fn short(until: u64, write_units: Option<u64>) -> ScalingStep {
        ScalingStep::Unchanged(ScalingDecision::ShortOfPartitions { until, write_units })
    }

    fn send(events: &Sender<ScalingEvent>, units: &[u64]) {
        for units in units {
            events.send(event(short(NOW + 5, Some(*units)), seen())).unwrap();
        }
    }

    #[test]
    fn only_a_current_shortage_seen_by_a_writer_requires_units() {
        let reported = ScalingReason::Reported { throttled: 100 };
        let rows = [
            (short(NOW + 5, Some(24_000)), seen(), Some(24_000)),
            (short(NOW, Some(24_000)), seen(), Some(24_000)),
            (short(NOW - 1, Some(24_000)), seen(), None),
            (short(NOW + 5, None), seen(), None),
            (short(NOW + 5, Some(24_000)), reported, None),
            (ScalingStep::Unchanged(ScalingDecision::AtMaximum), seen(), None),
            (ScalingStep::Opened(ShardCount::ONE), seen(), None),
        ];
        for (step, reason, expected) in rows {
            assert_eq!(needed(&event(step, reason), NOW), expected, "{step:?} {reason:?}");
        }
    }

    /// The reports, if these units are needed at first, and those during the first report.
    async fn reported(capacity: usize, first: &[u64], during: &[u64]) -> Vec<u64> {
        let (events, receiver) = channel(capacity);
        send(&events, first);
        let (reported, rest) = (RefCell::new(Vec::new()), Cell::new(Some(events)));
        let report = |units| {
            reported.borrow_mut().push(units);
            if let Some(events) = rest.take() {
                send(&events, during);
            }
            ready(())
        };
        watch(receiver, || NOW, report).await;
        reported.into_inner()
    }

    #[tokio::test]
    async fn events_during_a_report_become_one_report_of_the_highest_need() {
        let reported = reported(16, &[8_000], &[5_000, 24_000, 9_000]).await;
        assert_eq!(reported, [8_000, 24_000]);
    }

    #[tokio::test]
    async fn a_watcher_that_misses_events_goes_on_with_the_next() {
        assert_eq!(reported(2, &[1_000, 9_000, 5_000, 6_000], &[]).await, [6_000]);
    }
}
