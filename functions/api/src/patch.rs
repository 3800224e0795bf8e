//! Bodies of `PATCH`: a JSON merge patch (RFC 7396) of the item, or additions to its attributes.

use lambda_http::Request;
use sharding::{PartitionKey, Patch, ShardedTable, SortKey};

use crate::body::{Body, fields, read_partition_key, read_sort_key, required};
use crate::item::{read_additions, read_merge};
use crate::media_type::{ADD, PATCHES};
use crate::problem::Problem;

/// Reads a patch of the item with these keys. The media type decides whether the body is
/// `{"attributes": {…}}` or `{"add": {…}}`.
///
/// # Errors
/// 415, 413 or 400. The problem names the field.
pub fn patch_body(
    request: &Request,
    table: &ShardedTable,
    partition_key: &PartitionKey,
    sort_key: &SortKey,
) -> Result<Patch, Problem> {
    let (media_type, body) = Body::of_type(request, &PATCHES)?;
    let config = table.config();
    if media_type == ADD {
        let [additions] = fields(body.raw(), ["add"])?;
        let add = read_additions(required(additions, "add")?, config)?;
        return Ok(Patch { add, ..Patch::default() });
    }
    let [own_partition_key, own_sort_key, attributes] =
        fields(body.raw(), ["partition_key", "sort_key", "attributes"])?;
    let changes = |field| {
        let why = "it differs from the item's key; an item's keys cannot be changed; \
                   store the item under the new keys, and delete this one";
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
    let merge = attributes.map(|attributes| read_merge(attributes, config)).transpose()?;
    Ok(Patch { merge: merge.unwrap_or_default(), ..Patch::default() })
}
