//! Parsing of events: direct ones, and alarms with the limits that their metrics name.
//!
//! Alarms come in three envelopes and many variants, so their parsing is lenient and requires
//! nothing that the decision does not need.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use sharding::ShardCount;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const MAX_ALARMS: usize = 20;
/// The longest name of an alarm. (CloudWatch API reference, "SetAlarmState".)
const MAX_ALARM_NAME_CHARS: usize = 255;

/// Where an alarm's state, name, time and metrics are, as JSON pointers.
type AlarmFormat = [&'static str; 4];
/// The format of direct events and of EventBridge.
const NATIVE_FORMAT: AlarmFormat =
    ["/state/value", "/alarmName", "/state/timestamp", "/configuration"];
/// The format of the JSON text in an event of SNS.
const SNS_FORMAT: AlarmFormat = ["/NewStateValue", "/AlarmName", "/StateChangeTime", "/Trigger"];

/// An event, as far as the shard-scaler uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScalerEvent {
    Direct(DirectEvent),
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
    /// Rebuild the metadata from all items.
    Rebuild {},
    /// Raise the number of copies of each page of the directory.
    Copies { copies: WholeNumber },
    /// Set alarms back to OK, so that they can act again.
    Rearm { alarms: AlarmNames },
    /// Arm the keys of a pattern, although the table has what `allow` names.
    Arm {
        pattern: String,
        #[serde(default)]
        allow: Vec<String>,
    },
    /// Remove a pattern that does not count yet.
    Disarm { pattern: String },
    /// Show the patterns of armed keys.
    Status {},
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

/// A whole number without bounds. The bounds of a width depend on the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct WholeNumber(pub(crate) i128);

/// The names of 1 to 20 alarms, each of 1 to 255 characters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct AlarmNames(pub(crate) Vec<String>);

/// One alarm's change of state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    pub(crate) name: Option<String>,
    /// `ALARM`, `OK` or `INSUFFICIENT_DATA`.
    pub(crate) state: String,
    /// Every table that its metrics name. Empty for metric math and composite alarms.
    pub(crate) tables: BTreeSet<String>,
    pub(crate) metrics: BTreeSet<AlarmMetric>,
    /// When the state changed, in seconds since the Unix epoch. `None` if the time cannot be
    /// parsed.
    pub(crate) changed_at: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AlarmMetric {
    /// Its name, for example `WriteKeyRangeThroughputThrottleEvents`.
    pub(crate) name: String,
    /// The index of the metric. `None` for the table.
    pub(crate) index: Option<String>,
}

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
        let Some(fields) = event.as_object() else {
            return Err(EventError::new("event", "it is not an object"));
        };
        if fields.contains_key("action") {
            return DirectEvent::parse(fields.clone()).map(Self::Direct);
        }
        let alarms = Alarm::all(fields);
        if alarms.is_empty() {
            let known = "it is of no known shape; a direct event has an action (set, warm, shrink, \
                         settle, drain, rebuild, copies, rearm, arm, disarm, status, show, list); an alarm \
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
    pub(crate) fn shard_count(self) -> Option<ShardCount> {
        u32::try_from(self.0).ok().and_then(ShardCount::new)
    }

    /// The error of a field with this number.
    pub(crate) fn refused(self, field: &str, allowed: impl Display) -> EventError {
        EventError::new(field, format_args!("it is {}; allowed: {allowed}", self.0))
    }
}

impl TryFrom<Value> for WholeNumber {
    type Error = String;

    fn try_from(given: Value) -> Result<Self, String> {
        let number = given.as_i64().map(i128::from).or_else(|| given.as_u64().map(i128::from));
        number.map(Self).ok_or_else(|| format!("it is {given}; a whole number is needed"))
    }
}

impl TryFrom<Vec<String>> for AlarmNames {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        let is_name = |name: &String| (1..=MAX_ALARM_NAME_CHARS).contains(&name.chars().count());
        if (1..=MAX_ALARMS).contains(&names.len()) && names.iter().all(is_name) {
            return Ok(Self(names));
        }
        let each = format!("each a string of 1 to {MAX_ALARM_NAME_CHARS} characters");
        Err(format!("allowed: a list of 1 to {MAX_ALARMS} names of alarms, {each}"))
    }
}

impl Alarm {
    /// The alarms of an event in any of the three envelopes.
    fn all(event: &Map<String, Value>) -> Vec<Self> {
        if let Some(records) = event.get("Records").and_then(Value::as_array) {
            return records.iter().filter_map(Self::of_sns).collect();
        }
        let envelopes = [event.get("alarmData"), event.get("detail")].into_iter().flatten();
        envelopes.filter_map(|alarm| Self::of(alarm, NATIVE_FORMAT)).collect()
    }

    fn of_sns(record: &Value) -> Option<Self> {
        let message = record.pointer("/Sns/Message")?.as_str()?;
        Self::of(&serde_json::from_str(message).ok()?, SNS_FORMAT)
    }

    fn of(alarm: &Value, [state, name, changed_at, metrics]: AlarmFormat) -> Option<Self> {
        let text = |pointer| alarm.pointer(pointer).and_then(Value::as_str);
        let metrics = alarm.pointer(metrics).unwrap_or(&Value::Null);
        Some(Self {
            name: text(name).map(str::to_owned),
            state: text(state)?.to_owned(),
            tables: dimension(metrics, "TableName"),
            metrics: objects(metrics).into_iter().filter_map(AlarmMetric::of).collect(),
            changed_at: text(changed_at).and_then(epoch_seconds),
        })
    }
}

impl AlarmMetric {
    /// `{"metric": {"name": m, "dimensions": d}}`, or `{"MetricName": m, "Dimensions": d}`.
    fn of(object: &Map<String, Value>) -> Option<Self> {
        let (metric, name) = match object.get("metric").and_then(Value::as_object) {
            Some(metric) => (metric, "name"),
            None => (object, "MetricName"),
        };
        let name = metric.get(name)?.as_str()?.to_owned();
        let dimensions = metric.get("dimensions").or_else(|| metric.get("Dimensions"));
        let index = dimension(dimensions.unwrap_or(&Value::Null), "GlobalSecondaryIndexName");
        Some(Self { name, index: index.into_iter().next() })
    }
}

/// The values of a dimension at any depth, each once: `{"TableName": t}` or `[{"name": "TableName",
/// "value": t}]`.
fn dimension(value: &Value, wanted: &str) -> BTreeSet<String> {
    let of_object = |object: &Map<String, Value>| {
        let text = |name: &str| {
            let mut fields = object.iter();
            let (_, value) = fields.find(|(field, _)| field.eq_ignore_ascii_case(name))?;
            value.as_str().map(str::to_owned)
        };
        let named = object.get(wanted).and_then(Value::as_str).map(str::to_owned);
        let is_wanted = text("name").as_deref() == Some(wanted);
        [named, text("value").filter(|_| is_wanted)]
    };
    objects(value).into_iter().flat_map(of_object).flatten().collect()
}

/// Every object within a value, at any depth.
fn objects(value: &Value) -> Vec<&Map<String, Value>> {
    match value {
        Value::Array(values) => values.iter().flat_map(objects).collect(),
        Value::Object(object) => {
            let within = object.values().flat_map(objects);
            std::iter::once(object).chain(within).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
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

/// A limit that requests exceeded, and the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// Partitions exceed their limit of writes: more shards.
    HotWrites,
    /// Partitions exceed their limit of reads: replicas or a cache, never more shards of a key that
    /// is read as a whole.
    HotReads,
    /// The table's provisioned write units are used up: more units.
    ProvisionedWrites,
    /// The table's provisioned read units are used up: more units.
    ProvisionedReads,
    /// The maximum that the owner set for on-demand throughput: only the owner can raise it.
    OnDemandMaximum,
    /// The account's quota for one table: only a higher quota.
    Account,
}

impl Cause {
    /// Every metric of `AWS/DynamoDB` that names its cause. (DynamoDB developer guide, "Metrics and
    /// dimensions".)
    const METRICS: [(&'static str, Self); 8] = [
        ("WriteKeyRangeThroughputThrottleEvents", Self::HotWrites),
        ("ReadKeyRangeThroughputThrottleEvents", Self::HotReads),
        ("WriteProvisionedThroughputThrottleEvents", Self::ProvisionedWrites),
        ("ReadProvisionedThroughputThrottleEvents", Self::ProvisionedReads),
        ("WriteMaxOnDemandThroughputThrottleEvents", Self::OnDemandMaximum),
        ("ReadMaxOnDemandThroughputThrottleEvents", Self::OnDemandMaximum),
        ("WriteAccountLimitThrottleEvents", Self::Account),
        ("ReadAccountLimitThrottleEvents", Self::Account),
    ];

    /// The operator's remedy, if the shard-scaler has none.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::HotWrites => "more shards relieve the keys",
            Self::HotReads => {
                "add read replicas (READ_REPLICAS), read with consistent=false, or put a cache before the reader"
            }
            Self::ProvisionedWrites => {
                "raise the provisioned write units, or MAX_WRITE_UNITS so that the shard-scaler may"
            }
            Self::ProvisionedReads => {
                "raise the provisioned read units, or MAX_READ_UNITS so that the shard-scaler may"
            }
            Self::OnDemandMaximum => {
                "raise the maximum on-demand throughput that is set on the table; more shards do not help"
            }
            Self::Account => "ask for a higher account quota; more shards do not help",
        }
    }

    /// The same for an index. A replica has the table's own keys, so the remedy for the table's
    /// partitions helps its own.
    pub(crate) const fn advice_of_index(self, is_replica: bool) -> &'static str {
        match self {
            Self::HotWrites | Self::HotReads if !is_replica => {
                "give the index a partition key with more distinct values; more shards of the table's key need not help"
            }
            Self::ProvisionedWrites => {
                "raise the index's provisioned write units; the shard-scaler raises the table's only"
            }
            Self::ProvisionedReads => {
                "raise the index's provisioned read units; the shard-scaler raises the table's only"
            }
            Self::OnDemandMaximum => {
                "raise the maximum on-demand throughput that is set on the index; more shards do not help"
            }
            Self::HotWrites | Self::HotReads | Self::Account => self.advice(),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) table: BTreeSet<Cause>,
    /// By the index's name. The metrics of the table do not count the throttles of its indexes.
    pub(crate) indexes: BTreeMap<String, BTreeSet<Cause>>,
}

impl Limits {
    /// The limits that an alarm's metrics name. If they name none (metric math, composite alarms,
    /// `WriteThrottleEvents`): hot partitions of the indexes that the alarm is about, or else of the
    /// table.
    pub(crate) fn of(metrics: &[&AlarmMetric]) -> Self {
        let mut limits = Self::default();
        for metric in metrics {
            let named = Cause::METRICS.iter().find(|(name, _)| *name == metric.name);
            if let Some((_, cause)) = named {
                limits.add(metric.index.as_deref(), *cause);
            }
        }
        if limits.is_empty() {
            let about = metrics.iter().filter_map(|metric| metric.index.as_deref());
            about.for_each(|index| limits.add(Some(index), Cause::HotWrites));
        }
        if limits.is_empty() {
            limits.add(None, Cause::HotWrites);
        }
        limits
    }

    fn is_empty(&self) -> bool {
        self.table.is_empty() && self.indexes.is_empty()
    }

    fn add(&mut self, index: Option<&str>, cause: Cause) {
        match index {
            Some(index) => self.indexes.entry(index.to_owned()).or_default().insert(cause),
            None => self.table.insert(cause),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(action: &str, mut event: Value) -> Result<ScalerEvent, EventError> {
        event["action"] = action.into();
        ScalerEvent::parse(&event)
    }

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
        ] {
            assert_eq!(ScalerEvent::parse(&event).unwrap_err().field, "event", "{event}");
        }
    }

    #[test]
    fn an_error_names_the_field_and_what_is_allowed() {
        let actions = "expected one of `set`, `warm`, `shrink`";
        let number = "a whole number is needed";
        let rows = [
            ("remove", json!({}), "action", actions),
            ("copies", json!({}), "copies", "missing field `copies`"),
            ("copies", json!({"copies": 1.5}), "copies", "it is 1.5; a whole number"),
            ("copies", json!({"copies": "9"}), "copies", number),
            ("set", json!({"partition_key": "k"}), "number_of_shards", "missing field"),
            ("warm", json!({"write_units": true}), "write_units", number),
            ("warm", json!({"read_units": "many"}), "read_units", "it is \"many\"; a whole number"),
            ("show", json!({"partition_key": 1}), "partition_key", "integer `1`, expected"),
            ("show", json!({"key": 1}), "event", "unknown field `key`, expected `par"),
            ("warm", json!({"key": 1}), "event", "unknown field `key`, expected `wri"),
            ("drain", json!({"key": 1}), "event", "unknown field `key`"),
            ("list", json!({"after": 7}), "after", "integer `7`, expected a string"),
        ];
        for (action, fields, field, why) in rows {
            let error = parsed(action, fields.clone()).unwrap_err();
            assert!(error.field == field && error.why.contains(why), "{action} {fields}: {error}");
        }
        let error = ScalerEvent::parse(&json!({"action": 7})).unwrap_err();
        assert!(error.field == "action" && error.why.contains(actions), "{error}");
    }

    #[test]
    fn a_rearm_names_its_alarms_and_a_wrong_list_is_reported() {
        let rearm = |alarms: Value| parsed("rearm", json!({"alarms": alarms}));
        let longest = "é".repeat(255);
        for names in [vec!["items-hot-partition".to_owned()], vec![longest.clone(); 20]] {
            let expected = DirectEvent::Rearm { alarms: AlarmNames(names.clone()) };
            assert_eq!(rearm(json!(names)), Ok(ScalerEvent::Direct(expected)));
        }
        let allowed = "allowed: a list of 1 to 20 names of alarms, each a string of 1 to 255";
        for (alarms, reported) in [
            (Value::Null, "invalid type: null, expected a sequence"),
            (json!("items-hot-partition"), "invalid type: string"),
            (json!(["a", 7]), "invalid type: integer `7`, expected a string"),
            (json!([]), allowed),
            (json!(vec!["a"; 21]), allowed),
            (json!([""]), allowed),
            (json!([format!("{longest}é")]), allowed),
        ] {
            let EventError { field, why } = rearm(alarms).unwrap_err();
            assert!(field == "alarms" && why.starts_with(reported), "{field}: {why}");
        }
    }

    #[test]
    fn times_are_read_as_cloudwatch_writes_them() {
        for (text, seconds) in [
            ("2023-08-04T12:36:15.490+0000", Some(1_691_152_575)),
            ("2023-08-04T12:36:15.490+00:00", Some(1_691_152_575)),
            ("2023-08-04T14:36:15+0200", Some(1_691_152_575)),
            ("2023-08-04T12:36:15Z", Some(1_691_152_575)),
            ("yesterday", None),
            ("", None),
            ("ä", None),
        ] {
            assert_eq!(epoch_seconds(text), seconds, "{text}");
        }
    }

    #[test]
    fn an_alarm_needs_no_more_than_its_state() {
        let event = json!({"alarmData": {"state": {"value": "ALARM"}}});
        let alarm = Alarm { state: "ALARM".into(), ..Alarm::default() };
        assert_eq!(ScalerEvent::parse(&event), Ok(ScalerEvent::Alarms(vec![alarm])));
    }

    #[test]
    fn a_metric_of_an_index_is_read_in_every_envelope() {
        let name = "WriteKeyRangeThroughputThrottleEvents";
        let metric = json!({
            "name": name,
            "dimensions": {"TableName": "items", "GlobalSecondaryIndexName": "by-customer"},
        });
        let metrics = json!([{"metricStat": {"metric": metric}}]);
        let native = json!({"state": {"value": "ALARM"}, "configuration": {"metrics": metrics}});
        let dimensions = json!([
            {"name": "GlobalSecondaryIndexName", "value": "by-customer"},
            {"name": "TableName", "value": "items"},
        ]);
        let sns = |trigger: Value| {
            let message = json!({"NewStateValue": "ALARM", "Trigger": trigger}).to_string();
            json!({"Records": [{"Sns": {"Message": message}}]})
        };
        let metric = json!({"MetricName": name, "Dimensions": dimensions});
        let math = json!({"Metrics": [{"Id": "m1", "MetricStat": {"Metric": metric}}]});
        let watched = AlarmMetric { name: name.into(), index: Some("by-customer".into()) };
        let expected = Alarm {
            state: "ALARM".into(),
            tables: BTreeSet::from(["items".into()]),
            metrics: BTreeSet::from([watched]),
            ..Alarm::default()
        };
        let direct = json!({"alarmData": native});
        for event in [direct, json!({"detail": native}), sns(metric), sns(math)] {
            let alarms = ScalerEvent::parse(&event);
            assert_eq!(alarms, Ok(ScalerEvent::Alarms(vec![expected.clone()])), "{event}");
        }
    }
}
