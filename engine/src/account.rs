//! Operations that describe the account and its backups, which the database does not have.

use dynoxide::Database;
use serde_json::{Value, json};

use crate::dispatch::dispatch;
use crate::request;
use crate::response::Response;

/// The default quotas of an account (DynamoDB developer guide, "Quotas"). The engine does not
/// enforce them.
pub(crate) fn limits() -> Value {
    json!({
        "AccountMaxReadCapacityUnits": 80_000,
        "AccountMaxWriteCapacityUnits": 80_000,
        "TableMaxReadCapacityUnits": 40_000,
        "TableMaxWriteCapacityUnits": 40_000,
    })
}

/// The backups of a new table: point-in-time recovery is off, and the engine cannot switch it on.
pub(crate) fn continuous_backups(db: &Database, body: &Value) -> Result<Value, Response> {
    let table = request::table_name(body).unwrap_or_default();
    dispatch(db, "DescribeTable", &json!({ "TableName": table })).map_err(|_| {
        let message = format!("Table not found: {table}");
        Response::error(400, "TableNotFoundException", &message)
    })?;
    Ok(json!({"ContinuousBackupsDescription": {
        "ContinuousBackupsStatus": "ENABLED",
        "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "DISABLED"},
    }}))
}
