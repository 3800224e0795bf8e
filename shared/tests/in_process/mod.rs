// The examples of the documentation run on this: a table over the embedded engine, in process.

use embedded_dynamodb::Engine;

type Done = Result<(), Box<dyn std::error::Error>>;

/// Runs an example with a new table, whose sort key is a string.
pub fn with_table(example: impl AsyncFnOnce(dynamodb_write_sharding::ShardedTable) -> Done) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ran = runtime.block_on(async {
        let engine = Engine::in_memory()?;
        engine.create_table("items", "partition_key", Some("sort_key"))?;
        engine.create_table("items-metadata", "partition_key", None)?;
        let table = dynamodb_write_sharding::ShardedTable::new(
            &aws_sdk_dynamodb::Client::new(&engine.sdk_config()),
            dynamodb_write_sharding::TableConfig::new("items", "items-metadata"),
        );
        example(table.clone()).await?;
        table.close().await;
        Done::Ok(())
    });
    ran.expect("the example runs");
}
