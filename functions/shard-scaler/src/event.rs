//! What an event asks for.

use serde_json::{Map, Value};

use crate::alarm_event::{Alarm, alarms};

/// The most alarms of one `rearm`.
const MOST_ALARMS: usize = 20;
/// The longest name of an alarm. [CloudWatch API reference, SetAlarmState]
const LONGEST_ALARM_NAME: usize = 255;

/// An event, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScalerEvent {
    /// Give a key a number of shards.
    Set {
        /// The logical key.
        partition_key: String,
        /// The width to reach, unchecked.
        number_of_shards: i128,
        /// What the table is made ready for besides.
        warm: WarmUnits,
    },
    /// Make the table ready for so much at once.
    Warm(WarmUnits),
    /// Begin to give up shards of a key.
    Shrink {
        /// The logical key.
        partition_key: String,
        /// The width to reach, unchecked.
        number_of_shards: i128,
    },
    /// Begin to bring a key's items home.
    Settle {
        /// The logical key.
        partition_key: String,
    },
    /// Go on with all that was begun, and begin what is due. On a schedule.
    Drain,
    /// Begin to migrate the keys that have items under their bare key.
    Migrate {
        /// Go on after this item.
        after: Option<After>,
    },
    /// Make the metadata tell of all items again.
    Rebuild,
    /// Raise the number of copies of each page of the directory.
    Copies {
        /// How many, unchecked.
        copies: i128,
    },
    /// Show a key's metadata.
    Show {
        /// The logical key.
        partition_key: String,
    },
    /// List the keys that have metadata.
    List {
        /// Go on after this key.
        after: Option<String>,
    },
    /// Set alarms back to OK, so that they can act again.
    Rearm {
        /// Their names.
        alarms: Vec<String>,
    },
    /// Alarms that changed their state.
    Alarms(Vec<Alarm>),
}

/// Units a second that the table is to be able to serve at once, unchecked. 0 asks for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarmUnits {
    /// Write units a second.
    pub write_units: i128,
    /// Read units a second.
    pub read_units: i128,
}

/// A place in the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// The partition key as it is stored.
    pub stored_key: String,
    /// The sort key's text.
    pub sort_key: String,
}

/// An event that asks for nothing that is known. The text names the field and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct EventError {
    /// The part of the event.
    pub field: &'static str,
    /// What is wrong with it, and what is allowed.
    pub why: String,
}

impl ScalerEvent {
    /// Reads an event.
    ///
    /// # Errors
    /// [`EventError`] where it is neither a direct event nor an alarm.
    pub fn parse(event: &Value) -> Result<Self, EventError> {
        let event = event.as_object().ok_or_else(|| wrong("event", "it is not an object".into()))?;
        if let Some(action) = event.get("action") {
            return direct(action, event);
        }
        let alarms = alarms(event);
        if alarms.is_empty() {
            let known = "a direct event has an action (set, warm, shrink, settle, drain, migrate, rebuild, copies, rearm, show, list); an alarm comes directly, through SNS or through EventBridge";
            return Err(wrong("event", format!("it is of no known shape; {known}")));
        }
        Ok(Self::Alarms(alarms))
    }
}

fn wrong(field: &'static str, why: String) -> EventError {
    EventError { field, why }
}

const ACTIONS: [(&str, &[&str]); 11] = [
    ("set", &["action", "partition_key", "number_of_shards", "write_units", "read_units"]),
    ("warm", &["action", "write_units", "read_units"]),
    ("shrink", &["action", "partition_key", "number_of_shards"]),
    ("settle", &["action", "partition_key"]),
    ("drain", &["action"]),
    ("migrate", &["action", "after"]),
    ("rebuild", &["action"]),
    ("copies", &["action", "copies"]),
    ("rearm", &["action", "alarms"]),
    ("show", &["action", "partition_key"]),
    ("list", &["action", "after"]),
];

fn direct(action: &Value, event: &Map<String, Value>) -> Result<ScalerEvent, EventError> {
    let Some((name, allowed)) = ACTIONS.iter().find(|(name, _)| action == name) else {
        let names: Vec<String> = ACTIONS.iter().map(|(name, _)| format!("{name:?}")).collect();
        return Err(wrong("action", format!("it is {action}; allowed: {}", names.join(", "))));
    };
    if let Some(unknown) = event.keys().find(|name| !allowed.contains(&name.as_str())) {
        return Err(wrong("event", format!("the field {unknown:?} is not known; allowed: {}", allowed.join(", "))));
    }
    let partition_key = || {
        let key = event.get("partition_key").and_then(Value::as_str).map(str::to_owned);
        key.ok_or_else(|| wrong("partition_key", "it must be a string".into()))
    };
    let number = |field: &'static str| {
        let given = event.get(field).unwrap_or(&Value::Null);
        let number = given.as_i64().map(i128::from).or_else(|| given.as_u64().map(i128::from));
        number.ok_or_else(|| wrong(field, format!("it is {given}; a whole number is needed")))
    };
    let number_of_shards = || number("number_of_shards");
    let units = |field: &'static str| match event.get(field) {
        None | Some(Value::Null) => Ok(0),
        Some(_) => number(field),
    };
    let warm =
        || Ok::<_, EventError>(WarmUnits { write_units: units("write_units")?, read_units: units("read_units")? });
    Ok(match *name {
        "set" => {
            ScalerEvent::Set { partition_key: partition_key()?, number_of_shards: number_of_shards()?, warm: warm()? }
        }
        "warm" => ScalerEvent::Warm(warm()?),
        "shrink" => ScalerEvent::Shrink { partition_key: partition_key()?, number_of_shards: number_of_shards()? },
        "settle" => ScalerEvent::Settle { partition_key: partition_key()? },
        "show" => ScalerEvent::Show { partition_key: partition_key()? },
        "drain" => ScalerEvent::Drain,
        "migrate" => ScalerEvent::Migrate { after: place(event)? },
        "rebuild" => ScalerEvent::Rebuild,
        "copies" => ScalerEvent::Copies { copies: number("copies")? },
        "rearm" => ScalerEvent::Rearm { alarms: alarm_names(event)? },
        _ => match event.get("after") {
            None | Some(Value::Null) => ScalerEvent::List { after: None },
            Some(Value::String(after)) => ScalerEvent::List { after: Some(after.clone()) },
            Some(other) => return Err(wrong("after", format!("it is {other}; it must be a string"))),
        },
    })
}

/// Where an answer before said that it goes on.
fn place(event: &Map<String, Value>) -> Result<Option<After>, EventError> {
    let after = event.get("after").unwrap_or(&Value::Null);
    if after.is_null() {
        return Ok(None);
    }
    let text = |name: &str| after.get(name).and_then(Value::as_str).map(str::to_owned);
    let place = text("stored_key").zip(text("sort_key")).map(|(stored_key, sort_key)| After { stored_key, sort_key });
    let needed = "it must be the next of an answer before, with the strings stored_key and sort_key";
    place.map(Some).ok_or_else(|| wrong("after", format!("it is {after}; {needed}")))
}

/// The alarms that a `rearm` names.
fn alarm_names(event: &Map<String, Value>) -> Result<Vec<String>, EventError> {
    let needed = format!(
        "allowed: a list of 1 to {MOST_ALARMS} names of alarms, each a string of 1 to {LONGEST_ALARM_NAME} characters"
    );
    let refused = |what: String| wrong("alarms", format!("{what}; {needed}"));
    let given = event.get("alarms").unwrap_or(&Value::Null);
    let names = given.as_array().ok_or_else(|| refused(format!("it is {given}")))?;
    if !(1..=MOST_ALARMS).contains(&names.len()) {
        return Err(refused(format!("it has {} entries", names.len())));
    }
    let checked = names.iter().enumerate().map(|(index, given)| {
        let name = given.as_str().ok_or_else(|| refused(format!("its entry {} is {given}", index + 1)))?;
        match name.chars().count() {
            1..=LONGEST_ALARM_NAME => Ok(name.to_owned()),
            length => Err(refused(format!("its entry {} has {length} characters", index + 1))),
        }
    });
    checked.collect()
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
            let Ok(ScalerEvent::Set { warm, .. }) = ScalerEvent::parse(&event) else { panic!("{event}") };
            (warm.write_units, warm.read_units)
        };
        assert_eq!(of_set(json!({})), (0, 0));
        assert_eq!(of_set(json!({"write_units": 20_000, "read_units": null})), (20_000, 0));
        let warm = ScalerEvent::parse(&json!({"action": "warm", "read_units": 30_000}));
        assert_eq!(warm, Ok(ScalerEvent::Warm(WarmUnits { write_units: 0, read_units: 30_000 })));
        let wrong = ScalerEvent::parse(&json!({"action": "warm", "read_units": "many"})).unwrap_err();
        assert_eq!(wrong.to_string(), "read_units: it is \"many\"; a whole number is needed");
    }

    #[test]
    fn a_rearm_names_its_alarms_and_a_wrong_list_is_told() {
        let parse = |alarms: Value| ScalerEvent::parse(&json!({"action": "rearm", "alarms": alarms}));
        let longest = "é".repeat(255);
        for names in [vec!["items-hot-partition".to_owned()], vec![longest.clone(); 20]] {
            assert_eq!(parse(json!(names)), Ok(ScalerEvent::Rearm { alarms: names }));
        }
        for (alarms, told) in [
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
            assert!(error.why.starts_with(told) && error.why.contains("1 to 20 names"), "{error}");
        }
    }
}
