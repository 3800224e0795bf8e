//! How a program starts an engine and reaches it: the part for users of the crate.

use std::fmt::Display;
use std::path::Path;

use aws_types::SdkConfig;
use dynoxide::Database;
use serde_json::json;

use crate::connector::{InProcess, sdk_config};
use crate::engine::Engine;

/// A database that could not be opened, or a table that could not be created.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(String);

impl Engine {
    /// Creates a database in memory.
    ///
    /// # Errors
    /// [`EngineError`] if SQLite cannot start.
    pub fn in_memory() -> Result<Self, EngineError> {
        Database::memory().map(Self::over).map_err(not_opened)
    }

    /// Opens the database in a file, and creates the file if it is missing.
    ///
    /// # Errors
    /// [`EngineError`] if the file cannot be opened or is not a database.
    pub fn in_file(path: &Path) -> Result<Self, EngineError> {
        Database::new(&path.to_string_lossy()).map(Self::over).map_err(not_opened)
    }

    /// The configuration for the SDK's clients of this engine. Its region is `local`, and its
    /// credentials are placeholders.
    ///
    /// ```
    /// use embedded_dynamodb::Engine;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::in_memory()?;
    /// let client = aws_sdk_dynamodb::Client::new(&engine.sdk_config());
    /// assert!(client.list_tables().send().await?.table_names().is_empty());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn sdk_config(&self) -> SdkConfig {
        sdk_config(InProcess::new(self.clone()).into_shared())
    }

    /// Creates an on-demand table whose keys are strings. The SDK's `CreateTable` creates tables
    /// with other keys, and with indexes.
    ///
    /// # Errors
    /// [`EngineError`] if the table exists, or a name is not allowed.
    ///
    /// ```
    /// use embedded_dynamodb::Engine;
    ///
    /// let engine = Engine::in_memory()?;
    /// engine.create_table("items", "partition_key", Some("sort_key"))?;
    /// let again = engine.create_table("items", "partition_key", None).unwrap_err();
    /// assert!(again.to_string().starts_with("the table items cannot be created: "));
    /// # Ok::<(), embedded_dynamodb::EngineError>(())
    /// ```
    pub fn create_table(
        &self,
        table: &str,
        partition_key: &str,
        sort_key: Option<&str>,
    ) -> Result<(), EngineError> {
        let keys = || std::iter::once(partition_key).chain(sort_key).zip(["HASH", "RANGE"]);
        let names = keys().map(|(name, _)| json!({"AttributeName": name, "AttributeType": "S"}));
        let schema = keys().map(|(name, role)| json!({"AttributeName": name, "KeyType": role}));
        let request = json!({
            "TableName": table,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": names.collect::<Vec<_>>(),
            "KeySchema": schema.collect::<Vec<_>>(),
        });
        self.operate("CreateTable", request).map(drop).map_err(|response| {
            let why = String::from_utf8_lossy(&response.body);
            EngineError(format!("the table {table} cannot be created: {why}"))
        })
    }
}

fn not_opened(why: impl Display) -> EngineError {
    EngineError(format!("the embedded database cannot be opened: {why}"))
}
