//! Items as the caller's own types: any serde type, or [`Attributes`] and [`Value`] directly.
//!
//! serde_dynamo maps serde's data model to DynamoDB's: a struct is a map, `Option::None` is null,
//! and its modules handle bytes and sets (`#[serde(with = "serde_dynamo::string_set")]`). Integers
//! of up to 64 bits keep all digits. For a decimal number with more digits than an `f64`, and for
//! larger integers, use [`Value::N`].

use crate::values::value::{Attributes, Value};

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
    use std::collections::HashMap;

    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_dynamo::AttributeValue;
    use serde_json::value::RawValue;
    use serde_path_to_error::{Path, Segment};

    use super::{FromValue, IntoValue, NotOfType, Value};

    /// The integers that serde_dynamo can store and read.
    const INTEGERS: &str =
        "integers of up to 64 bits, or Value::N in an item of Attributes for up to 38 digits";

    impl<T: Serialize> IntoValue for T {
        fn into_value(self) -> Result<Value, NotOfType> {
            let mut track = serde_path_to_error::Track::new();
            let serializer =
                serde_path_to_error::Serializer::new(serde_dynamo::Serializer, &mut track);
            self.serialize(serializer).map(from_dynamo).map_err(|error| {
                let (path, mut why) = (track.path(), error.to_string());
                // The text of serde for a type that a format does not have.
                if why == "u128 is not supported" || why == "i128 is not supported" {
                    let number = digits(&self, &path).unwrap_or(why);
                    why = format!("it is a 128-bit integer: {number}; allowed: {INTEGERS}");
                }
                let attribute = match path.to_string() {
                    whole if whole == "." => String::new(),
                    element if element.starts_with('[') => element,
                    member => format!(".{member}"),
                };
                NotOfType { attribute, why }
            })
        }
    }

    /// The digits of the number at this path. `None` if the value has no form in JSON.
    fn digits(value: &impl Serialize, path: &Path) -> Option<String> {
        let mut json: Box<RawValue> =
            serde_json::from_str(&serde_json::to_string(value).ok()?).ok()?;
        for segment in path {
            json = match segment {
                Segment::Seq { index } => {
                    let list: Vec<_> = serde_json::from_str(json.get()).ok()?;
                    list.into_iter().nth(*index)?
                }
                Segment::Map { key: name } | Segment::Enum { variant: name } => {
                    let mut map: HashMap<String, _> = serde_json::from_str(json.get()).ok()?;
                    map.remove(name)?
                }
                Segment::Unknown => return None,
            };
        }
        Some(json.get().to_owned())
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

    fn into_dynamo(value: Value) -> AttributeValue {
        match value {
            Value::S(text) => AttributeValue::S(text),
            Value::N(number) => AttributeValue::N(number),
            Value::B(bytes) => AttributeValue::B(bytes),
            Value::Bool(value) => AttributeValue::Bool(value),
            Value::Null => AttributeValue::Null(true),
            Value::L(list) => AttributeValue::L(list.into_iter().map(into_dynamo).collect()),
            Value::M(map) => AttributeValue::M(
                map.into_iter().map(|(name, value)| (name, into_dynamo(value))).collect(),
            ),
            Value::Ss(set) => AttributeValue::Ss(set),
            Value::Ns(set) => AttributeValue::Ns(set),
            Value::Bs(set) => AttributeValue::Bs(set),
        }
    }

    fn from_dynamo(value: AttributeValue) -> Value {
        match value {
            AttributeValue::S(text) => Value::S(text),
            AttributeValue::N(number) => Value::N(number),
            AttributeValue::B(bytes) => Value::B(bytes),
            AttributeValue::Bool(value) => Value::Bool(value),
            AttributeValue::Null(_) => Value::Null,
            AttributeValue::L(list) => Value::L(list.into_iter().map(from_dynamo).collect()),
            AttributeValue::M(map) => {
                Value::M(map.into_iter().map(|(name, value)| (name, from_dynamo(value))).collect())
            }
            AttributeValue::Ss(set) => Value::Ss(set),
            AttributeValue::Ns(set) => Value::Ns(set),
            AttributeValue::Bs(set) => Value::Bs(set),
        }
    }
}
