//! Runs an operation of the DynamoDB API, given by name and JSON, on the embedded database.

use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::key_condition;
use crate::response::Response;

/// Runs one operation; fails with the error response.
pub(crate) fn dispatch(db: &Database, operation: &str, body: &Value) -> Result<Value, Response> {
    match operation {
        "CreateTable" => run(body, |request| db.create_table(request)),
        "DeleteTable" => run(body, |request| db.delete_table(request)),
        "DescribeTable" => run(body, |request| db.describe_table(request)),
        "ListTables" => run(body, |request| db.list_tables(request)),
        "UpdateTable" => run(body, |request| db.update_table(request)),
        "PutItem" => run(body, |request| db.put_item(request)),
        "GetItem" => run(body, |request| db.get_item(request)),
        "DeleteItem" => run(body, |request| db.delete_item(request)),
        "UpdateItem" => run(body, |request| db.update_item(request)),
        "Scan" => run(body, |request| db.scan(request)),
        "BatchGetItem" => run(body, |request| db.batch_get_item(request)),
        "BatchWriteItem" => run(body, |request| db.batch_write_item(request)),
        "TransactWriteItems" => run(body, |request| db.transact_write_items(request)),
        "TransactGetItems" => run(body, |request| db.transact_get_items(request)),
        "UpdateTimeToLive" => run(body, |request| db.update_time_to_live(request)),
        "DescribeTimeToLive" => run(body, |request| db.describe_time_to_live(request)),
        "TagResource" => run(body, |request| db.tag_resource(request)),
        "UntagResource" => run(body, |request| db.untag_resource(request)),
        "ListTagsOfResource" => run(body, |request| db.list_tags_of_resource(request)),
        "ListStreams" => run(body, |request| db.list_streams(request)),
        "DescribeStream" => run(body, |request| db.describe_stream(request)),
        "GetShardIterator" => run(body, |request| db.get_shard_iterator(request)),
        "GetRecords" => run(body, |request| db.get_records(request)),
        "ExecuteStatement" => run(body, |request| db.execute_statement(request)),
        "ExecuteTransaction" => run(body, |request| db.execute_transaction(request)),
        "BatchExecuteStatement" => run(body, |request| db.batch_execute_statement(request)),
        "Query" => {
            let response = run(body, |request| db.query(request))?;
            key_condition::check_values(body)?;
            Ok(response)
        }
        _ => {
            let message = "this operation is not supported by the local edition";
            Err(Response::error(400, "UnknownOperationException", message))
        }
    }
}

fn run<Input: DeserializeOwned, Output: Serialize>(
    body: &Value,
    operation: impl FnOnce(Input) -> Result<Output, DynoxideError>,
) -> Result<Value, Response> {
    let input = Input::deserialize(body).map_err(|error| undecodable(&error))?;
    let output =
        operation(input).map_err(|error| Response::json(error.status_code(), error.to_json()))?;
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
