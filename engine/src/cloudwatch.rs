//! The engine's CloudWatch, which speaks CloudWatch's CBOR protocol.
//!
//! It holds throttles by second and key (Contributor Insights in throttled-keys mode), and the states
//! of alarms.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

use ciborium::Value as Cbor;
use serde_json::{Value, json};

use crate::request::bare_key;
use crate::response::Response;

/// Throttles are kept for this many seconds.
const REMEMBERED: u64 = 15 * 60;
/// The most keys counted in one second. Further keys are not counted, because a top-N list would not
/// show them.
const KEYS_PER_SECOND: usize = 1_000;
/// The period of a report's data points, in seconds.
const PERIOD: u64 = 60;
/// The most contributors that a report on DynamoDB's rules may have (CloudWatch API reference,
/// GetInsightRuleReport).
const MOST_CONTRIBUTORS: u64 = 25;
const RULE_PREFIX: &str = "DynamoDBContributorInsights-PKT-";
/// Real rule names end in their time of creation.
const RULE_STAMP: &str = "-1700000000000";
/// The part of a path of CloudWatch before the operation.
const OPERATIONS: &str = "/operation/";

/// Throttles by table and key.
type Throttles = HashMap<(String, String), u64>;

/// Throttled requests by second, and the alarms that were set.
#[derive(Debug, Default)]
pub(crate) struct CloudWatch {
    /// By second.
    throttles: BTreeMap<u64, Throttles>,
    alarms: HashMap<String, String>,
}

impl CloudWatch {
    pub(crate) fn serves(path: &str) -> bool {
        path.contains(OPERATIONS)
    }

    pub(crate) fn respond(&mut self, path: &str, body: &[u8]) -> Response {
        let Ok(Cbor::Map(fields)) = ciborium::from_reader::<Cbor, _>(Cursor::new(body)) else {
            return cbor_error("InvalidParameterValue", "the request is not a CBOR map");
        };
        let request = Fields(&fields);
        match path.rsplit_once(OPERATIONS).map(|(_, operation)| operation) {
            Some("GetInsightRuleReport") => self.report(&request),
            Some("DescribeAlarms") => self.describe_alarms(&request),
            Some("SetAlarmState") => self.set_alarm(&request),
            _ => cbor_error(
                "UnknownOperationException",
                "the local edition does not have this operation of CloudWatch",
            ),
        }
    }

    /// The state that an alarm was set to; `None` if it was never set.
    pub(crate) fn alarm(&self, name: &str) -> Option<&str> {
        self.alarms.get(name).map(String::as_str)
    }

    pub(crate) fn set_alarm_to(&mut self, name: &str, state: &str) {
        self.alarms.insert(name.to_owned(), state.to_owned());
    }

    /// The states of the named alarms that exist.
    fn describe_alarms(&self, request: &Fields<'_>) -> Response {
        let Some(names) = request.get("AlarmNames").and_then(Cbor::as_array) else {
            return cbor_error("InvalidParameterValue", "the local edition needs AlarmNames");
        };
        let alarms = names.iter().filter_map(Cbor::as_text).filter_map(|name| {
            Some(map([("AlarmName", text(name)), ("StateValue", text(self.alarm(name)?))]))
        });
        success([("MetricAlarms", Cbor::Array(alarms.collect()))])
    }

    fn set_alarm(&mut self, request: &Fields<'_>) -> Response {
        let (Some(name), Some(state @ ("OK" | "ALARM" | "INSUFFICIENT_DATA"))) =
            (request.text("AlarmName"), request.text("StateValue"))
        else {
            return cbor_error("InvalidParameterValue", "AlarmName and a StateValue are required");
        };
        if self.alarm(name).is_none() {
            return cbor_error("ResourceNotFound", "there is no such alarm");
        }
        self.set_alarm_to(name, state);
        success([])
    }

    pub(crate) fn record(&mut self, table: &str, key: &str, epoch_seconds: u64) {
        if !self.throttles.contains_key(&epoch_seconds) {
            self.throttles = self.throttles.split_off(&epoch_seconds.saturating_sub(REMEMBERED));
        }
        let counts = self.throttles.entry(epoch_seconds).or_default();
        let entry = (table.to_owned(), bare_key(key));
        if counts.len() < KEYS_PER_SECOND || counts.contains_key(&entry) {
            *counts.entry(entry).or_default() += 1;
        }
    }

    /// The throttled keys of a table in descending order, each with its throttles by the start of
    /// their minute.
    fn throttled_keys(&self, table: &str, from: u64, to: u64) -> Vec<(&str, BTreeMap<u64, u64>)> {
        let mut keys = HashMap::<&str, BTreeMap<u64, u64>>::new();
        for (second, counts) in self.throttles.range(from..=to.max(from)) {
            for ((_, key), count) in counts.iter().filter(|((of, _), _)| of == table) {
                *keys.entry(key).or_default().entry(second / PERIOD * PERIOD).or_default() += count;
            }
        }
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_by_key(|(key, counts)| (Reverse(counts.values().sum::<u64>()), *key));
        keys
    }

    /// DynamoDB's response to DescribeContributorInsights for a table or one of its indexes.
    pub(crate) fn describe(table: &str, index: Option<&str>) -> Value {
        let resource = index.map_or_else(|| table.to_owned(), |index| format!("{table}-{index}"));
        json!({
            "TableName": table,
            "IndexName": index,
            "ContributorInsightsRuleList": [format!("{RULE_PREFIX}{resource}{RULE_STAMP}")],
            "ContributorInsightsStatus": "ENABLED",
            "ContributorInsightsMode": "THROTTLED_KEYS",
        })
    }

    fn report(&self, request: &Fields<'_>) -> Response {
        let rule = request.text("RuleName").unwrap_or_default();
        let Some(table) =
            rule.strip_prefix(RULE_PREFIX).and_then(|rest| rest.strip_suffix(RULE_STAMP))
        else {
            return cbor_error("ResourceNotFoundException", "there is no such rule");
        };
        let Some((from, to)) = request.period() else {
            let message = "StartTime and EndTime are required";
            return cbor_error("MissingRequiredParameterException", message);
        };
        let most = request
            .get("MaxContributorCount")
            .and_then(Cbor::as_integer)
            .map_or(10, |n| u64::try_from(n).unwrap_or(0));
        if !(1..=MOST_CONTRIBUTORS).contains(&most) {
            return cbor_error(
                "InvalidParameterValue",
                "MaxContributorCount must be from 1 to 25 for rules of DynamoDB",
            );
        }
        let keys = self.throttled_keys(table, from, to);
        let top = &keys[..keys.len().min(most as usize)];
        let contributors = top.iter().map(|(key, counts)| {
            let datapoints = counts.iter().map(|(at, count)| {
                map([("Timestamp", time(*at)), ("ApproximateValue", float(*count))])
            });
            map([
                ("Keys", Cbor::Array(vec![text(key)])),
                ("ApproximateAggregateValue", float(counts.values().sum())),
                ("Datapoints", Cbor::Array(datapoints.collect())),
            ])
        });
        success([("Contributors", Cbor::Array(contributors.collect()))])
    }
}

struct Fields<'a>(&'a [(Cbor, Cbor)]);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a Cbor> {
        self.0.iter().find(|(key, _)| key.as_text() == Some(name)).map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name)?.as_text()
    }

    fn period(&self) -> Option<(u64, u64)> {
        Some((seconds(self.get("StartTime")?)?, seconds(self.get("EndTime")?)?))
    }
}

/// Reads a timestamp: CBOR tag 1 over a number of seconds.
fn seconds(value: &Cbor) -> Option<u64> {
    let number = value.as_tag().filter(|(tag, _)| *tag == 1).map_or(value, |(_, number)| number);
    let whole = number.as_integer().and_then(|seconds| u64::try_from(seconds).ok());
    whole.or_else(|| number.as_float().filter(|seconds| *seconds >= 0.0).map(|it| it as u64))
}

fn time(epoch_seconds: u64) -> Cbor {
    Cbor::Tag(1, Box::new(Cbor::Integer(epoch_seconds.into())))
}

fn float(count: u64) -> Cbor {
    Cbor::Float(count as f64)
}

fn text(text: &str) -> Cbor {
    Cbor::Text(text.to_owned())
}

fn map<const N: usize>(fields: [(&str, Cbor); N]) -> Cbor {
    Cbor::Map(fields.into_iter().map(|(name, value)| (text(name), value)).collect())
}

fn success<const N: usize>(fields: [(&str, Cbor); N]) -> Response {
    respond(200, &map(fields))
}

fn cbor_error(code: &str, message: &str) -> Response {
    respond(400, &map([("__type", text(code)), ("message", text(message))]))
}

fn respond(status: u16, value: &Cbor) -> Response {
    let mut body = Vec::new();
    // Writing to memory cannot fail.
    let _ = ciborium::into_writer(value, &mut body);
    Response { status, content_type: "application/cbor", body }
}
