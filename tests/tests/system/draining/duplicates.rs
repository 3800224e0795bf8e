//! Requests that are applied twice, the second time long after their repetition was acknowledged.

use std::time::Duration;

use sharding::{Conditions, ETags, Merge, Patch, TableConfig, Value};
use system_tests::{Call, Fate, OneItem, numbered, scan_stored, soon, sort_key};
use tokio::time::sleep;

use crate::one_key::{fixture, fixture_over, get, item, key};

/// The time until the first attempt arrives: within the validity of its signature, and after the
/// drain has ended.
const LATE: Duration = Duration::from_secs(850);

/// The first put is late.
fn late(call: &Call) -> Fate {
    match (call.to_items, call.operation.as_str(), call.before) {
        (true, "PutItem", 0) => Fate::Late(LATE),
        _ => Fate::Pass,
    }
}

/// The key never grows. The first attempt of a put arrives after its repetition was acknowledged,
/// and the item updated or written again, and deleted.
#[tokio::test(start_paused = true)]
async fn a_late_first_attempt_does_not_bring_a_deleted_item_back() {
    let two = || Value::N("2".into());
    let merge = [("state".to_owned(), Merge::Set(two()))].into();
    let add = [("state".to_owned(), two())].into();
    let merge = Patch { merge, ..Patch::default() };
    let add = Patch { add, ..Patch::default() };
    let rows = [(None, false), (None, true), (Some(merge), false), (Some(add), false)];
    for (patch, is_written_again) in rows {
        let expires = |of_table: &mut TableConfig| of_table.ttl_attribute = Some("expires".into());
        let fixture = fixture_over(late, expires).await;
        let (key, sort_key) = (key(), sort_key("order-1"));
        let delete = async || {
            fixture.table.delete(&key, &sort_key, soon()).await.expect("deleted");
            scan_stored(&fixture.tables.client).await
        };
        fixture.table.put(&item("order-1", 1), soon()).await.expect("stored");
        if let Some(patch) = &patch {
            let none = Conditions::default();
            let updated = fixture.table.update((&key, &sort_key), patch, &none, None, soon()).await;
            updated.expect("updated");
        }
        if is_written_again {
            fixture.table.put(&item("order-1", 2), soon()).await.expect("stored");
            delete().await;
            fixture.table.create(&item("order-1", 2), None, soon()).await.expect("created");
        }
        let stored = delete().await;
        assert_eq!(stored.len(), 1, "{patch:?}, written again: {is_written_again}");
        assert_eq!(stored[0].get("expires"), stored[0].get("_sh:l"), "{patch:?}: it ends");
        sleep(LATE + Duration::from_secs(10)).await;
        assert_eq!(get(&fixture.table, "order-1").await, None, "{patch:?}");
        // Later, deletions leave nothing again.
        sleep(LATE).await;
        fixture.table.put(&item("order-1", 3), soon()).await.expect("stored");
        assert_eq!(delete().await.len(), 0, "{patch:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn deletions_leave_tombstones_for_a_while_after_a_settle() {
    let fixture = fixture(|_| {}).await;
    fixture.store(numbered(0..40)).await;
    fixture.grow(8).await;
    fixture.table.until(soon()).settle(&key()).await.expect("it begins");
    fixture.drain().await;
    // With a version, a deletion must not remove the item either.
    let (first, second) = (sort_key("order-0001"), sort_key("order-0002"));
    fixture.table.delete(&key(), &first, soon()).await.expect("deleted");
    let found = fixture.table.get_tagged(&key(), &second, true, soon()).await.expect("a response");
    let tags = ETags::Of(vec![found.expect("an item").1]);
    let conditions = Conditions { matches: Some(tags), differs: None };
    fixture.table.delete_if(&key(), &second, &conditions, soon()).await.expect("deleted");
    assert_eq!((fixture.stored().await, fixture.all().await.len()), (40, 38));
    // They hide nothing from a creation, which replaces one. The purge removes the other.
    fixture.table.create(&item("order-0001", 5), None, soon()).await.expect("created");
    fixture.wait_out_the_change().await;
    fixture.wait_out_the_change().await;
    fixture.drain().await;
    assert_eq!((fixture.stored().await, fixture.all().await.len()), (39, 39));
    fixture.table.delete(&key(), &first, soon()).await.expect("deleted");
    assert_eq!((fixture.stored().await, fixture.all().await.len()), (38, 38));
}
