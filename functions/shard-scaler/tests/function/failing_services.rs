//! The shard-scaler's binary when its requests are rejected, throttled or answered with huge
//! bodies: a response that says so, no change, and the next event is handled.

use crate::assert_has;
use local::ServeOptions;
use serde_json::{Value, json};
use system_tests::{Function, Services, TestEdition, config, event, event_of_now};

const BINARY: &str = env!("CARGO_BIN_EXE_shard-scaler");

async fn edition() -> TestEdition {
    TestEdition::start(ServeOptions::default(), config()).await
}

async fn scaler(services: &Services) -> Function {
    Function::start(BINARY, &Function::variables(services.url())).await
}

fn denied(action: &str) -> Option<(u16, Value)> {
    let message = format!("User is not authorized to perform: {action}");
    Some((
        400,
        json!({"__type": "com.amazon.coral.service#AccessDeniedException", "message": message}),
    ))
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

#[tokio::test]
async fn a_missing_permission_is_named_and_changes_nothing() {
    let edition = edition().await;
    let services = Services::start(&edition.dynamodb_url(), |operation| match operation {
        "DescribeContributorInsights" => denied("dynamodb:DescribeContributorInsights"),
        "SetAlarmState" => denied("cloudwatch:SetAlarmState"),
        _ => None,
    })
    .await;
    let mut scaler = scaler(&services).await;
    let answer = scaler.invoke(event_of_now("shard-scaler-alarm-direct")).await;
    let detail = answer["detail"].as_str().unwrap_or_default();
    assert_has(&answer, json!({"outcome": "failed", "rearmed": false}));
    assert!(
        detail.contains("DescribeContributorInsights") && detail.contains("not authorized"),
        "{answer}"
    );
    still_answers(&mut scaler).await;
    let log = scaler.stop().await;
    assert!(
        log.lines().any(|line| line.contains("ERROR") && line.contains("could not be acted on")),
        "{log}"
    );
    assert!(
        log.lines().any(|line| line.contains("WARN") && line.contains("could not be re-armed")),
        "{log}"
    );
    // The alarm that was not acted on, and the one that was not armed again.
    assert_eq!(counted(&log, "ShardScalerFailures"), 2, "{log}");
    let asked = services.asked();
    // The start, the alarm, the table's warm throughput and its publication, and the last event.
    assert!(asked.len() < 20, "refusals for good are not repeated: {asked:?}");
}

#[tokio::test]
async fn a_passing_failure_is_a_function_error_counted_and_logged() {
    let edition = edition().await;
    let services = Services::start(&edition.dynamodb_url(), |operation| {
        (operation == "GetInsightRuleReport")
            .then(|| (400, json!({"__type": "x#ThrottlingException", "message": "Rate exceeded"})))
    })
    .await;
    let mut scaler = scaler(&services).await;
    let answer = scaler.invoke(event_of_now("shard-scaler-alarm-direct")).await;
    let error = &answer["function_error"];
    assert_eq!(error["errorType"], "Failed", "{answer}");
    let message = error["errorMessage"].as_str().unwrap_or_default();
    assert!(
        message.starts_with("alarm failed: GetInsightRuleReport") && !message.contains('\n'),
        "{answer}"
    );
    still_answers(&mut scaler).await;
    let log = scaler.stop().await;
    assert!(log.contains("event handled") && log.contains(r#"\"outcome\":\"failed\""#), "{log}");
    assert_eq!(counted(&log, "ShardScalerFailures"), 1, "{log}");
}

/// The schedule sets the alarm back within five minutes, so nobody is paged.
#[tokio::test]
async fn a_throttled_rearming_after_an_alarm_is_no_failure() {
    let edition = edition().await;
    let services = Services::start(&edition.dynamodb_url(), |operation| {
        (operation == "SetAlarmState")
            .then(|| (400, json!({"__type": "x#ThrottlingException", "message": "Rate exceeded"})))
    })
    .await;
    let mut scaler = scaler(&services).await;
    let answer = scaler.invoke(event_of_now("shard-scaler-alarm-direct")).await;
    assert_has(&answer, json!({"outcome": "handled", "rearmed": false}));
    let log = scaler.stop().await;
    assert!(
        log.lines().any(|line| line.contains("WARN") && line.contains("could not be re-armed")),
        "{log}"
    );
    assert_eq!(counted(&log, "ShardScalerFailures"), 0, "{log}");
}

#[tokio::test]
async fn contributor_insights_that_are_off_are_counted_and_in_the_log() {
    let edition = edition().await;
    let services = Services::start(&edition.dynamodb_url(), |operation| {
        (operation == "DescribeContributorInsights")
            .then(|| (200, json!({"ContributorInsightsStatus": "DISABLED"})))
    })
    .await;
    let mut scaler = scaler(&services).await;
    let answer = scaler.invoke(event_of_now("shard-scaler-alarm-direct")).await;
    assert_has(&answer, json!({"outcome": "handled", "contributor_insights": "off"}));
    let log = scaler.stop().await;
    assert!(
        log.lines()
            .any(|line| line.contains("WARN") && line.contains("update-contributor-insights")),
        "{log}"
    );
    assert_eq!(
        (counted(&log, "ContributorInsightsOff"), counted(&log, "ShardScalerFailures")),
        (1, 0),
        "{log}"
    );
}

#[tokio::test]
async fn a_table_that_may_not_be_described_is_named_once_and_scaled() {
    let edition = edition().await;
    let services = Services::start(&edition.dynamodb_url(), |operation| {
        if operation == "DescribeTable" { denied("dynamodb:DescribeTable") } else { None }
    })
    .await;
    let mut scaler = scaler(&services).await;
    for shards in [4, 6] {
        let set = json!({"action": "set", "partition_key": "hot", "number_of_shards": shards});
        assert_eq!(scaler.invoke(set).await["outcome"], "scaled");
    }
    let log = scaler.stop().await;
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("warm throughput is not known")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("WARN") && lines[0].contains("AccessDeniedException"), "{lines:?}");
    assert_eq!(counted(&log, "ShardScalerFailures"), 0, "{log}");
}

#[tokio::test]
async fn a_huge_report_of_keys_that_are_no_shard_keys_grows_nothing() {
    let edition = edition().await;
    let services = Services::start(&edition.dynamodb_url(), |operation| {
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
    assert!(
        log.contains("throttled keys that are no shard keys of this table")
            && log.contains("10000"),
        "{log}"
    );
    assert!(log.len() < 10_000, "one line, not one for each: {} bytes", log.len());
}

#[tokio::test]
async fn an_event_that_is_no_json_is_an_error_and_the_next_is_taken() {
    let edition = edition().await;
    let services = Services::start(&edition.dynamodb_url(), |_| None).await;
    let mut scaler = scaler(&services).await;
    let whole = event_of_now("shard-scaler-alarm-direct").to_string();
    let answer = scaler.invoke_text(whole[..whole.len() / 2].to_owned()).await;
    assert!(answer["function_error"]["errorMessage"].is_string(), "{answer}");
    assert_eq!(
        services.asked(),
        ["GetItem"],
        "nothing is asked for it: the start reads what the table takes"
    );
    still_answers(&mut scaler).await;
}

#[tokio::test]
async fn no_drain_begins_while_it_is_unknown_what_the_table_takes() {
    let edition = edition().await;
    let services = Services::start(&edition.dynamodb_url(), |operation| {
        if operation == "DescribeTable" { denied("dynamodb:DescribeTable") } else { None }
    })
    .await;
    let mut scaler = scaler(&services).await;
    let answer = scaler.invoke(json!({"action": "drain"})).await;
    assert_eq!(answer["outcome"], "failed", "{answer}");
    assert!(answer["detail"].as_str().unwrap_or_default().contains("DescribeTable"), "{answer}");
    still_answers(&mut scaler).await;
}
