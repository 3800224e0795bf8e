//! The first process of a table creates its table item and its directory, but only for a new table.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use embedded_dynamodb::InProcess;
use local::in_process_clients;
use sharding::internal::{TableEngine, protocol::directory::PAGES};
use sharding::{TableError, WriteErrorKind};
use system_tests::metadata::{self, TABLE_ITEM, number, number_of, page_copy};
use system_tests::{Call, Fate, Tables, Wire, config, count, numbered, soon, store_plainly};
use tokio::time::sleep;

use super::{Expected, assert_finds, item, key, put, store};

/// Asserts that the table item and all pages exist.
async fn assert_claimed(client: &Client) {
    let table = metadata::read(client, TABLE_ITEM).await.expect("a table item");
    let numbers = ["protocol", "pages", "copies"].map(|name| number_of(&table, name));
    assert_eq!(numbers, [4, u64::from(PAGES), 1]);
    assert!(table.contains_key("directory_made"), "{table:?}");
    for page in 0..PAGES {
        let page = metadata::read(client, &page_copy(page, 0)).await.expect("a page");
        assert_eq!(number_of(&page, "copies"), 1);
    }
}

#[track_caller]
fn assert_is_being_rebuilt(refused: Result<(), TableError>) {
    let error = refused.expect_err("it is not complete yet");
    assert!(matches!(error, TableError::Unusable(_)), "{error:?}");
    assert!(error.to_string().contains("being rebuilt"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn metadata_of_an_earlier_version_is_rejected_and_a_key_named() {
    let client = Tables::unclaimed(config()).await.client;
    let earlier = [("number_of_shards", number(4)), ("generation", number(2))];
    metadata::store(&client, "orders", earlier).await;
    let table = TableEngine::new(&client, config());
    let error = table.claim_mode(soon()).await.expect_err("it is not a new table");
    assert!(matches!(error, TableError::Unusable(_)), "{error:?}");
    for part in ["items-metadata", "\"orders\"", TABLE_ITEM, "an earlier version", "rebuild"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    // A process without the check at its start detects the mismatch at its first write, and stores
    // nothing.
    let unchecked = || TableEngine::new(&client, config());
    let refused = unchecked().put(&item("order", 1), soon()).await.expect_err("refused");
    assert!(matches!(refused.kind, WriteErrorKind::Table(TableError::Unusable(_))), "{refused:?}");
    assert!(unchecked().set_shards(&key(), count(4), soon()).await.is_err());
    let items = client.scan().table_name("items").send().await.expect("a page");
    assert_eq!((items.count, metadata::read(&client, TABLE_ITEM).await), (0, None));
}

#[tokio::test(start_paused = true)]
async fn sharded_items_without_any_metadata_are_a_loss() {
    let client = Tables::unclaimed(config()).await.client;
    let before = TableEngine::new(&client, config());
    put(&before, "order", 1).await;
    metadata::lose(&client, TABLE_ITEM).await;
    for page in 0..PAGES {
        metadata::lose(&client, &page_copy(page, 0)).await;
    }
    let after = TableEngine::new(&client, config());
    let error = after.claim_mode(soon()).await.expect_err("it is not a new table");
    assert!(matches!(error, TableError::Lost(_)), "{error:?}");
    let refused = after.put(&item("order", 2), soon()).await.expect_err("refused");
    assert!(matches!(refused.kind, WriteErrorKind::Table(TableError::Lost(_))), "{refused:?}");
    assert_eq!(metadata::read(&client, TABLE_ITEM).await, None, "the loss is still visible");

    // A rebuild must be requested explicitly.
    after.claim_for_rebuild(soon()).await.expect("claimed");
    let meanwhile = TableEngine::new(&client, config());
    for refused in [meanwhile.claim_mode(soon()).await, meanwhile.check_mode(soon()).await] {
        assert_is_being_rebuilt(refused);
    }
    after.rebuild_directory(soon()).await.expect("made");
    meanwhile.claim_mode(soon()).await.expect("it is complete");
    assert_claimed(&client).await;
    let expected = Expected::from([("order".to_owned(), 1)]);
    assert_finds(&TableEngine::new(&client, config()), &expected, "only metadata was lost").await;
}

/// The other process has run since before the loss, and its comparison must not end the rebuilding.
#[tokio::test(start_paused = true)]
async fn during_a_rebuild_no_other_process_completes_the_directory() {
    let client = Tables::unclaimed(config()).await.client;
    let before = TableEngine::new(&client, config());
    put(&before, "order", 1).await;
    metadata::lose(&client, TABLE_ITEM).await;
    TableEngine::new(&client, config()).claim_for_rebuild(soon()).await.expect("claimed");
    let compared = before.repair_directory(soon()).await.map(drop);
    for refused in [compared, before.raise_directory_copies(2, soon()).await] {
        assert_is_being_rebuilt(refused);
    }
    let table = metadata::read(&client, TABLE_ITEM).await.expect("it is stored");
    assert!(table.contains_key("rebuilding") && !table.contains_key("directory_made"), "{table:?}");
}

#[tokio::test(start_paused = true)]
async fn items_of_another_program_make_no_table_old() {
    let client = Tables::unclaimed(config()).await.client;
    store_plainly(&client, "2014-07-09", "order", 1).await;
    TableEngine::new(&client, config()).claim_mode(soon()).await.expect("it may be adopted");
    assert_claimed(&client).await;
}

#[tokio::test(start_paused = true)]
async fn of_many_processes_that_start_at_once_all_agree() {
    let Tables { engine, client, .. } = Tables::unclaimed(config()).await;
    let mut starting = tokio::task::JoinSet::new();
    for number in 0..20u64 {
        let connection =
            InProcess::new(engine.clone()).with_service_time(Duration::from_millis(3 + number % 4));
        let table = TableEngine::new(&in_process_clients(&connection).dynamodb, config());
        starting.spawn(async move {
            Box::pin(table.claim_mode(soon())).await.expect("claimed");
            put(&table, &format!("order-{number}"), number).await;
        });
    }
    while let Some(started) = starting.join_next().await {
        started.expect("no process is rejected");
    }
    assert_claimed(&client).await;
    let expected: Expected = (0..20u64).map(|number| (format!("order-{number}"), number)).collect();
    assert_finds(&TableEngine::new(&client, config()), &expected, "all of them wrote").await;
}

/// The process sees a new table. Before it creates the table item, another process creates it and
/// writes.
#[tokio::test(start_paused = true)]
async fn a_process_overtaken_on_a_new_table_agrees_with_the_first() {
    for (held, grows) in [("metadata", true), ("items", false)] {
        let Tables { engine, client, .. } = Tables::unclaimed(config()).await;
        let holds = move |call: &Call| {
            let is_held =
                call.operation == "Scan" && call.to_items == (held == "items") && call.before == 0;
            if is_held { Fate::Hold(Duration::from_secs(2)) } else { Fate::Pass }
        };
        let wire = Wire::new(InProcess::new(engine), holds);
        let slow = TableEngine::new(&local::clients_over(wire.into_shared()).dynamodb, config());
        let looking = tokio::spawn(async move { Box::pin(slow.claim_mode(soon())).await });
        sleep(Duration::from_millis(500)).await;
        let first = TableEngine::new(&client, config());
        let mut expected = Expected::new();
        store(&first, numbered(0..5), 1, &mut expected).await;
        if grows {
            first.set_shards(&key(), count(2), soon()).await.expect("grown");
        }
        let looked = looking.await.expect("it does not panic");
        looked.expect("another process was first, and that is all");
        assert_claimed(&client).await;
    }
}

/// A process died after the table item and before the pages.
#[tokio::test(start_paused = true)]
async fn an_unfinished_directory_is_completed_by_the_next_process() {
    let client = Tables::unclaimed(config()).await.client;
    metadata::store(&client, TABLE_ITEM, metadata::table_item(&config())).await;
    let reader = TableEngine::new(&client, config());
    reader.check_mode(soon()).await.expect("it agrees");
    assert_finds(&reader, &Expected::new(), "by the items").await;
    let table = TableEngine::new(&client, config());
    put(&table, "order", 1).await;
    assert_claimed(&client).await;
}
