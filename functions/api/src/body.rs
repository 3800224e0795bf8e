//! Bodies: one item, a batch of items, or a patch of a request; and the items of a response.

use std::collections::HashMap;

use lambda_http::http::Method;
use lambda_http::{Body, Request, Response};
use serde_json::value::{RawValue, to_raw_value};
use sharding::{
    Attributes, IdempotencyKey, MAX_ITEM_BYTES, PartitionKey, Patch, ShardedTable, SortKey,
    SortKeyType,
};

use crate::item::{
    ItemJson, Kind, Members, array, needs, parse, read_additions, read_attributes, read_merge,
    string,
};
use crate::response::{Problem, json};

/// The maximum number of items in a batch.
const MAX_BATCH_ITEMS: usize = 500;
const JSON: &str = "application/json";
const ADD: &str = "application/vnd.dynamodb-write-sharding.add+json";
/// The media types that `PATCH` accepts.
const PATCHES: [&str; 2] = ["application/merge-patch+json", ADD];
/// The size limit of an event and of a response. (AWS Lambda developer guide, "Lambda quotas".)
const LAMBDA_PAYLOAD_BYTES: usize = 6 * 1_024 * 1_024;
/// Reserved for everything except the body: headers (at most 10 KB), the request context, and the
/// claims of a token.
const RESERVED_BYTES: usize = 128 * 1_024;
/// The maximum size of a body, in bytes of its JSON string. Lambda embeds request and response bodies
/// as JSON strings in its own JSON, so each quotation mark, backslash and line break of a body counts
/// as two bytes, and most other control characters count as six.
pub const MAX_PAYLOAD_BYTES: usize = LAMBDA_PAYLOAD_BYTES - RESERVED_BYTES;

/// The length of a text as a JSON string, in bytes, without the quotation marks around it.
#[must_use]
pub fn escaped_len(text: &str) -> usize {
    text.bytes().map(escaped_byte).sum()
}

const fn escaped_byte(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0x00..0x20 => 6,
        _ => 1,
    }
}

/// The media type of a body, which is one of these, and the body: valid JSON, not parsed any further.
fn json_body<'a>(
    request: &'a Request,
    allowed: &[&'static str],
) -> Result<(&'static str, &'a RawValue), Problem> {
    let content_type =
        request.headers().get("content-type").map(|value| value.to_str().unwrap_or("not ASCII"));
    let essence = content_type.and_then(|value| value.split(';').next()).map(str::trim);
    let is_it = |allowed: &&&'static str| {
        essence.is_some_and(|essence| essence.eq_ignore_ascii_case(allowed))
    };
    let Some(media_type) = allowed.iter().find(is_it) else {
        let is_patch = request.method() == Method::PATCH;
        return Err(Problem::media_type(content_type, allowed, is_patch));
    };
    let bytes: &[u8] = request.body();
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Problem::bad("invalid_json", "body", format_args!("it is not UTF-8: {error}"))
    })?;
    let carried = escaped_len(text);
    if carried > MAX_PAYLOAD_BYTES {
        return Err(body_too_large(text.len(), carried));
    }
    serde_json::from_str(text).map(|raw| (*media_type, raw)).map_err(|error| {
        Problem::bad("invalid_json", "body", format_args!("it is not JSON: {error}"))
    })
}

/// 413: a Lambda event cannot carry the body, which is a JSON string there.
#[must_use]
pub fn body_too_large(bytes: usize, carried: usize) -> Problem {
    let detail = format!(
        "body: {carried} bytes as a JSON string inside the Lambda event ({bytes} bytes as sent); \
         at most {MAX_PAYLOAD_BYTES} are allowed"
    );
    Problem::new(413, "body_too_large", "Too large", detail).on("body")
}

/// The length of a sort key that the service makes.
const UUID_BYTES: usize = 36;

/// An item of a request.
#[derive(Debug)]
pub struct NewItem {
    /// The partition key.
    pub partition_key: PartitionKey,
    /// The sort key. `None` if the service makes one.
    pub sort_key: Option<SortKey>,
    /// The attributes without the keys.
    pub attributes: Attributes,
}

/// Reads `{"partition_key", "sort_key"?, "attributes"}`. An absent sort key is derived from the
/// idempotency key if there is one. A request with both an idempotency key and a sort key must be
/// create-only: only a create-only write can recognize its own item under a sort key of the client.
///
/// # Errors
/// 415, 413 or 400. The problem names the field or header.
pub fn item_body(
    request: &Request,
    table: &ShardedTable,
    idempotency_key: Option<&IdempotencyKey>,
    create_only: bool,
) -> Result<NewItem, Problem> {
    let (_, body) = json_body(request, &[JSON])?;
    let mut maker = KeyMaker { idempotency_key, allows_both: create_only, equals: HashMap::new() };
    read_item(body, table, &mut maker)
}

/// Reads `{"attributes"}`, for the item with these keys.
///
/// # Errors
/// 415, 413 or 400. The problem names the field.
pub fn attributes_body(
    request: &Request,
    table: &ShardedTable,
    partition_key: &PartitionKey,
    sort_key: &SortKey,
) -> Result<Attributes, Problem> {
    let (_, body) = json_body(request, &[JSON])?;
    let [attributes] = fields(body, ["attributes"])?;
    let attributes = read_attributes(required(attributes, "attributes")?, table.config())?;
    check_size(partition_key, Some(sort_key), &attributes, table)?;
    Ok(attributes)
}

/// Reads `{"items": […]}`, 1 to 500 items with different keys.
///
/// # Errors
/// 415, 413 or 400. The problem names the item by its index. In that case, no item of the batch is
/// stored.
pub fn items_body(
    request: &Request,
    table: &ShardedTable,
    idempotency_key: Option<&IdempotencyKey>,
) -> Result<Vec<NewItem>, Problem> {
    let (_, body) = json_body(request, &[JSON])?;
    let [items] = fields(body, ["items"])?;
    let items = items.ok_or_else(|| {
        let why = "it is missing; it must be an array of 1 to 500 items";
        Problem::bad("missing_field", "items", why)
    })?;
    let items = array(items, "items")?;
    if !(1..=MAX_BATCH_ITEMS).contains(&items.len()) {
        let allowed = format!("it has {} items; allowed: 1 to {MAX_BATCH_ITEMS}", items.len());
        return Err(Problem::bad("invalid_batch", "items", allowed));
    }
    let mut seen = HashMap::new();
    let mut maker = KeyMaker { idempotency_key, allows_both: false, equals: HashMap::new() };
    items
        .into_iter()
        .enumerate()
        .map(|(index, raw)| {
            let place = format!("items[{index}]");
            let item = read_item(raw, table, &mut maker);
            let item = item.map_err(|problem| problem.within(&place))?;
            let Some(sort_key) = &item.sort_key else { return Ok(item) };
            match seen.insert((item.partition_key.clone(), sort_key.clone()), index) {
                None => Ok(item),
                Some(first) => {
                    let why = format!(
                        "it has the same keys as items[{first}]; the keys of a batch must differ"
                    );
                    Err(Problem::bad("repeated_key", place, why))
                }
            }
        })
        .collect()
}

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
    let (media_type, body) = json_body(request, &PATCHES)?;
    let config = table.config();
    if media_type == ADD {
        let [additions] = fields(body, ["add"])?;
        let add = read_additions(required(additions, "add")?, config)?;
        return Ok(Patch { add, ..Patch::default() });
    }
    let [own_partition_key, own_sort_key, attributes] =
        fields(body, ["partition_key", "sort_key", "attributes"])?;
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

/// Derives the sort keys of items without one from the idempotency key.
struct KeyMaker<'a> {
    idempotency_key: Option<&'a IdempotencyKey>,
    /// Whether an item may have a sort key although the request has an idempotency key.
    allows_both: bool,
    /// The number of items in the request with the same keys and content, by the sort key of the
    /// first of them.
    equals: HashMap<String, usize>,
}

impl KeyMaker<'_> {
    fn make(
        &mut self,
        partition_key: &PartitionKey,
        attributes: &Attributes,
    ) -> Result<Option<SortKey>, Problem> {
        let Some(idempotency_key) = self.idempotency_key else { return Ok(None) };
        let first = idempotency_key.sort_key(partition_key, attributes, 0);
        let equals = self.equals.entry(first).or_default();
        *equals += 1;
        let made = idempotency_key.sort_key(partition_key, attributes, *equals - 1);
        SortKey::parse(SortKeyType::String, &made)
            .map(Some)
            .map_err(|error| Problem::bad("invalid_sort_key", "sort_key", error))
    }
}

fn read_item(
    raw: &RawValue,
    table: &ShardedTable,
    maker: &mut KeyMaker<'_>,
) -> Result<NewItem, Problem> {
    let config = table.config();
    let [partition_key, sort_key, attributes] =
        fields(raw, ["partition_key", "sort_key", "attributes"])?;
    let partition_key = read_partition_key(required(partition_key, "partition_key")?, table)?;
    let given = sort_key.map(|raw| read_sort_key(raw, config.sort_key_type)).transpose()?;
    if given.is_none() && config.sort_key_type == SortKeyType::Number {
        let why = "it is missing; it is generated only if the table's sort key is a string";
        return Err(Problem::bad("missing_field", "sort_key", why));
    }
    let attributes = read_attributes(required(attributes, "attributes")?, config)?;
    let sort_key = match given {
        Some(_) if maker.idempotency_key.is_some() && !maker.allows_both => {
            return Err(Problem::idempotency_key_unused());
        }
        Some(sort_key) => Some(sort_key),
        None => maker.make(&partition_key, &attributes)?,
    };
    check_size(&partition_key, sort_key.as_ref(), &attributes, table)?;
    Ok(NewItem { partition_key, sort_key, attributes })
}

/// Reads the named members of an object. Repeated and unknown members are errors.
fn fields<'a, const N: usize>(
    raw: &'a RawValue,
    names: [&str; N],
) -> Result<[Option<&'a RawValue>; N], Problem> {
    let members = Members::of(raw, "body")?;
    if let Some(name) = members.repeated() {
        return Err(Problem::bad("repeated_field", name, "it is given twice"));
    }
    let mut found = [None; N];
    for (name, value) in members.0 {
        match names.iter().position(|known| *known == name).and_then(|at| found.get_mut(at)) {
            Some(place) => *place = Some(value),
            None => {
                let why = format!("it is not known; allowed: {}", names.join(", "));
                return Err(Problem::bad("unknown_field", name, why));
            }
        }
    }
    Ok(found)
}

fn required<'a>(field: Option<&'a RawValue>, name: &str) -> Result<&'a RawValue, Problem> {
    field.ok_or_else(|| Problem::bad("missing_field", name, "it is missing"))
}

fn read_partition_key(raw: &RawValue, table: &ShardedTable) -> Result<PartitionKey, Problem> {
    check_partition_key(&string(raw, "partition_key")?, table)
}

/// Checks that the text is a valid partition key, and that its longest shard key fits.
pub(crate) fn check_partition_key(
    text: &str,
    table: &ShardedTable,
) -> Result<PartitionKey, Problem> {
    table
        .config()
        .partition_key(text)
        .map_err(|error| Problem::bad("invalid_partition_key", "partition_key", error))
}

fn read_sort_key(raw: &RawValue, key_type: SortKeyType) -> Result<SortKey, Problem> {
    let is_number = key_type == SortKeyType::Number;
    let kind = if is_number { Kind::Number } else { Kind::String };
    needs(raw, kind, "sort_key", format_args!("this table's sort key is {}", kind.name()))?;
    let text = if is_number { raw.get().to_owned() } else { parse(raw, "sort_key")? };
    SortKey::parse(key_type, &text)
        .map_err(|error| Problem::bad("invalid_sort_key", "sort_key", error))
}

/// Rejects an item that exceeds DynamoDB's size limit, including the keys and the service's own
/// attributes.
fn check_size(
    partition_key: &PartitionKey,
    sort_key: Option<&SortKey>,
    attributes: &Attributes,
    table: &ShardedTable,
) -> Result<(), Problem> {
    let config = table.config();
    // The shard key, the logical key and the version, with their names.
    let own = config.partition_key_name.len()
        + config.sort_key_name.len()
        + 2 * partition_key.as_str().len()
        + sort_key.map_or(UUID_BYTES, |sort_key| sort_key.to_string().len())
        + "_sh:k_sh:v".len()
        + 32;
    let bytes = own + attributes.size();
    if bytes > MAX_ITEM_BYTES {
        return Err(Problem::too_large("item_too_large", "attributes", bytes, MAX_ITEM_BYTES));
    }
    Ok(())
}

/// A response whose body is one item.
#[must_use]
pub fn item(status: u16, item: ItemJson<'_>) -> Response<Body> {
    let fitting = fitting_items([item]);
    fitting.map_or_else(Problem::into_response, |items| json(status, &items.first()))
}

/// Returns the first items as JSON, as many as fit into a response.
///
/// # Errors
/// 500 if the first item does not fit. Only another program can have stored such an item.
pub fn fitting_items<'a>(
    items: impl IntoIterator<Item = ItemJson<'a>>,
) -> Result<Vec<Box<RawValue>>, Problem> {
    let (mut fitting, mut bytes) = (Vec::new(), 0);
    for item in items {
        let json = to_raw_value(&item).map_err(|error| Problem::unexpected(&error))?;
        bytes += escaped_len(json.get()) + 1;
        if bytes > MAX_PAYLOAD_BYTES {
            return if fitting.is_empty() {
                let detail = format!(
                    "the item takes {bytes} bytes as JSON, and a response holds at most \
                     {MAX_PAYLOAD_BYTES}; read it from the table directly"
                );
                let title = "The item is too large for a response";
                Err(Problem::new(500, "response_too_large", title, detail))
            } else {
                Ok(fitting)
            };
        }
        fitting.push(json);
    }
    Ok(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_text_is_counted_as_it_is_escaped(text in "(\\PC|[\u{0}-\u{7f}]){0,50}") {
            prop_assert_eq!(escaped_len(&text), serde_json::to_string(&text).unwrap().len() - 2);
        }
    }
}
