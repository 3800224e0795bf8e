//! What an event asks for. Alarms come in three envelopes and many variants, so everything is read leniently and nothing is required
//! that the decision does not need.

use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// An event, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScalerEvent {
    /// Give a key a number of shards.
    Set {
        /// The logical key.
        partition_key: String,
        /// The width to reach, unchecked.
        number_of_shards: i128,
    },
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
    /// Alarms that changed their state.
    Alarms(Vec<Alarm>),
}

/// A place in the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// The partition key as it is stored.
    pub stored_key: String,
    /// The sort key's text.
    pub sort_key: String,
}

/// One alarm's change of state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// Its name, where it says one.
    pub name: Option<String>,
    /// `ALARM`, `OK` or `INSUFFICIENT_DATA`.
    pub state: String,
    /// Every table that its metrics name; none for metric math and composite alarms.
    pub tables: Vec<String>,
    /// Every metric that it names.
    pub metrics: Vec<String>,
    /// When the state changed, in seconds since the Unix epoch; `None` where that cannot be read.
    pub changed_at: Option<u64>,
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
        let alarms: Vec<Alarm> = match event.get("Records").and_then(Value::as_array) {
            Some(records) => records.iter().filter_map(sns).collect(),
            None => [event.get("alarmData"), event.get("detail")].into_iter().flatten().filter_map(native).collect(),
        };
        if alarms.is_empty() {
            let known = "a direct event has an action (set, shrink, settle, drain, migrate, rebuild, show, list); an alarm comes directly, through SNS or through EventBridge";
            return Err(wrong("event", format!("it is of no known shape; {known}")));
        }
        Ok(Self::Alarms(alarms))
    }
}

fn wrong(field: &'static str, why: String) -> EventError {
    EventError { field, why }
}

const ACTIONS: [(&str, &[&str]); 8] = [
    ("set", &["action", "partition_key", "number_of_shards"]),
    ("shrink", &["action", "partition_key", "number_of_shards"]),
    ("settle", &["action", "partition_key"]),
    ("drain", &["action"]),
    ("migrate", &["action", "after"]),
    ("rebuild", &["action"]),
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
    let number_of_shards = || {
        let given = event.get("number_of_shards").unwrap_or(&Value::Null);
        let number = given.as_i64().map(i128::from).or_else(|| given.as_u64().map(i128::from));
        number.ok_or_else(|| wrong("number_of_shards", format!("it is {given}; a whole number is needed")))
    };
    Ok(match *name {
        "set" => ScalerEvent::Set { partition_key: partition_key()?, number_of_shards: number_of_shards()? },
        "shrink" => ScalerEvent::Shrink { partition_key: partition_key()?, number_of_shards: number_of_shards()? },
        "settle" => ScalerEvent::Settle { partition_key: partition_key()? },
        "show" => ScalerEvent::Show { partition_key: partition_key()? },
        "drain" => ScalerEvent::Drain,
        "migrate" => ScalerEvent::Migrate { after: place(event)? },
        "rebuild" => ScalerEvent::Rebuild,
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

/// The direct and the EventBridge form: `state` and `configuration`.
fn native(data: &Value) -> Option<Alarm> {
    let state = data.pointer("/state/value")?.as_str()?.to_owned();
    let name = data.get("alarmName").and_then(Value::as_str).map(str::to_owned);
    let changed_at = data.pointer("/state/timestamp").and_then(Value::as_str).and_then(epoch_seconds);
    let configuration = data.get("configuration").unwrap_or(&Value::Null);
    Some(Alarm { name, state, tables: tables(configuration), metrics: metrics(configuration), changed_at })
}

/// The SNS form: a JSON text with other names.
fn sns(record: &Value) -> Option<Alarm> {
    let message = record.pointer("/Sns/Message")?.as_str()?;
    let message: Value = serde_json::from_str(message).ok()?;
    let state = message.get("NewStateValue")?.as_str()?.to_owned();
    let name = message.get("AlarmName").and_then(Value::as_str).map(str::to_owned);
    let changed_at = message.get("StateChangeTime").and_then(Value::as_str).and_then(epoch_seconds);
    let trigger = message.get("Trigger").unwrap_or(&Value::Null);
    Some(Alarm { name, state, tables: tables(trigger), metrics: metrics(trigger), changed_at })
}

/// CloudWatch writes the offset without its colon.
fn epoch_seconds(time: &str) -> Option<u64> {
    let with_colon = match time.len().checked_sub(2).and_then(|at| time.split_at_checked(at)) {
        Some((start, minutes)) if !time.ends_with('Z') && !start.ends_with(':') => format!("{start}:{minutes}"),
        _ => time.to_owned(),
    };
    let at = OffsetDateTime::parse(&with_colon, &Rfc3339).ok()?;
    u64::try_from(at.unix_timestamp()).ok()
}

/// Every metric's name, wherever it stands: `{"metric": {"name": m}}`, or `{"MetricName": m}`.
fn metrics(value: &Value) -> Vec<String> {
    named(value, &|object, found| {
        let metric = object.get("metric").and_then(|metric| metric.get("name")).or_else(|| object.get("MetricName"));
        found.extend(metric.and_then(Value::as_str).map(str::to_owned));
    })
}

/// Every `TableName` dimension, wherever it stands: `{"TableName": t}` or `[{"name": "TableName", "value": t}]`.
fn tables(value: &Value) -> Vec<String> {
    named(value, &|object, found| {
        let text = |name: &str| {
            object.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).and_then(|(_, value)| value.as_str())
        };
        found.extend(object.get("TableName").and_then(Value::as_str).map(str::to_owned));
        if text("name") == Some("TableName") {
            found.extend(text("value").map(str::to_owned));
        }
    })
}

/// What the objects within a value name, in order and each once.
fn named(value: &Value, names: &impl Fn(&Map<String, Value>, &mut Vec<String>)) -> Vec<String> {
    let mut found = Vec::new();
    collect(value, names, &mut found);
    found.sort();
    found.dedup();
    found
}

fn collect(value: &Value, names: &impl Fn(&Map<String, Value>, &mut Vec<String>), found: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect(value, names, found)),
        Value::Object(object) => {
            names(object, found);
            object.values().for_each(|value| collect(value, names, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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
        ] {
            assert!(ScalerEvent::parse(&event).is_err(), "{event}");
        }
    }

    #[test]
    fn times_are_read_as_cloudwatch_writes_them() {
        for (text, seconds) in [
            ("2023-08-04T12:36:15.490+0000", Some(1_691_152_575)),
            ("2023-08-04T12:36:15.490+00:00", Some(1_691_152_575)),
            ("2023-08-04T14:36:15+0200", Some(1_691_152_575)),
            ("yesterday", None),
            ("", None),
            ("ä", None),
        ] {
            assert_eq!(epoch_seconds(text), seconds, "{text}");
        }
        assert_eq!(epoch_seconds("2023-08-04T12:36:15Z"), Some(1_691_152_575));
    }

    #[test]
    fn an_alarm_needs_no_more_than_its_state() {
        let event = json!({"alarmData": {"state": {"value": "ALARM"}}});
        let alarm = Alarm { name: None, state: "ALARM".into(), tables: vec![], metrics: vec![], changed_at: None };
        assert_eq!(ScalerEvent::parse(&event), Ok(ScalerEvent::Alarms(vec![alarm])));
    }
}
