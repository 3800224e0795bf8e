//! Parsing of events.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use sharding::internal::ShardCount;

use crate::alarm_event::{Alarm, alarms};

/// The most alarms of one `rearm`.
const MOST_ALARMS: usize = 20;
/// The longest name of an alarm. (CloudWatch API reference, "SetAlarmState".)
const LONGEST_ALARM_NAME: usize = 255;

/// An event, as far as the shard-scaler uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScalerEvent {
    /// An event with an action.
    Direct(DirectEvent),
    /// Alarms that changed their state.
    Alarms(Vec<Alarm>),
}

/// An event that names its action: the variant's name in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum DirectEvent {
    /// Give a key a number of shards, and prepare the table for this number of units.
    Set {
        partition_key: String,
        number_of_shards: WholeNumber,
        write_units: Option<WholeNumber>,
        read_units: Option<WholeNumber>,
    },
    /// Prepare the table for this number of units.
    Warm(WarmUnits),
    /// Begin to remove shards of a key.
    Shrink { partition_key: String, number_of_shards: WholeNumber },
    /// Begin to move a key's items home.
    Settle { partition_key: String },
    /// Continue all drains and unfinished changes, and begin those that are due. Sent by a
    /// schedule.
    Drain {},
    /// Begin to migrate the keys that have items under their bare key. Continue after this item.
    Migrate { after: Option<After> },
    /// Rebuild the metadata from all items.
    Rebuild {},
    /// Raise the number of copies of each page of the directory.
    Copies { copies: WholeNumber },
    /// Set alarms back to OK, so that they can act again.
    Rearm { alarms: AlarmNames },
    /// Show a key's metadata.
    Show { partition_key: String },
    /// List the keys that have metadata. Continue after this key.
    List { after: Option<String> },
}

/// The units a second that the table should be able to serve, unchecked. 0 requests none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WarmUnits {
    pub(crate) write_units: Option<WholeNumber>,
    pub(crate) read_units: Option<WholeNumber>,
}

/// A place in the main table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Value")]
pub(crate) struct After {
    /// The partition key as it is stored.
    pub(crate) stored_key: String,
    /// The sort key's text.
    pub(crate) sort_key: String,
}

/// A whole number without bounds. The bounds of a width depend on the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct WholeNumber(pub(crate) i128);

/// The names of 1 to 20 alarms, each of 1 to 255 characters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct AlarmNames(Vec<String>);

/// An invalid event, or an invalid field of it. It serializes as the outcome `refused`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{field}: {why}")]
#[serde(tag = "outcome", rename = "refused")]
pub(crate) struct EventError {
    /// The part of the event.
    pub(crate) field: String,
    /// The problem, and what is allowed.
    #[serde(rename = "detail")]
    pub(crate) why: String,
}

impl ScalerEvent {
    /// Parses an event.
    ///
    /// # Errors
    /// [`EventError`] if it is neither a direct event nor an alarm.
    pub(crate) fn parse(event: &Value) -> Result<Self, EventError> {
        let no_object = || EventError::new("event", "it is not an object");
        let event = event.as_object().ok_or_else(no_object)?;
        if event.contains_key("action") {
            return DirectEvent::parse(event.clone()).map(Self::Direct);
        }
        let alarms = alarms(event);
        if alarms.is_empty() {
            let known = "it is of no known shape; a direct event has an action (set, warm, shrink, \
                         settle, drain, migrate, rebuild, copies, rearm, show, list); an alarm \
                         comes directly, through SNS or through EventBridge";
            return Err(EventError::new("event", known));
        }
        Ok(Self::Alarms(alarms))
    }
}

impl DirectEvent {
    /// The action becomes the name of the enum's variant. With `serde(tag = "action")` instead,
    /// serde would buffer the fields, and errors would no longer name the invalid one.
    fn parse(mut fields: Map<String, Value>) -> Result<Self, EventError> {
        let action = fields.remove("action").unwrap_or_default();
        let action = action.as_str().map_or_else(|| action.to_string(), str::to_owned);
        let event = Value::Object(Map::from_iter([(action, Value::Object(fields))]));
        serde_path_to_error::deserialize(event).map_err(|error| EventError::of(&error))
    }
}

impl EventError {
    pub(crate) fn new(field: &str, why: impl Display) -> Self {
        Self { field: field.to_owned(), why: why.to_string() }
    }

    /// Names the field by its path, which begins with the action. A missing field has no path.
    fn of(error: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let (why, mut path) = (error.inner().to_string(), error.path().iter());
        let missing = why.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        let field = match (path.next(), path.next()) {
            (None, _) => "action",
            (_, Some(Segment::Map { key })) if !why.starts_with("unknown field") => key,
            _ => missing.unwrap_or("event"),
        };
        Self::new(field, &why)
    }
}

impl WholeNumber {
    /// The number of shards, if the number is a valid one.
    pub(crate) fn shard_count(self) -> Option<ShardCount> {
        u32::try_from(self.0).ok().and_then(ShardCount::new)
    }
}

impl Display for WholeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<Value> for WholeNumber {
    type Error = String;

    fn try_from(given: Value) -> Result<Self, String> {
        let number = given.as_i64().map(i128::from).or_else(|| given.as_u64().map(i128::from));
        number.map(Self).ok_or_else(|| format!("it is {given}; a whole number is needed"))
    }
}

impl TryFrom<Value> for After {
    type Error = String;

    fn try_from(given: Value) -> Result<Self, String> {
        let text = |name: &str| given.get(name).and_then(Value::as_str).map(str::to_owned);
        let place = text("stored_key").zip(text("sort_key"));
        let needed = "the next of an earlier response, with the strings stored_key and sort_key";
        let refused = || format!("it is {given}; it must be {needed}");
        place.map(|(stored_key, sort_key)| Self { stored_key, sort_key }).ok_or_else(refused)
    }
}

impl AlarmNames {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl TryFrom<Value> for AlarmNames {
    type Error = String;

    fn try_from(given: Value) -> Result<Self, String> {
        let refused = |what: String| {
            let each = format!("each a string of 1 to {LONGEST_ALARM_NAME} characters");
            format!("{what}; allowed: a list of 1 to {MOST_ALARMS} names of alarms, {each}")
        };
        let names = given.as_array().ok_or_else(|| refused(format!("it is {given}")))?;
        if !(1..=MOST_ALARMS).contains(&names.len()) {
            return Err(refused(format!("it has {} entries", names.len())));
        }
        let checked = names.iter().zip(1..).map(|(given, entry)| {
            let no_text = || refused(format!("its entry {entry} is {given}"));
            let name = given.as_str().ok_or_else(no_text)?;
            match name.chars().count() {
                1..=LONGEST_ALARM_NAME => Ok(name.to_owned()),
                length => Err(refused(format!("its entry {entry} has {length} characters"))),
            }
        });
        checked.collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn damaged_alarms_are_errors_and_not_panics() {
        for event in [
            json!(null),
            json!([]),
            json!({}),
            json!({"Records": []}),
            json!({"Records": [{"Sns": {"Message": "{\"NewStateValue\":"}}]}),
            json!({"alarmData": {"state": "ALARM"}}),
            json!({"detail": {"state": {"value": 1}}}),
            json!({"action": "remove"}),
            json!({"action": "set", "partition_key": "k"}),
            json!({"action": "set", "partition_key": "k", "number_of_shards": 1.5}),
            json!({"action": "set", "partition_key": 1, "number_of_shards": 1}),
            json!({"action": "show", "partition_key": "k", "number_of_shards": 1}),
            json!({"action": "copies"}),
            json!({"action": "copies", "copies": "9"}),
            json!({"action": "warm", "write_units": "20000"}),
            json!({"action": "warm", "write_units": 2.5}),
            json!({"action": "warm", "partition_key": "k", "write_units": 1}),
            json!({"action": "set", "partition_key": "k", "number_of_shards": 2, "write_units": true}),
        ] {
            assert!(ScalerEvent::parse(&event).is_err(), "{event}");
        }
    }

    #[test]
    fn units_to_be_ready_for_may_be_left_out() {
        let of_set = |more: Value| {
            let mut event = json!({"action": "set", "partition_key": "k", "number_of_shards": 2});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let parsed = ScalerEvent::parse(&event);
            let Ok(ScalerEvent::Direct(DirectEvent::Set { write_units, read_units, .. })) = parsed
            else {
                panic!("{event}")
            };
            [write_units, read_units].map(|units| units.map(|number| number.0))
        };
        assert_eq!(of_set(json!({})), [None, None]);
        assert_eq!(
            of_set(json!({"write_units": 20_000, "read_units": null})),
            [Some(20_000), None]
        );
        let warm = ScalerEvent::parse(&json!({"action": "warm", "read_units": 30_000}));
        let expected = WarmUnits { write_units: None, read_units: Some(WholeNumber(30_000)) };
        assert_eq!(warm, Ok(ScalerEvent::Direct(DirectEvent::Warm(expected))));
        let wrong =
            ScalerEvent::parse(&json!({"action": "warm", "read_units": "many"})).unwrap_err();
        assert_eq!(wrong.to_string(), "read_units: it is \"many\"; a whole number is needed");
    }

    #[test]
    fn a_rearm_names_its_alarms_and_a_wrong_list_is_reported() {
        let parse =
            |alarms: Value| ScalerEvent::parse(&json!({"action": "rearm", "alarms": alarms}));
        let longest = "é".repeat(255);
        for names in [vec!["items-hot-partition".to_owned()], vec![longest.clone(); 20]] {
            let expected = DirectEvent::Rearm { alarms: AlarmNames(names.clone()) };
            assert_eq!(parse(json!(names)), Ok(ScalerEvent::Direct(expected)));
        }
        for (alarms, reported) in [
            (Value::Null, "it is null"),
            (json!("items-hot-partition"), "it is \"items-hot-partition\""),
            (json!([]), "it has 0 entries"),
            (json!(vec!["a"; 21]), "it has 21 entries"),
            (json!(["a", 7]), "its entry 2 is 7"),
            (json!([""]), "its entry 1 has 0 characters"),
            (json!([format!("{longest}é")]), "its entry 1 has 256 characters"),
        ] {
            let error = parse(alarms).unwrap_err();
            assert_eq!(error.field, "alarms");
            assert!(
                error.why.starts_with(reported) && error.why.contains("1 to 20 names"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_error_names_the_field_and_what_is_allowed() {
        let actions = "expected one of `set`, `warm`, `shrink`";
        let rows = [
            (json!({"action": "remove"}), "action", actions),
            (json!({"action": 7}), "action", actions),
            (json!({"action": "copies"}), "copies", "missing field `copies`"),
            (json!({"action": "copies", "copies": 1.5}), "copies", "it is 1.5; a whole number"),
            (
                json!({"action": "show", "partition_key": 1}),
                "partition_key",
                "integer `1`, expected",
            ),
            (json!({"action": "show", "key": 1}), "event", "unknown field `key`, expected `par"),
            (json!({"action": "warm", "key": 1}), "event", "unknown field `key`, expected `wri"),
            (json!({"action": "drain", "key": 1}), "event", "unknown field `key`"),
            (json!({"action": "list", "after": 7}), "after", "integer `7`, expected a string"),
            (json!({"action": "migrate", "after": ["k", "s"]}), "after", "it must be the next"),
            (json!({"action": "migrate", "after": {"sort_key": "s"}}), "after", "it must be"),
        ];
        for (event, field, why) in rows {
            let error = ScalerEvent::parse(&event).unwrap_err();
            assert!(error.field == field && error.why.contains(why), "{event}: {error}");
        }
    }
}
