//! Items as the caller's own types: any serde type, or [`Attributes`] and [`Value`] directly; and
//! what of them DynamoDB and the product can store, found before a request is sent.
//!
//! serde_dynamo maps serde's data model to DynamoDB's: a struct is a map, `Option::None` is null,
//! and its modules handle bytes and sets (`#[serde(with = "serde_dynamo::string_set")]`). Integers
//! of up to 64 bits keep all digits. For a decimal number with more digits than an `f64`, and for
//! larger integers, use [`Value::N`].

use std::fmt::Display;

use crate::config::TableConfig;
use crate::engine::error::InvalidRequest;
use crate::values::number::Number;
use crate::values::value::{Attributes, Value};

const ALLOWED: &str = "up to 38 significant digits, and 0 or a magnitude of 1E-130 to 9.99E+125";
const SHOWN_DIGITS: usize = 60;

/// Why a value does not fit a type. Other crates cannot name this type, which seals the traits.
#[derive(Debug)]
#[doc(hidden)]
pub struct NotOfType {
    /// The path of the attribute. Of a value that is read, `lines[2].price`, and `.` for the whole
    /// item; of a value to store, `.lines[2].price`, and empty for the whole value.
    pub attribute: String,
    /// The reason.
    pub why: String,
}

/// The values that can be stored: any type that serializes, [`Value`] and [`Attributes`]. An item
/// must serialize to a map.
///
/// Numbers have up to 38 significant digits. NaN, infinity, a number out of DynamoDB's range, and
/// `u128` or `i128` in a type that serializes are an error of the request. It names the attribute,
/// and nothing is sent.
///
/// This trait is sealed: implement `serde::Serialize`.
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// use dynamodb_write_sharding::{Attributes, Value};
///
/// // 38 digits, which no integer or float of Rust holds.
/// let pi = Value::N("3.1415926535897932384626433832795028841".into());
/// table.put("numbers", "pi", Attributes::from([("value", pi.clone())])).await?;
/// let read = table.get::<Attributes>("numbers", "pi").consistent(true).await?;
/// assert_eq!(read.expect("it was stored").value["value"], pi);
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored",
    note = "implement `serde::Serialize`, or use `Attributes`"
)]
pub trait IntoValue {
    #[doc(hidden)]
    fn into_value(self) -> Result<Value, NotOfType>;
}

/// The values that can be read: any type that deserializes without borrowing, [`Value`] and
/// [`Attributes`].
///
/// This trait is sealed: implement `serde::Deserialize`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from an item",
    note = "implement `serde::Deserialize`, or use `Attributes`"
)]
pub trait FromValue: Sized {
    #[doc(hidden)]
    fn from_value(value: Value) -> Result<Self, NotOfType>;
}

impl IntoValue for Value {
    fn into_value(self) -> Result<Value, NotOfType> {
        Ok(self)
    }
}

impl IntoValue for Attributes {
    fn into_value(self) -> Result<Value, NotOfType> {
        Ok(Value::M(self))
    }
}

impl IntoValue for &Attributes {
    fn into_value(self) -> Result<Value, NotOfType> {
        Ok(Value::M(self.clone()))
    }
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Self, NotOfType> {
        Ok(value)
    }
}

impl FromValue for Attributes {
    fn from_value(value: Value) -> Result<Self, NotOfType> {
        let kind = value.type_name();
        let Value::M(attributes) = value else {
            return Err(NotOfType { attribute: ".".to_owned(), why: format!("it is {kind}") });
        };
        Ok(attributes)
    }
}

#[cfg(feature = "serde")]
mod typed {
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::{FromValue, IntoValue, NotOfType, Value};
    use crate::values::dynamo::{from_dynamo, into_dynamo};

    /// The integers that serde_dynamo can store and read.
    const INTEGERS: &str =
        "integers of up to 64 bits, or Value::N in an item of Attributes for up to 38 digits";

    impl<T: Serialize> IntoValue for T {
        fn into_value(self) -> Result<Value, NotOfType> {
            let mut track = serde_path_to_error::Track::new();
            let serializer =
                serde_path_to_error::Serializer::new(serde_dynamo::Serializer, &mut track);
            self.serialize(serializer).map(from_dynamo).map_err(|error| {
                let mut why = error.to_string();
                // The text of serde for a type that a format does not have.
                if why == "u128 is not supported" || why == "i128 is not supported" {
                    why = format!("it is a 128-bit integer; allowed: {INTEGERS}");
                }
                let attribute = match track.path().to_string() {
                    whole if whole == "." => String::new(),
                    element if element.starts_with('[') => element,
                    member => format!(".{member}"),
                };
                NotOfType { attribute, why }
            })
        }
    }

    impl<T: DeserializeOwned> FromValue for T {
        fn from_value(value: Value) -> Result<Self, NotOfType> {
            let stored = serde_dynamo::Deserializer::from_attribute_value(into_dynamo(value));
            serde_path_to_error::deserialize(stored).map_err(|error| NotOfType {
                attribute: error.path().to_string(),
                why: error.into_inner().to_string(),
            })
        }
    }
}

/// An item without its keys.
pub(super) fn item_attributes(
    config: &TableConfig,
    item: impl IntoValue,
) -> Result<Attributes, InvalidRequest> {
    let attributes = map(item)?;
    attributes.keys().try_for_each(|name| allowed(config, name))?;
    Ok(attributes)
}

pub(super) fn map(item: impl IntoValue) -> Result<Attributes, InvalidRequest> {
    let value = value("", item)?;
    let kind = value.type_name();
    let Value::M(attributes) = value else {
        return Err(InvalidRequest::of("item", format_args!("it is {kind}, and must be a map")));
    };
    Ok(attributes)
}

/// A value that can be stored, of the attribute with this name; of the whole item if it is empty.
pub(super) fn value(name: &str, value: impl IntoValue) -> Result<Value, InvalidRequest> {
    let value = value.into_value().map_err(|wrong| unfit(name, wrong))?;
    check_numbers(name, &value)?;
    Ok(value)
}

pub(super) fn check_numbers(name: &str, value: &Value) -> Result<(), InvalidRequest> {
    wrong_number(value).map_or(Ok(()), |wrong| Err(unfit(name, wrong)))
}

fn unfit(name: &str, NotOfType { attribute, why }: NotOfType) -> InvalidRequest {
    let path = format!("{name}{attribute}");
    let what = match path.trim_start_matches('.') {
        "" => "item".to_owned(),
        path => format!("attribute {path}"),
    };
    InvalidRequest::of(what, why)
}

/// Rejects names that belong to the keys or to the product.
pub(super) fn allowed(config: &TableConfig, name: &str) -> Result<(), InvalidRequest> {
    if config.is_reserved(name) || name.is_empty() {
        let why = "the name belongs to a key or to the product; any other name that is not empty is allowed";
        return Err(InvalidRequest::of(format!("attribute {name}"), why));
    }
    Ok(())
}

/// The first number in a value that DynamoDB cannot store, such as NaN: its path, for example
/// `.lines[2].price`, and the reason.
fn wrong_number(value: &Value) -> Option<NotOfType> {
    let below = |segment: &dyn Display, value| {
        let NotOfType { attribute, why } = wrong_number(value)?;
        Some(NotOfType { attribute: format!("{segment}{attribute}"), why })
    };
    let here = |why| NotOfType { attribute: String::new(), why };
    match value {
        Value::N(number) => refusal(number).map(here),
        Value::Ns(set) => set.iter().find_map(|number| refusal(number)).map(here),
        Value::L(list) => list
            .iter()
            .enumerate()
            .find_map(|(index, value)| below(&format_args!("[{index}]"), value)),
        Value::M(map) => {
            map.iter().find_map(|(name, value)| below(&format_args!(".{name}"), value))
        }
        Value::S(_) | Value::B(_) | Value::Bool(_) | Value::Null | Value::Ss(_) | Value::Bs(_) => {
            None
        }
    }
}

fn refusal(number: &str) -> Option<String> {
    let digits = number.strip_prefix('-').unwrap_or(number);
    // Most numbers are integers that need no parser.
    if (1..=38).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let error = number.parse::<Number>().err()?;
    Some(format!("{error}: {number:.SHOWN_DIGITS$}; allowed: {ALLOWED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_number_is_shown_in_part() {
        let long = "9".repeat(1_000);
        let why = wrong_number(&Value::N(long.clone())).unwrap().why;
        assert!(why.contains(&format!(": {};", &long[..60])), "{why}");
    }
}
