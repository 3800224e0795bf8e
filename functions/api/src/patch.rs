//! Bodies of `PATCH`: a JSON merge patch (RFC 7396) of the item, or what is added to its attributes.

use lambda_http::Request;
use sharding::internal::{PartitionKey, Patch, SortKey, TableEngine};

use crate::body::{Body, fields, read_partition_key, read_sort_key, required};
use crate::item::{read_additions, read_merge};
use crate::problem::Problem;

const MERGE_PATCH: &str = "application/merge-patch+json";
const ADD: &str = "application/vnd.dynamodb-write-sharding.add+json";
/// The media types that `PATCH` takes.
pub(crate) const PATCHES: [&str; 2] = [MERGE_PATCH, ADD];

/// Reads a patch of the item with these keys: by its media type `{"attributes": {…}}`, or `{"add": {…}}`.
///
/// # Errors
/// 415, 413 and 400, naming the field.
pub fn patch_body(
    request: &Request,
    table: &TableEngine,
    partition_key: &PartitionKey,
    sort_key: &SortKey,
) -> Result<Patch, Problem> {
    let (media_type, body) = Body::of_type(request, &PATCHES)?;
    let config = table.config();
    let keys = [config.partition_key_name.as_str(), config.sort_key_name.as_str()];
    if media_type == ADD {
        let [additions] = fields(body.raw(), ["add"])?;
        return read_additions(required(additions, "add")?, keys).map(Patch::Add);
    }
    let [own_partition_key, own_sort_key, attributes] =
        fields(body.raw(), ["partition_key", "sort_key", "attributes"])?;
    let changes = |field| {
        let why =
            "it is not the item's; the keys of an item cannot be changed: store it under the new ones, and delete it";
        Err(Problem::bad("immutable_key", field, why))
    };
    if let Some(raw) = own_partition_key
        && read_partition_key(raw, table)? != *partition_key
    {
        return changes("partition_key");
    }
    if let Some(raw) = own_sort_key
        && read_sort_key(raw, config.sort_key_type)? != *sort_key
    {
        return changes("sort_key");
    }
    match attributes {
        Some(attributes) => read_merge(attributes, keys).map(Patch::Merge),
        None => Ok(Patch::Merge(std::iter::empty().collect())),
    }
}
