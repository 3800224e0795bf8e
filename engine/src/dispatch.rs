//! Runs an operation of the DynamoDB API, given by name and JSON, on the embedded database.

use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::key_condition;
use crate::response::Response;

/// Runs one operation; fails with the error response.
pub(crate) fn dispatch(db: &Database, operation: &str, body: &Value) -> Result<Value, Response> {
    macro_rules! operations {
        ($($name:literal => $method:ident),+ $(,)?) => {
            match operation {
                $($name => run(body, |request| db.$method(request)),)+
                "Query" => {
                    let response = run(body, |request| db.query(request))?;
                    key_condition::check_values(body)?;
                    Ok(response)
                }
                "ListStreams" => run(body, |request| db.list_streams(request)),
                _ => Err(unknown_operation()),
            }
        };
    }
    operations! {
        "CreateTable" => create_table,
        "DeleteTable" => delete_table,
        "DescribeTable" => describe_table,
        "ListTables" => list_tables,
        "UpdateTable" => update_table,
        "PutItem" => put_item,
        "GetItem" => get_item,
        "DeleteItem" => delete_item,
        "UpdateItem" => update_item,
        "Scan" => scan,
        "BatchGetItem" => batch_get_item,
        "BatchWriteItem" => batch_write_item,
        "TransactWriteItems" => transact_write_items,
        "TransactGetItems" => transact_get_items,
        "UpdateTimeToLive" => update_time_to_live,
        "DescribeTimeToLive" => describe_time_to_live,
        "TagResource" => tag_resource,
        "UntagResource" => untag_resource,
        "ListTagsOfResource" => list_tags_of_resource,
        "DescribeStream" => describe_stream,
        "GetShardIterator" => get_shard_iterator,
        "GetRecords" => get_records,
        "ExecuteStatement" => execute_statement,
        "ExecuteTransaction" => execute_transaction,
        "BatchExecuteStatement" => batch_execute_statement,
    }
}

fn run<Input: DeserializeOwned, Output: Serialize>(
    body: &Value,
    operation: impl FnOnce(Input) -> Result<Output, DynoxideError>,
) -> Result<Value, Response> {
    let input = Input::deserialize(body).map_err(|error| undecodable(&error))?;
    let output = operation(input).map_err(|error| failed(&error))?;
    serde_json::to_value(output)
        .map_err(|error| Response::error(500, "InternalServerError", &error.to_string()))
}

/// Converts a decoding error. The database marks the error's class by a prefix of the message.
fn undecodable(error: &serde_json::Error) -> Response {
    let text = error.to_string();
    if let Some(message) = text.strip_prefix("SERIALIZATION:") {
        return Response::error(400, "SerializationException", message);
    }
    let message = ["VALIDATION_REQUEST:", "VALIDATION_AS_READ:", "VALIDATION:"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .unwrap_or(&text);
    Response::error(400, "ValidationException", message)
}

fn failed(error: &DynoxideError) -> Response {
    Response::json(error.status_code(), error.to_json())
}

fn unknown_operation() -> Response {
    Response::error(
        400,
        "UnknownOperationException",
        "this operation is not supported by the local edition",
    )
}
