//! Contributor Insights in throttled-keys mode, from the engine's own throttles, and the report that CloudWatch makes of it.

use std::collections::HashMap;
use std::io::Cursor;

use ciborium::Value as Cbor;
use serde_json::{Value, json};

use crate::engine::Answer;

/// How long throttles are remembered.
const REMEMBERED_MINUTES: u64 = 60;
/// The most keys of one minute; further ones are not counted, as a top-N list would not show them.
const KEYS_PER_MINUTE: usize = 10_000;
/// DynamoDB's rules allow no more. [CloudWatch API reference, GetInsightRuleReport]
const MOST_CONTRIBUTORS: u64 = 25;
const RULE_PREFIX: &str = "DynamoDBContributorInsights-PKT-";
/// Real rule names end in their time of creation.
const RULE_STAMP: &str = "-1700000000000";

/// Throttled requests by minute, table and key.
#[derive(Debug, Default)]
pub(crate) struct ThrottledKeys {
    minutes: HashMap<u64, HashMap<(String, String), u64>>,
}

impl ThrottledKeys {
    pub(crate) fn record(&mut self, table: &str, key: &str, epoch_seconds: u64) {
        let minute = epoch_seconds / 60;
        if !self.minutes.contains_key(&minute) {
            self.minutes.retain(|old, _| old + REMEMBERED_MINUTES > minute);
        }
        let keys = self.minutes.entry(minute).or_default();
        let entry = (table.to_owned(), bare_key(key));
        if keys.len() < KEYS_PER_MINUTE || keys.contains_key(&entry) {
            *keys.entry(entry).or_default() += 1;
        }
    }

    /// The most throttled keys of a table, most first.
    fn top(&self, table: &str, from: u64, to: u64, most: u64) -> (Vec<(String, u64)>, usize) {
        let mut totals: HashMap<&str, u64> = HashMap::new();
        for (minute, keys) in &self.minutes {
            if minute * 60 + 60 > from && minute * 60 <= to {
                for ((_, key), count) in keys.iter().filter(|((of, _), _)| of == table) {
                    *totals.entry(key).or_default() += count;
                }
            }
        }
        let unique = totals.len();
        let mut top: Vec<_> = totals.into_iter().map(|(key, count)| (key.to_owned(), count)).collect();
        top.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        top.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        (top, unique)
    }

    /// DynamoDB's answer to DescribeContributorInsights.
    pub(crate) fn describe(table: &str) -> Value {
        json!({
            "TableName": table,
            "ContributorInsightsRuleList": [format!("{RULE_PREFIX}{table}{RULE_STAMP}")],
            "ContributorInsightsStatus": "ENABLED",
            "ContributorInsightsMode": "THROTTLED_KEYS",
        })
    }

    /// CloudWatch's answer to GetInsightRuleReport, in its CBOR protocol.
    pub(crate) fn report(&self, body: &[u8]) -> Answer {
        let Ok(Cbor::Map(fields)) = ciborium::from_reader::<Cbor, _>(Cursor::new(body)) else {
            return cbor_error("InvalidParameterValue", "the request is not a CBOR map");
        };
        let field = |name: &str| fields.iter().find(|(key, _)| key.as_text() == Some(name)).map(|(_, value)| value);
        let rule = field("RuleName").and_then(Cbor::as_text).unwrap_or_default();
        let Some(table) = rule.strip_prefix(RULE_PREFIX).and_then(|rest| rest.strip_suffix(RULE_STAMP)) else {
            return cbor_error("ResourceNotFoundException", "there is no such rule");
        };
        let (Some(from), Some(to)) = (field("StartTime").and_then(seconds), field("EndTime").and_then(seconds)) else {
            return cbor_error("MissingRequiredParameterException", "StartTime and EndTime are required");
        };
        let most =
            field("MaxContributorCount").and_then(Cbor::as_integer).map_or(10, |n| u64::try_from(n).unwrap_or(0));
        if !(1..=MOST_CONTRIBUTORS).contains(&most) {
            return cbor_error(
                "InvalidParameterValue",
                "MaxContributorCount must be from 1 to 25 for rules of DynamoDB",
            );
        }
        let (top, unique) = self.top(table, from, to, most);
        let float = |count: u64| Cbor::Float(count as f64);
        let contributors = top.iter().map(|(key, count)| {
            map([
                ("Keys", Cbor::Array(vec![Cbor::Text(key.clone())])),
                ("ApproximateAggregateValue", float(*count)),
                ("Datapoints", Cbor::Array(Vec::new())),
            ])
        });
        let report = map([
            ("KeyLabels", Cbor::Array(vec![Cbor::Text("PartitionKey".into())])),
            ("AggregationStatistic", Cbor::Text("Sum".into())),
            ("AggregateValue", float(top.iter().map(|(_, count)| count).sum())),
            ("ApproximateUniqueCount", Cbor::Integer((unique as u64).into())),
            ("Contributors", Cbor::Array(contributors.collect())),
        ]);
        Answer::cbor(200, encode(&report))
    }
}

/// The text of a key; a key of another type than string keeps its JSON form.
fn bare_key(key: &str) -> String {
    let parsed: Option<Value> = serde_json::from_str(key).ok();
    parsed.and_then(|value| value.get("S")?.as_str().map(str::to_owned)).unwrap_or_else(|| key.to_owned())
}

/// A timestamp: tag 1 over a number of seconds.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is open")]
fn seconds(value: &Cbor) -> Option<u64> {
    let inner = match value {
        Cbor::Tag(1, inner) => inner,
        other => other,
    };
    match inner {
        Cbor::Integer(n) => u64::try_from(*n).ok(),
        Cbor::Float(f) if *f >= 0.0 => Some(*f as u64),
        _ => None,
    }
}

fn map<const N: usize>(fields: [(&str, Cbor); N]) -> Cbor {
    Cbor::Map(fields.into_iter().map(|(name, value)| (Cbor::Text(name.into()), value)).collect())
}

fn encode(value: &Cbor) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail.
    let _ = ciborium::into_writer(value, &mut bytes);
    bytes
}

fn cbor_error(code: &str, message: &str) -> Answer {
    Answer::cbor(400, encode(&map([("__type", Cbor::Text(code.into())), ("message", Cbor::Text(message.into()))])))
}
