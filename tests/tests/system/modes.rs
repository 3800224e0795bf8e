//! The mode of a table is stored in it. A process with another configuration must not use the
//! table.

use aws_sdk_dynamodb::Client;
use sharding::internal::TableEngine;
use sharding::{TableConfig, TableError, Writes};
use system_tests::metadata::{self, TABLE_ITEM, number, text};
use system_tests::{Tables, config, soon};

fn appends() -> TableConfig {
    config().with(|config| config.writes = Writes::Appends)
}

/// The attributes `writes` and `protocol` of the table item, if there is one.
async fn stored(client: &Client) -> Option<(String, String)> {
    let item = metadata::read(client, TABLE_ITEM).await?;
    let writes = item["writes"].as_s().expect("a text").clone();
    Some((writes, item["protocol"].as_n().expect("a number").clone()))
}

#[tokio::test(start_paused = true)]
async fn the_first_process_stores_what_the_table_takes_and_all_agree() {
    for (own, name, other) in [(config(), "items", appends()), (appends(), "appends", config())] {
        let client = Tables::unclaimed(config()).await.client;
        let (own, other) = (TableEngine::new(&client, own), TableEngine::new(&client, other));
        own.until(soon()).check().await.expect("a reader accepts a table without a mode");
        assert_eq!(stored(&client).await, None, "and stores nothing");
        let own = own.until(soon());
        let (first, second) = tokio::join!(own.claim(), own.claim());
        first.and(second).expect("two processes that start concurrently agree");
        assert_eq!(stored(&client).await, Some((name.to_owned(), "4".to_owned())));
        own.check().await.expect("it agrees");
        for refused in [other.until(soon()).claim().await, other.until(soon()).check().await] {
            let error = refused.expect_err("another mode");
            assert!(matches!(error, TableError::Unusable(_)), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(&format!("it was made for {name:?}")), "{text}");
            assert!(text.contains("_sharding:table of items-metadata"), "{text}");
            assert!(text.contains("Changing WRITES"), "{text}");
        }
        let unchanged = Some((name.to_owned(), "4".to_owned()));
        assert_eq!(stored(&client).await, unchanged, "a refusal changes nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn another_protocol_and_a_damaged_item_are_rejected() {
    let client = Tables::unclaimed(config()).await.client;
    let table = TableEngine::new(&client, config());
    // The protocols of an earlier and of a later version.
    for protocol in [2, 3, 5] {
        let item = [("writes", text("items")), ("protocol", number(protocol))];
        metadata::store(&client, TABLE_ITEM, item).await;
        let error = table.until(soon()).claim().await.expect_err("another protocol").to_string();
        let theirs = format!("it is of protocol {protocol},");
        assert!(error.contains(&theirs) && error.contains("uses protocol 4"), "{error}");
    }
    metadata::store(&client, TABLE_ITEM, [("writes", text("items"))]).await;
    let error = table.until(soon()).check().await.expect_err("no protocol");
    assert!(matches!(error, TableError::Damaged(_)), "{error:?}");
    metadata::store(&client, TABLE_ITEM, metadata::table_item(&config())).await;
    metadata::remove(&client, TABLE_ITEM, "pages").await;
    let error =
        table.until(soon()).check().await.expect_err("the size of the directory is unknown");
    assert!(matches!(error, TableError::Damaged(_)), "{error:?}");
}
