//! Request bodies: one item, or a batch of items.

use std::collections::HashMap;

use lambda_http::Request;
use serde_json::value::RawValue;
use sharding::{
    Attributes, IdempotencyKey, Item, MAX_ITEM_BYTES, PartitionKey, ShardedTable, SortKey,
    SortKeyType,
};

use crate::item::read_attributes;
use crate::media_type::JSON;
use crate::object::{Kind, Members, array, needs, parse, string};
use crate::payload::{MAX_PAYLOAD_BYTES, escaped_len};
use crate::problem::Problem;

/// The maximum number of items in a batch.
pub const MAX_BATCH_ITEMS: usize = 500;

/// A body that is valid JSON and not parsed any further.
#[derive(Debug)]
pub struct Body<'a>(&'a RawValue);

impl<'a> Body<'a> {
    /// Reads the body of a request, which must be declared as JSON and be valid JSON.
    ///
    /// # Errors
    /// 415, 413 or 400, as a [`Problem`].
    pub fn of(request: &'a Request) -> Result<Self, Problem> {
        Self::of_type(request, &[JSON]).map(|(_, body)| body)
    }

    /// Like [`of`](Self::of), for several media types. Also returns the media type of the body.
    pub(crate) fn of_type(
        request: &'a Request,
        allowed: &[&'static str],
    ) -> Result<(&'static str, Self), Problem> {
        let content_type = request
            .headers()
            .get("content-type")
            .map(|value| value.to_str().unwrap_or("not ASCII"));
        let essence = content_type.and_then(|value| value.split(';').next()).map(str::trim);
        let is_it = |allowed: &&&'static str| {
            essence.is_some_and(|essence| essence.eq_ignore_ascii_case(allowed))
        };
        let Some(media_type) = allowed.iter().find(is_it) else {
            return Err(Problem::media_type(content_type, allowed));
        };
        let bytes: &[u8] = request.body();
        let text = std::str::from_utf8(bytes).map_err(|error| {
            Problem::bad("invalid_json", "body", format_args!("it is not UTF-8: {error}"))
        })?;
        let carried = escaped_len(text);
        if carried > MAX_PAYLOAD_BYTES {
            return Err(Problem::body_too_large(text.len(), carried));
        }
        serde_json::from_str(text).map(|raw| (*media_type, Self(raw))).map_err(|error| {
            Problem::bad("invalid_json", "body", format_args!("it is not JSON: {error}"))
        })
    }

    pub(crate) const fn raw(&self) -> &'a RawValue {
        self.0
    }
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
/// 400 or 413. The problem names the field or header.
pub fn item_body(
    body: &Body<'_>,
    table: &ShardedTable,
    idempotency_key: Option<&IdempotencyKey>,
    create_only: bool,
) -> Result<NewItem, Problem> {
    read_item(body.0, table, &mut KeyMaker::new(idempotency_key, create_only))
}

/// Reads `{"attributes"}`, for the item with these keys.
///
/// # Errors
/// 400 or 413. The problem names the field.
pub fn attributes_body(
    body: &Body<'_>,
    table: &ShardedTable,
    partition_key: PartitionKey,
    sort_key: SortKey,
) -> Result<Item, Problem> {
    let [attributes] = fields(body.0, ["attributes"])?;
    let attributes = read_attributes(required(attributes, "attributes")?, table.config())?;
    check_size(&partition_key, Some(&sort_key), &attributes, table)?;
    Ok(Item { partition_key, sort_key, attributes })
}

/// Reads `{"items": […]}`, 1 to 500 items with different keys.
///
/// # Errors
/// 400 or 413. The problem names the item by its index. In that case, no item of the batch is
/// stored.
pub fn items_body(
    body: &Body<'_>,
    table: &ShardedTable,
    idempotency_key: Option<&IdempotencyKey>,
) -> Result<Vec<NewItem>, Problem> {
    let [items] = fields(body.0, ["items"])?;
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
    let mut maker = KeyMaker::new(idempotency_key, false);
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

/// Derives the sort keys of items without one from the idempotency key.
struct KeyMaker<'a> {
    idempotency_key: Option<&'a IdempotencyKey>,
    /// Whether an item may have a sort key although the request has an idempotency key.
    allows_both: bool,
    /// The number of items in the request with the same keys and content, by the sort key of the
    /// first of them.
    equals: HashMap<String, usize>,
}

impl<'a> KeyMaker<'a> {
    fn new(idempotency_key: Option<&'a IdempotencyKey>, allows_both: bool) -> Self {
        Self { idempotency_key, allows_both, equals: HashMap::new() }
    }

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
pub(crate) fn fields<'a, const N: usize>(
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

pub(crate) fn required<'a>(
    field: Option<&'a RawValue>,
    name: &str,
) -> Result<&'a RawValue, Problem> {
    field.ok_or_else(|| Problem::bad("missing_field", name, "it is missing"))
}

pub(crate) fn read_partition_key(
    raw: &RawValue,
    table: &ShardedTable,
) -> Result<PartitionKey, Problem> {
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

pub(crate) fn read_sort_key(raw: &RawValue, key_type: SortKeyType) -> Result<SortKey, Problem> {
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
