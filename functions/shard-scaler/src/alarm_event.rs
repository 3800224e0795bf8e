//! Alarms, as they arrive. They come in three envelopes and many variants, so parsing is lenient
//! and requires nothing that the decision does not need.

use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// One alarm's change of state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// The alarm's name, if it has one.
    pub(crate) name: Option<String>,
    /// `ALARM`, `OK` or `INSUFFICIENT_DATA`.
    pub(crate) state: String,
    /// Every table that its metrics name. Empty for metric math and composite alarms.
    pub(crate) tables: Vec<String>,
    /// Every metric that it names.
    pub(crate) metrics: Vec<AlarmMetric>,
    /// When the state changed, in seconds since the Unix epoch. `None` if the time cannot be
    /// parsed.
    pub(crate) changed_at: Option<u64>,
}

/// A metric that an alarm names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AlarmMetric {
    /// Its name, for example `WriteKeyRangeThroughputThrottleEvents`.
    pub(crate) name: String,
    /// The index of the metric. `None` for the table.
    pub(crate) index: Option<String>,
}

/// The alarms of an event in any of the three envelopes.
pub(crate) fn alarms(event: &Map<String, Value>) -> Vec<Alarm> {
    match event.get("Records").and_then(Value::as_array) {
        Some(records) => records.iter().filter_map(sns).collect(),
        None => [event.get("alarmData"), event.get("detail")]
            .into_iter()
            .flatten()
            .filter_map(native)
            .collect(),
    }
}

/// The direct and the EventBridge format: `state` and `configuration`.
fn native(data: &Value) -> Option<Alarm> {
    let state = data.pointer("/state/value")?.as_str()?.to_owned();
    let name = data.get("alarmName").and_then(Value::as_str).map(str::to_owned);
    let changed_at =
        data.pointer("/state/timestamp").and_then(Value::as_str).and_then(epoch_seconds);
    let configuration = data.get("configuration").unwrap_or(&Value::Null);
    Some(Alarm {
        name,
        state,
        tables: tables(configuration),
        metrics: metrics(configuration),
        changed_at,
    })
}

/// The SNS format: a JSON text with other names.
fn sns(record: &Value) -> Option<Alarm> {
    let message = record.pointer("/Sns/Message")?.as_str()?;
    let message: Value = serde_json::from_str(message).ok()?;
    let state = message.get("NewStateValue")?.as_str()?.to_owned();
    let name = message.get("AlarmName").and_then(Value::as_str).map(str::to_owned);
    let changed_at = message.get("StateChangeTime").and_then(Value::as_str).and_then(epoch_seconds);
    let trigger = message.get("Trigger").unwrap_or(&Value::Null);
    Some(Alarm { name, state, tables: tables(trigger), metrics: metrics(trigger), changed_at })
}

/// CloudWatch writes the offset without a colon.
fn epoch_seconds(time: &str) -> Option<u64> {
    let with_colon = match time.len().checked_sub(2).and_then(|at| time.split_at_checked(at)) {
        Some((start, minutes)) if !time.ends_with('Z') && !start.ends_with(':') => {
            format!("{start}:{minutes}")
        }
        _ => time.to_owned(),
    };
    let at = OffsetDateTime::parse(&with_colon, &Rfc3339).ok()?;
    u64::try_from(at.unix_timestamp()).ok()
}

/// Every metric at any depth: `{"metric": {"name": m, "dimensions": d}}`, or `{"MetricName": m,
/// "Dimensions": d}`.
fn metrics(value: &Value) -> Vec<AlarmMetric> {
    named(value, &|object, found| {
        let (metric, name) = match object.get("metric").and_then(Value::as_object) {
            Some(metric) => (metric, "name"),
            None => (object, "MetricName"),
        };
        let Some(name) = metric.get(name).and_then(Value::as_str).map(str::to_owned) else {
            return;
        };
        let dimensions =
            metric.get("dimensions").or_else(|| metric.get("Dimensions")).unwrap_or(&Value::Null);
        let index = dimension(dimensions, "GlobalSecondaryIndexName").into_iter().next();
        found.push(AlarmMetric { name, index });
    })
}

/// Every `TableName` dimension at any depth.
fn tables(value: &Value) -> Vec<String> {
    dimension(value, "TableName")
}

/// The values of a dimension: `{"TableName": t}` or `[{"name": "TableName", "value": t}]`.
fn dimension(value: &Value, wanted: &str) -> Vec<String> {
    named(value, &|object, found| {
        let text = |name: &str| {
            object
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .and_then(|(_, value)| value.as_str())
        };
        found.extend(object.get(wanted).and_then(Value::as_str).map(str::to_owned));
        if text("name") == Some(wanted) {
            found.extend(text("value").map(str::to_owned));
        }
    })
}

/// The names in the objects within a value, in order and each once.
fn named<T: Ord>(value: &Value, names: &impl Fn(&Map<String, Value>, &mut Vec<T>)) -> Vec<T> {
    let mut found = Vec::new();
    collect(value, names, &mut found);
    found.sort();
    found.dedup();
    found
}

fn collect<T>(
    value: &Value,
    names: &impl Fn(&Map<String, Value>, &mut Vec<T>),
    found: &mut Vec<T>,
) {
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

    fn alarm(event: Value) -> Alarm {
        alarms(event.as_object().unwrap()).remove(0)
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
        let alarm = Alarm {
            name: None,
            state: "ALARM".into(),
            tables: vec![],
            metrics: vec![],
            changed_at: None,
        };
        assert_eq!(super::alarms(event.as_object().unwrap()), [alarm]);
    }

    #[test]
    fn a_metric_of_an_index_is_read_as_of_that_index_in_every_envelope() {
        let of_index = AlarmMetric {
            name: "WriteKeyRangeThroughputThrottleEvents".into(),
            index: Some("by-customer".into()),
        };
        let metric = json!({
            "name": "WriteKeyRangeThroughputThrottleEvents",
            "dimensions": {"TableName": "items", "GlobalSecondaryIndexName": "by-customer"},
        });
        let metrics = json!([{"metricStat": {"metric": metric}}]);
        let native = json!({
            "alarmData": {"state": {"value": "ALARM"}, "configuration": {"metrics": metrics}},
        });
        let dimensions = json!([
            {"name": "GlobalSecondaryIndexName", "value": "by-customer"},
            {"name": "TableName", "value": "items"},
        ]);
        let sns = |trigger: Value| {
            let message = json!({"NewStateValue": "ALARM", "Trigger": trigger}).to_string();
            json!({"Records": [{"Sns": {"Message": message}}]})
        };
        let name = "WriteKeyRangeThroughputThrottleEvents";
        let metric = json!({"MetricName": name, "Dimensions": dimensions});
        let math = json!({"Metrics": [{"Id": "m1", "MetricStat": {"Metric": metric}}]});
        for event in [native, sns(metric), sns(math)] {
            let alarm = alarm(event);
            assert_eq!(
                (alarm.metrics, alarm.tables),
                (vec![of_index.clone()], vec!["items".to_owned()])
            );
        }
    }
}
