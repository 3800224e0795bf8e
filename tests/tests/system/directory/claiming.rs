//! The first process of a table creates its table item and its directory, but only for a new table.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use sharding::internal::{TableEngine, protocol::directory::PAGES};
use sharding::maintenance::Survey;
use sharding::{TableError, WriteErrorKind};
use system_tests::metadata::{self, TABLE_ITEM, number, number_of, page_copy};
use system_tests::{Call, Fate, Tables, config, count, numbered, soon};
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

#[tokio::test(start_paused = true)]
async fn metadata_of_an_earlier_version_is_rejected_and_a_key_named() {
    let client = Tables::unclaimed(config()).await.client;
    let earlier = [("number_of_shards", number(4)), ("generation", number(2))];
    metadata::store(&client, "orders", earlier).await;
    let table = TableEngine::new(&client, config());
    let error = table.until(soon()).claim().await.expect_err("it is not a new table");
    assert!(matches!(error, TableError::Unusable(_)), "{error:?}");
    for part in ["items-metadata", "\"orders\"", TABLE_ITEM, "an earlier version", "rebuild"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    // A process without the check at its start detects the mismatch at its first write, and stores
    // nothing.
    let unchecked = || TableEngine::new(&client, config());
    let refused = unchecked().put(&item("order", 1), soon()).await.expect_err("refused");
    assert!(matches!(refused.kind, WriteErrorKind::Table(TableError::Unusable(_))), "{refused:?}");
    assert!(unchecked().until(soon()).grow(&key(), count(4)).await.is_err());
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
    let error = after.until(soon()).claim().await.expect_err("it is not a new table");
    assert!(matches!(error, TableError::Lost(_)), "{error:?}");
    let refused = after.put(&item("order", 2), soon()).await.expect_err("refused");
    assert!(matches!(refused.kind, WriteErrorKind::Table(TableError::Lost(_))), "{refused:?}");
    assert_eq!(metadata::read(&client, TABLE_ITEM).await, None, "the loss is still visible");

    // A rebuild must be requested explicitly.
    after.until(soon()).claim_for_rebuild().await.expect("claimed");
    let meanwhile = TableEngine::new(&client, config());
    // The process from before the loss must not end the rebuilding by its comparison either.
    for refused in [
        meanwhile.until(soon()).claim().await,
        meanwhile.until(soon()).check().await,
        before.until(soon()).repair_directory().await.map(drop),
        before.until(soon()).raise_directory_copies(1).await,
    ] {
        let error = refused.expect_err("it is not complete yet");
        assert!(matches!(error, TableError::Unusable(_)), "{error:?}");
        assert!(error.to_string().contains("being rebuilt"), "{error}");
    }
    let table = metadata::read(&client, TABLE_ITEM).await.expect("it is stored");
    assert!(table.contains_key("rebuilding") && !table.contains_key("directory_made"), "{table:?}");
    after.until(soon()).rebuild_directory(&Survey::default()).await.expect("made");
    meanwhile.until(soon()).claim().await.expect("it is complete");
    assert_claimed(&client).await;
    let expected = Expected::from([("order".to_owned(), 1)]);
    assert_finds(&TableEngine::new(&client, config()), &expected, "only metadata was lost").await;
}

/// The process sees a new table. Before it creates the table item, another process creates it and
/// writes.
#[tokio::test(start_paused = true)]
async fn a_process_overtaken_on_a_new_table_agrees_with_the_first() {
    for (held, grows) in [("metadata", true), ("items", false)] {
        let tables = Tables::unclaimed(config()).await;
        let holds = move |call: &Call| {
            let is_held =
                call.operation == "Scan" && call.to_items == (held == "items") && call.before == 0;
            if is_held { Fate::Hold(Duration::from_secs(2)) } else { Fate::Pass }
        };
        let (slow, _) = tables.wired(1, holds);
        let looking = tokio::spawn(async move { Box::pin(slow.until(soon()).claim()).await });
        sleep(Duration::from_millis(500)).await;
        let first = tables.instance(2);
        let mut expected = Expected::new();
        store(&first, numbered(0..5), 1, &mut expected).await;
        if grows {
            first.until(soon()).grow(&key(), count(2)).await.expect("grown");
        }
        let looked = looking.await.expect("it does not panic");
        looked.expect("another process was first, and that is all");
        assert_claimed(&tables.client).await;
    }
}
