//! The load of a Rust program with the crate, as the Python program makes it: tasks that wait.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sharding::ShardedTable;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{ITEM_BYTES, KEY};
use crate::traffic::{Generated, Meter, epoch_micros};

/// The writes that wait for a response at once.
const TASKS: usize = 64;
const TICK: Duration = Duration::from_millis(10);

/// A running program. It ends when this is dropped.
pub(super) struct RustProgram {
    rate: watch::Sender<u32>,
    task: JoinHandle<()>,
}

impl Drop for RustProgram {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RustProgram {
    pub(super) fn start(table: ShardedTable, generated: Generated, meter: Meter) -> Self {
        let (rate, rates) = watch::channel(0);
        Self { rate, task: tokio::spawn(write(table, rates, generated, meter)) }
    }

    /// Changes the load to this number of writes per second.
    pub(super) fn load(&self, writes: u32) {
        self.rate.send_replace(writes);
    }
}

async fn write(
    table: ShardedTable,
    rates: watch::Receiver<u32>,
    generated: Generated,
    meter: Meter,
) {
    let free = Arc::new(Semaphore::new(TASKS));
    let (mut last, mut owed, mut sort_key) = (Instant::now(), 0.0, 0);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let rate = f64::from(*rates.borrow());
        // Writes for which no task is free within a second are never sent.
        owed = rate.min(owed + last.elapsed().as_secs_f64() * rate);
        last = Instant::now();
        while owed >= 1.0
            && let Ok(permit) = Arc::clone(&free).try_acquire_owned()
        {
            owed -= 1.0;
            sort_key = epoch_micros().max(sort_key + 1);
            let (table, generated, meter) = (table.clone(), generated.clone(), meter.clone());
            tokio::spawn(async move {
                let _permit = permit;
                generated.sent_one();
                let began = Instant::now();
                let item = json!({ "data": "x".repeat(ITEM_BYTES as usize) });
                let put = table.put(KEY, sort_key.to_string(), item).await;
                meter.put(put.is_ok(), began.elapsed());
                match put {
                    Ok(_) => generated.stored_one(sort_key),
                    Err(_) => generated.failed_one(),
                }
            });
        }
    }
}
