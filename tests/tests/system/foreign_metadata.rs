//! Metadata of another program, without a history. The product uses its width, and keeps it in the
//! history when the key grows.

use sharding::SortKey;
use system_tests::metadata::{self, number};
use system_tests::{Tables, config, count, partition_key, soon, sort_key, valued_item};

#[tokio::test(start_paused = true)]
async fn items_of_the_previous_width_are_found_after_a_growth() {
    let tables = Tables::claimed(config()).await;
    metadata::store(&tables.client, "k", [("number_of_shards", number(10))]).await;
    let (table, key) = (tables.instance(1), partition_key("k"));
    let compared = table.repair_directory(soon()).await.expect("compared");
    assert_eq!(compared, 1, "an unlisted key is not seen");
    let stored = metadata::read(&tables.client, "k").await.expect("it is stored");
    assert_eq!(metadata::number_of(&stored, "generation"), 1, "it can be listed now");
    let sort_keys: Vec<SortKey> = (0..60).map(|n| sort_key(&format!("{n:02}"))).collect();
    for sort_key in &sort_keys {
        let item = valued_item(key.clone(), &sort_key.to_string(), 1);
        let written = table.put(&item, soon()).await.expect("stored");
        assert_eq!(written.number_of_shards, 10);
    }
    table.set_shards(&key, count(20), soon()).await.expect("grown");
    for sort_key in &sort_keys {
        let found = table.get(&key, sort_key, true, soon()).await.expect("read");
        assert!(found.is_some(), "{sort_key}");
    }
}
