//! The warm throughput that a request names: read from the request, and refused with DynamoDB's
//! messages.

use serde_json::Value;

use crate::access::Access;
use crate::partition_limits::WarmRequest;
use crate::request;
use crate::response::Response;
use crate::table_growth::WarmRefusal;

/// The field of a request or a description.
pub(crate) const FIELD: &str = "WarmThroughput";

/// The units that a request names for a table or an index.
pub(crate) struct Wanted {
    pub(crate) resource: String,
    pub(crate) units: WarmRequest,
}

impl Wanted {
    /// Removes the field from a table's request; `None` if it is absent.
    pub(crate) fn of_table(body: &mut Value, table: &str) -> Result<Option<Self>, Response> {
        Ok(taken(body)?.map(|units| Self { resource: table.to_owned(), units }))
    }

    /// Removes the field from an index's part of a request; `None` if the field or the index name
    /// is absent.
    pub(crate) fn of_index(part: &mut Value, table: &str) -> Result<Option<Self>, Response> {
        let units = taken(part)?;
        let resource = index_name(part).map(|index| request::index_resource(table, index));
        Ok(resource.zip(units).map(|(resource, units)| Self { resource, units }))
    }

    pub(crate) fn index(&self) -> Option<&str> {
        request::table_and_index(&self.resource).1
    }

    /// The name of the table or index in DynamoDB's messages.
    pub(crate) fn name(&self) -> String {
        self.index().map_or_else(|| "table".to_owned(), |index| format!("index {index}"))
    }

    /// The response to a refusal. `lower_than` names the value that the units were compared with.
    pub(crate) fn refused(&self, refusal: WarmRefusal, lower_than: &str) -> Response {
        let name = self.name();
        let names = |access: Access| match access {
            Access::Read => ("ReadUnitsPerSecond", "TableMaxReadCapacityUnits"),
            Access::Write => ("WriteUnitsPerSecond", "TableMaxWriteCapacityUnits"),
        };
        match refusal {
            WarmRefusal::Updating => {
                let (table, index) = request::table_and_index(&self.resource);
                let what = index.map_or_else(
                    || format!("Table is being updated: {table}"),
                    |index| format!("Index is being updated. Table: {table} Index: {index}"),
                );
                let message = format!("Attempt to change a resource which is still in use: {what}");
                Response::error(400, "ResourceInUseException", &message)
            }
            WarmRefusal::Lower(access) => {
                let (member, _) = names(access);
                invalid(&format!(
                    "Requested {member} for WarmThroughput for {name} is lower than {lower_than}"
                ))
            }
            WarmRefusal::AboveQuota(access) => {
                let (member, quota) = names(access);
                let message = format!(
                    "Subscriber limit exceeded: Requested {member} for WarmThroughput for {name} exceeds {quota} \
                     of the account in region local"
                );
                Response::error(400, "LimitExceededException", &message)
            }
        }
    }
}

/// Removes the field from the JSON object that contains it.
fn taken(holder: &mut Value) -> Result<Option<WarmRequest>, Response> {
    let wrong = |message: &str| Response::error(400, "SerializationException", message);
    let field = holder
        .as_object_mut()
        .and_then(|holder| holder.remove(FIELD))
        .filter(|field| !field.is_null());
    let Some(field) = field else { return Ok(None) };
    let Some(members) = field.as_object() else { return Err(wrong("Unexpected field type")) };
    let units = |name: &str| members.get(name).map_or(Ok(None), whole_units).map_err(wrong);
    Ok(Some(WarmRequest {
        write_units: units("WriteUnitsPerSecond")?,
        read_units: units("ReadUnitsPerSecond")?,
    }))
}

fn whole_units(member: &Value) -> Result<Option<f64>, &'static str> {
    match member {
        Value::Null => Ok(None),
        Value::Number(units) => Ok(units.as_f64().map(f64::trunc)),
        Value::String(_) => Err("STRING_VALUE cannot be converted to Long"),
        Value::Bool(true) => Err("TRUE_VALUE cannot be converted to Long"),
        Value::Bool(false) => Err("FALSE_VALUE cannot be converted to Long"),
        Value::Array(_) => Err("Unrecognized collection type class java.lang.Long"),
        Value::Object(_) => Err("Start of structure or map found where not expected"),
    }
}

/// The name of the index that a part of a request or a description is about.
pub(crate) fn index_name(part: &Value) -> Option<&str> {
    part.get("IndexName").and_then(Value::as_str)
}

pub(crate) fn invalid(message: &str) -> Response {
    let message = format!("One or more parameter values were invalid: {message}");
    Response::error(400, "ValidationException", &message)
}
