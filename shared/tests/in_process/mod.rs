// The examples of the documentation run on this: a table over the embedded engine, in process.

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_sdk_dynamodb::{Client, Config};
use embedded_dynamodb::{Engine, InProcess};

type Done = Result<(), Box<dyn std::error::Error>>;

/// Runs an example with a new table, whose sort key is a string.
pub fn with_table(example: impl AsyncFnOnce(sharding::ShardedTable) -> Done) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ran = runtime.block_on(async {
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("local"))
            .credentials_provider(Credentials::for_tests())
            .endpoint_url("http://embedded")
            .http_client(InProcess::new(Engine::in_memory()?).into_shared())
            .build();
        let client = Client::from_conf(config);
        create(&client, "items", &["partition_key", "sort_key"]).await?;
        create(&client, "items-metadata", &["partition_key"]).await?;
        let table = sharding::ShardedTable::new(
            &client,
            sharding::TableConfig::new("items", "items-metadata"),
        );
        example(table.clone()).await?;
        table.close().await;
        Done::Ok(())
    });
    ran.expect("the example runs");
}

async fn create(client: &Client, table: &str, keys: &[&str]) -> Done {
    let mut create =
        client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    for (name, role) in keys.iter().zip([KeyType::Hash, KeyType::Range]) {
        let kind = ScalarAttributeType::S;
        create = create
            .attribute_definitions(
                AttributeDefinition::builder()
                    .attribute_name(*name)
                    .attribute_type(kind)
                    .build()?,
            )
            .key_schema(KeySchemaElement::builder().attribute_name(*name).key_type(role).build()?);
    }
    create.send().await?;
    Ok(())
}
