//! A process that is frozen between two invocations, and whose clock is set back meanwhile.

use std::time::Duration;

use local::clients_over;
use sharding::internal::TableEngine;
use system_tests::{Fate, Tables, Wire, config, partition_key, soon, valued_item};

/// Neither clock shows that time has passed. The deadlines of the invocations do.
#[tokio::test(start_paused = true)]
async fn an_invocation_shows_that_a_lease_is_over() {
    let tables = Tables::unclaimed(config()).await;
    let wire = Wire::new(tables.connection(), |_| Fate::Pass);
    let table = TableEngine::new(&clients_over(wire.clone().into_shared()).dynamodb, config());
    let item = valued_item(partition_key("day"), "order-1", 1);
    let reads_metadata = async |ends_at: u64| {
        table.invoked(Duration::from_secs(ends_at));
        let before = wire.calls().len();
        table.put(&item, soon()).await.expect("stored");
        table.finish_background_work().await;
        wire.calls().split_off(before).iter().any(|call| !call.to_items)
    };
    assert!(reads_metadata(1_000).await);
    assert!(!reads_metadata(1_000).await, "the view is good");
    assert!(reads_metadata(1_002).await, "the lease is over");
}
