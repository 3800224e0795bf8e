//! `REGISTER_KEYS`: whether a key that never grew has an item in the metadata table.

use system_tests::metadata::{self, number_of};
use system_tests::{Fate, Wire, config, count, soon, sort_key};

use super::{Fixture, KEY, key, put};

fn changes(wire: &Wire) -> usize {
    wire.calls().iter().filter(|call| !call.to_items && call.operation == "UpdateItem").count()
}

#[tokio::test(start_paused = true)]
async fn with_registration_the_first_write_stores_the_metadata_once() {
    let fixture = Fixture::with(config().with(|config| config.register_keys = true)).await;
    let (table, wire) = fixture.wired(1, |_| Fate::Pass);
    let (other, of_other) = fixture.wired(2, |_| Fate::Pass);
    let found = table.get(&key(), &sort_key("order"), true, soon()).await;
    assert_eq!(found.expect("a response"), None);
    table.finish_background_work().await;
    assert_eq!(metadata::read(&fixture.client, KEY).await, None, "a read registers nothing");
    for (table, value) in [(&table, 1), (&table, 2), (&other, 3)] {
        put(table, "order", value).await;
        table.finish_background_work().await;
    }
    assert_eq!((changes(&wire), changes(&of_other)), (1, 0));
    let stored = metadata::read(&fixture.client, KEY).await.expect("it is registered");
    assert_eq!(["number_of_shards", "generation"].map(|name| number_of(&stored, name)), [1, 1]);
    assert_eq!(fixture.entry(0).await, None, "it has not grown");
    let listed = table.list_keys(None, soon()).await.expect("a list").0;
    assert_eq!(listed.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [key()]);
    table.set_shards(&key(), count(4), soon()).await.expect("grown");
    assert!(fixture.entry(0).await.is_some());
}
