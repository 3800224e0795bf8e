//! The shard-scaler's binary when its requests are rejected, throttled or answered with huge
//! bodies: a response that says so, no change, and the next event is handled.

use crate::assert_has;
use local::ServeOptions;
use serde_json::{Value, json};
use system_tests::{Function, Services, TestEdition, config, event, event_of_now};

const BINARY: &str = env!("CARGO_BIN_EXE_shard-scaler");

async fn scaler(services: &Services) -> Function {
    Function::start(BINARY, &Function::variables(services.url())).await
}

fn denied(action: &str) -> Option<(u16, Value)> {
    let message = format!("User is not authorized to perform: {action}");
    let class = "com.amazon.coral.service#AccessDeniedException";
    Some((400, json!({"__type": class, "message": message})))
}

fn throttled() -> (u16, Value) {
    (400, json!({"__type": "x#ThrottlingException", "message": "Rate exceeded"}))
}

/// The sum of a metric over the log, by the table alone.
fn counted(log: &str, metric: &str) -> u64 {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_table = lines.filter(|line| {
        line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == json!([["TableName"]])
    });
    of_table.filter_map(|line| line[metric].as_u64()).sum()
}

async fn still_answers(scaler: &mut Function) {
    let shown = scaler.invoke(event("shard-scaler-show")).await;
    assert_eq!(shown["outcome"], "shown", "{shown}");
}

struct Case {
    name: &'static str,
    /// The response to an operation. The edition responds to the others.
    responses: fn(&str) -> Option<(u16, Value)>,
    answer: Value,
    /// Parts of the answer's text.
    texts: &'static [&'static str],
    /// Lines of the log: their level and a part of them.
    logged: &'static [(&'static str, &'static str)],
    /// `ShardScalerFailures` and `ContributorInsightsOff`.
    counted: [u64; 2],
}

#[tokio::test]
async fn a_failure_during_an_alarm_is_reported_counted_and_logged() {
    let cases = [
        Case {
            name: "a missing permission",
            responses: |operation| match operation {
                "DescribeContributorInsights" => denied("dynamodb:DescribeContributorInsights"),
                "SetAlarmState" => denied("cloudwatch:SetAlarmState"),
                _ => None,
            },
            answer: json!({"outcome": "failed", "rearmed": false}),
            texts: &["DescribeContributorInsights", "not authorized"],
            logged: &[("ERROR", "could not be acted on"), ("WARN", "could not be re-armed")],
            // The alarm that was not acted on, and the one that was not armed again.
            counted: [2, 0],
        },
        Case {
            name: "a passing failure is a function error",
            responses: |operation| (operation == "GetInsightRuleReport").then(throttled),
            answer: json!({"function_error": {"errorType": "Failed"}}),
            texts: &[r#""errorMessage":"alarm failed: GetInsightRuleReport"#],
            logged: &[("INFO", "event handled"), ("INFO", r#"\"outcome\":\"failed\""#)],
            counted: [1, 0],
        },
        Case {
            // The schedule sets the alarm back within five minutes, so nobody is paged.
            name: "a throttled re-arming is no failure",
            responses: |operation| (operation == "SetAlarmState").then(throttled),
            answer: json!({"outcome": "handled", "rearmed": false}),
            texts: &[],
            logged: &[("WARN", "could not be re-armed")],
            counted: [0, 0],
        },
        Case {
            name: "Contributor Insights is off",
            responses: |operation| {
                (operation == "DescribeContributorInsights")
                    .then(|| (200, json!({"ContributorInsightsStatus": "DISABLED"})))
            },
            answer: json!({"outcome": "handled", "contributor_insights": "off"}),
            texts: &[],
            logged: &[("WARN", "update-contributor-insights")],
            counted: [0, 1],
        },
    ];
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    for case in cases {
        let Case { name, responses, texts, logged, .. } = case;
        println!("{name}");
        let services =
            Services::start(&edition.dynamodb_url(), move |operation, _| responses(operation))
                .await;
        let mut scaler = scaler(&services).await;
        let answer = scaler.invoke(event_of_now("shard-scaler-alarm-direct")).await;
        assert_has(&answer, case.answer);
        let text = answer.to_string();
        assert!(texts.iter().all(|part| text.contains(part)), "{name}: {text}");
        assert!(!text.contains("\\n"), "{name}: an error is one line: {text}");
        still_answers(&mut scaler).await;
        let log = scaler.stop().await;
        for (level, part) in logged {
            let is_it = |line: &str| line.contains(level) && line.contains(part);
            assert!(log.lines().any(is_it), "{name}: {level} {part}: {log}");
        }
        let metrics = ["ShardScalerFailures", "ContributorInsightsOff"];
        assert_eq!(metrics.map(|metric| counted(&log, metric)), case.counted, "{name}: {log}");
        // The start, the alarm, the table's warm throughput and its publication, and the last
        // event.
        let asked = services.asked();
        let is_for_good = text.contains("not authorized");
        assert!(!is_for_good || asked.len() < 20, "such refusals are not repeated: {asked:?}");
    }
}

#[tokio::test]
async fn without_a_description_keys_are_scaled_and_none_drains() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let services = Services::start(&edition.dynamodb_url(), |operation, _| {
        if operation == "DescribeTable" { denied("dynamodb:DescribeTable") } else { None }
    })
    .await;
    let mut scaler = scaler(&services).await;
    for shards in [4, 6] {
        let set = json!({"action": "set", "partition_key": "hot", "number_of_shards": shards});
        assert_eq!(scaler.invoke(set).await["outcome"], "scaled");
    }
    let answer = scaler.invoke(json!({"action": "drain"})).await;
    assert_eq!(answer["outcome"], "failed", "what the table takes is unknown: {answer}");
    assert!(answer["detail"].as_str().unwrap_or_default().contains("DescribeTable"), "{answer}");
    let log = scaler.stop().await;
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("warm throughput is not known")).collect();
    assert_eq!(lines.len(), 1, "it is named once: {log}");
    assert!(lines[0].contains("WARN") && lines[0].contains("AccessDeniedException"), "{lines:?}");
    assert_eq!(counted(&log, "ShardScalerFailures"), 1, "the drain: {log}");
}

#[tokio::test]
async fn a_huge_report_of_keys_that_are_no_shard_keys_grows_nothing() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let services = Services::start(&edition.dynamodb_url(), |operation, _| {
        (operation == "GetInsightRuleReport").then(|| {
            let contributors: Vec<Value> = (0..10_000)
                .map(|i| json!({"Keys": [format!("no shard key\u{1f}{i}")], "ApproximateAggregateValue": 1e9, "Datapoints": []}))
                .collect();
            (200, json!({"KeyLabels": ["PartitionKey"], "AggregationStatistic": "Sum", "Contributors": contributors}))
        })
    })
    .await;
    let mut scaler = scaler(&services).await;
    let answer = scaler.invoke(event_of_now("shard-scaler-alarm-direct")).await;
    assert_has(&answer, json!({"outcome": "handled", "keys": []}));
    let log = scaler.stop().await;
    for part in ["throttled keys that are no shard keys of this table", "10000"] {
        assert!(log.contains(part), "{log}");
    }
    assert!(log.len() < 10_000, "one line, not one for each: {} bytes", log.len());
}

#[tokio::test]
async fn an_event_that_is_no_json_is_an_error_and_the_next_is_taken() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let services = Services::start(&edition.dynamodb_url(), |_, _| None).await;
    let mut scaler = scaler(&services).await;
    let whole = event_of_now("shard-scaler-alarm-direct").to_string();
    let answer = scaler.invoke_text(whole[..whole.len() / 2].to_owned()).await;
    assert!(answer["function_error"]["errorMessage"].is_string(), "{answer}");
    // Nothing is asked for it: the start reads what the table takes.
    assert_eq!(services.asked(), ["GetItem"]);
    still_answers(&mut scaler).await;
}
