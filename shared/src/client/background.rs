//! The background work of a process that ends without [`close`](super::ShardedTable::close).

use crate::engine::TableEngine;

/// The state that all clones of a table share. Its drop shows that the last clone is gone.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) engine: TableEngine,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let tasks = self.engine.background_tasks();
        if tasks == 0 {
            return;
        }
        let growing: Vec<String> =
            self.engine.changing_keys().iter().map(ToString::to_string).collect();
        tracing::warn!(
            tasks,
            ?growing,
            "a sharded table was dropped with work in the background; if the process ends now, the keys that are growing wait for another \
             process to take over. Call ShardedTable::close first"
        );
    }
}
