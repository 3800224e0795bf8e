//! The shard-scaler's reaction to alarms, with AWS responses that a test defines: in virtual time,
//! over the embedded engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::aws::{Aws, Reply, replies};
use crate::assert_has;
use aws_sdk_dynamodb::types::AttributeValue;
use embedded_dynamodb::{Engine, PartitionLimits};
use local::clients_over;
use serde_json::{Value, json};
use shard_scaler::{Failed, Scaler, ScalerConfig};
use sharding::internal::{Clock, Deadline, TableEngine};
use sharding::{ScalingActors, ShardedTable, TableConfig};
use system_tests::metadata::{self, number};
use system_tests::{Tables, TestClock, config, count, event, partition_key, soon};
use tokio::time::{Instant, sleep};

pub(super) const ALARM: &str = "dynamodb-write-sharding-hot-partition";
const REPLICA: &str = "read-replica-1";
const INDEX: &str = "by-customer";

pub(super) struct Fixture {
    pub(super) engine: Engine,
    pub(super) table: TableEngine,
    pub(super) scaler: Scaler,
    pub(super) aws: Aws,
    pub(super) clock: TestClock,
}

/// A table with so few partitions that shards share them.
pub(super) async fn fixture(
    change: impl FnOnce(&mut TableConfig, &mut ScalerConfig),
    replies: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
) -> Fixture {
    let (mut of_table, mut of_scaler) = (config(), ScalerConfig::default());
    change(&mut of_table, &mut of_scaler);
    let tables = Tables::unclaimed(of_table).await;
    let limits = PartitionLimits { partitions: 1_000, ..PartitionLimits::default() };
    tables.engine.set_limits([("items".to_owned(), limits)]);
    tables.engine.set_alarm_state(ALARM, "ALARM");
    let aws = Aws::new(&tables.engine, replies);
    let table = tables.instance_over(aws.shared(), 7);
    let clients = clients_over(aws.shared());
    let scaler = Scaler::new(ShardedTable::over(table.clone()), clients, of_scaler);
    Fixture { engine: tables.engine, table, scaler, aws, clock: tables.clock }
}

impl Fixture {
    pub(super) fn now(&self) -> u64 {
        self.clock.now().epoch_seconds()
    }

    pub(super) async fn send(&self, event: &Value) -> Result<Value, Failed> {
        self.scaler.handle(event, self.now(), Deadline::now() + Duration::from_secs(59)).await
    }

    async fn width(&self, key: &str) -> u32 {
        let shards =
            self.table.until(soon()).metadata(&partition_key(key)).await.expect("an answer");
        shards.map_or(1, |shards| shards.number_of_shards.get())
    }

    pub(super) async fn grow(&self, key: &str, to: u32) {
        let (key, to) = (partition_key(key), count(to));
        self.table.until(soon()).grow(&key, to).await.expect("grown");
    }

    fn alarm_is_ok(&self) -> bool {
        self.engine.alarm_state(ALARM) == "OK"
    }
}

/// The sample, without the time at which the alarm changed its state.
pub(super) fn alarm(sample: &str) -> Value {
    let mut event = event(sample);
    event["alarmData"]["alarmName"] = ALARM.into();
    event["alarmData"]["state"]["timestamp"] = Value::Null;
    event
}

/// Contributor Insights: these throttles of each stored key, in the period that began then.
pub(super) fn report(keys: &[&str], began: u64, throttles: f64) -> Reply {
    let points = json!([{"Timestamp": began, "ApproximateValue": throttles}]);
    let contributor = |key: &&str| json!({"Keys": [key], "Datapoints": points});
    let contributors: Vec<Value> = keys.iter().map(contributor).collect();
    Reply::With(200, json!({"KeyLabels": ["PartitionKey"], "Contributors": contributors}))
}

fn denied(action: &str) -> Reply {
    let message = format!("not allowed: {action}");
    Reply::With(400, json!({"__type": "x#AccessDeniedException", "message": message}))
}

fn throttled() -> Reply {
    Reply::With(400, json!({"__type": "x#ThrottlingException", "message": "Rate exceeded"}))
}

#[tokio::test(start_paused = true)]
async fn throttles_from_before_a_key_was_relieved_do_not_grow_it() {
    let began = Arc::new(AtomicU64::default());
    let reported = Arc::clone(&began);
    let replies = move |operation: &str, _: &Value| match operation {
        "GetInsightRuleReport" => {
            report(&["hot", "hot\u{1f}s2"], reported.load(Ordering::Relaxed), 25_000.0)
        }
        _ => Reply::Engine,
    };
    let fixture = fixture(|_, _| {}, replies).await;
    fixture.grow("hot", 18).await;
    let changed_at = fixture.now();
    let minute = changed_at / 60 * 60;
    // The cooldown is over.
    fixture.clock.jump(Duration::from_secs(10));
    for (period, why) in
        [(minute, "minute of the key's last change"), (minute - 60, "before the key's last change")]
    {
        began.store(period, Ordering::Relaxed);
        let answer = fixture.send(&alarm("shard-scaler-alarm-direct")).await.expect("handled");
        let key = &answer["keys"][0];
        assert_has(key, json!({"outcome": "unchanged", "throttled": 0}));
        assert!(key["reason"].as_str().unwrap_or_default().contains(why), "{answer}");
        assert_eq!(fixture.width("hot").await, 18, "{answer}");
    }
    // The key is still throttled in the next minute, so it needs more.
    fixture.clock.jump(Duration::from_secs(60));
    began.store(minute + 60, Ordering::Relaxed);
    let answer = fixture.send(&alarm("shard-scaler-alarm-direct")).await.expect("handled");
    assert_has(&answer["keys"][0], json!({"outcome": "scaled", "throttled": 50_000}));
    assert!(fixture.width("hot").await > 18, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_change_is_finished_though_its_throttles_are_old() {
    let old = replies("GetInsightRuleReport", report(&["hot"], 1_699_999_920, 500.0));
    let fixture = fixture(|_, _| {}, old).await;
    // Otherwise the metadata would look like an earlier version's.
    fixture.table.until(soon()).claim().await.expect("claimed");
    let client = clients_over(fixture.aws.shared()).dynamodb;
    let history = vec!["1699999000:1".into(), "1699999999:2".into()];
    let attributes = [
        ("number_of_shards", number(2)),
        ("read_shards", number(4)),
        ("closing", number(4)),
        ("era", number(2)),
        ("last_updated", number(1_699_999_999)),
        ("shard_history", AttributeValue::Ss(history)),
        ("generation", number(3)),
    ];
    metadata::store(&client, "hot", attributes).await;
    let answer = fixture.send(&alarm("shard-scaler-alarm-direct")).await.expect("handled");
    assert_eq!(answer["keys"][0]["outcome"], "scaled", "{answer}");
    assert_eq!(fixture.width("hot").await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_key_throttled_on_shard_one_only_costs_two_reads() {
    let hot = replies("GetInsightRuleReport", report(&["hot"], 1_700_000_100, 25_000.0));
    let fixture = fixture(|_, scaler| scaler.dry_run = true, hot).await;
    fixture.grow("hot", 18).await;
    sleep(Duration::from_millis(1)).await;
    fixture.clock.jump(Duration::from_secs(120));
    let metadata_reads = || {
        let reads = fixture.aws.asked("GetItem");
        // The settings of the table are compared once a minute.
        let is_compared = |body: &Value| body.to_string().contains("_sharding:table");
        let reads = reads.iter().filter(|body| body["TableName"] == "items-metadata");
        reads.filter(|body| !is_compared(body)).count()
    };
    let before = metadata_reads();
    let answer = fixture.send(&alarm("shard-scaler-alarm-direct")).await.expect("handled");
    assert_has(&answer["keys"][0], json!({"outcome": "dry-run", "from": 18}));
    assert_eq!(metadata_reads() - before, 2, "its page and its item: {answer}");
}

#[tokio::test(start_paused = true)]
async fn whatever_comes_of_a_firing_alarm_it_is_armed_again() {
    type Change = fn(&mut TableConfig, &mut ScalerConfig);
    let nothing: Change = |_, _| {};
    let writer: Change = |table, _| table.scaling = ScalingActors::Writer;
    let dry_run: Change = |_, scaler| scaler.dry_run = true;
    let stale = {
        let mut event = alarm("shard-scaler-alarm-direct");
        event["alarmData"]["state"]["timestamp"] = "2023-11-14T00:00:00.000+0000".into();
        event
    };
    let fresh = alarm("shard-scaler-alarm-direct");
    let (insights, reports) = ("DescribeContributorInsights", "GetInsightRuleReport");
    let rows = [
        (&fresh, nothing, "", Reply::Engine, "handled"),
        (&stale, nothing, "", Reply::Engine, "ignored"),
        (&fresh, writer, "", Reply::Engine, "ignored"),
        (&fresh, dry_run, "", Reply::Engine, "handled"),
        (&fresh, nothing, insights, denied(insights), "failed"),
        (&fresh, nothing, reports, Reply::Never, "failed"),
    ];
    for (event, change, operation, reply, outcome) in rows {
        let fixture = fixture(change, replies(operation, reply)).await;
        let answer = fixture.send(event).await.unwrap_or_else(Failed::into_response);
        assert_has(&answer, json!({"outcome": outcome, "rearmed": true}));
        assert!(fixture.alarm_is_ok(), "{answer}");
    }
    for sample in ["shard-scaler-alarm-other-table", "shard-scaler-alarm-ok-state"] {
        let fixture = fixture(nothing, |_, _| Reply::Engine).await;
        let answer = fixture.send(&alarm(sample)).await.expect("handled");
        assert_eq!(answer["outcome"], "ignored", "{answer}");
        assert!(!fixture.alarm_is_ok(), "{sample}: not this shard-scaler's to set back");
    }
}

/// CloudWatch accepts three SetAlarmState a second in an account, and a rejected one pages somebody.
#[tokio::test(start_paused = true)]
async fn only_alarms_in_alarm_are_set_back_at_most_three_in_a_second() {
    let sent: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let log = sent.clone();
    let replies = move |operation: &str, body: &Value| {
        if operation != "SetAlarmState" {
            return Reply::Engine;
        }
        log.lock().expect("no panic").push(Instant::now());
        let is_denied = body["AlarmName"] == "denied";
        if is_denied { denied("cloudwatch:SetAlarmState") } else { Reply::Engine }
    };
    let fixture = fixture(|_, _| {}, replies).await;
    let rows = [
        ("a", "ALARM", "rearmed"),
        ("absent", "", "not-found"),
        ("b", "ALARM", "rearmed"),
        ("c", "ALARM", "rearmed"),
        ("d", "OK", "unchanged"),
        ("denied", "ALARM", "failed"),
        ("e", "INSUFFICIENT_DATA", "unchanged"),
    ];
    for (name, state, _) in rows.iter().filter(|(_, state, _)| !state.is_empty()) {
        fixture.engine.set_alarm_state(name, state);
    }
    let rearm = json!({"action": "rearm", "alarms": rows.map(|(name, ..)| name)});
    let answer = fixture.send(&rearm).await.expect("handled");
    for (index, (name, state, outcome)) in rows.into_iter().enumerate() {
        let alarm = &answer["alarms"][index];
        assert_has(alarm, json!({"alarm": name, "outcome": outcome}));
        if outcome == "unchanged" {
            assert_eq!(alarm["reason"], format!("its state is {state}"), "{answer}");
        }
        let is_in_alarm = fixture.engine.alarm_state(name) == "ALARM";
        assert_eq!(is_in_alarm, outcome == "failed", "{answer}");
    }
    let sent = sent.lock().expect("no panic").clone();
    assert_eq!(sent.len(), 4, "{sent:?}");
    assert!(sent[3] - sent[0] > Duration::from_secs(1), "{sent:?}");
    // Only the one that was denied is left to set back.
    fixture.send(&rearm).await.expect("handled");
    assert_eq!(fixture.aws.asked("SetAlarmState").len(), 5);
}

#[tokio::test(start_paused = true)]
async fn only_failures_that_a_repetition_can_mend_are_errors() {
    let set = json!({"action": "set", "partition_key": "hot", "number_of_shards": 4});
    let wrong = json!({"action": "set", "partition_key": "hot", "number_of_shards": 0});
    let hot = alarm("shard-scaler-alarm-direct");
    let reports = "GetInsightRuleReport";
    let broken = Reply::With(500, json!({"__type": "x#InternalServiceFault"}));
    let rows = [
        (&hot, reports, throttled(), Err("alarm failed: GetInsightRuleReport")),
        (&hot, reports, broken, Err("alarm failed: GetInsightRuleReport")),
        (&hot, reports, denied(reports), Ok("failed: GetInsightRuleReport")),
        (&set, "UpdateItem", throttled(), Err("set failed: throttled")),
        (&set, "", Reply::Engine, Ok("scaled")),
        (&wrong, "", Reply::Engine, Ok("refused: it is 0")),
    ];
    for (event, operation, reply, expected) in rows {
        let fixture = fixture(|_, _| {}, replies(operation, reply)).await;
        let handled = fixture.send(event).await;
        assert_eq!(handled.is_ok(), expected.is_ok(), "{event}: {handled:?}");
        let summary = handled.as_ref().map_or_else(ToString::to_string, |answer| {
            let text = |name: &str| answer[name].as_str().unwrap_or_default();
            format!("{}: {}", text("outcome"), text("detail"))
        });
        let start = expected.unwrap_or_else(|start| start);
        assert!(summary.starts_with(start) && !summary.contains('\n'), "{handled:?}");
        if let Err(failed) = handled {
            assert_eq!(failed.into_response()["outcome"], "failed");
        }
        if event == &hot {
            assert!(fixture.alarm_is_ok(), "armed again before the error is returned");
        }
    }
    let updating = json!({"outcome": "unchanged", "reason": "the table is being updated"});
    let refused = "UpdateTable: AccessDeniedException: not allowed: UpdateTable";
    for (status, expected) in [
        ("UPDATING", json!({"outcome": "handled", "capacity": updating})),
        ("ACTIVE", json!({"outcome": "failed", "detail": refused})),
    ] {
        let units = json!({"ReadCapacityUnits": 9, "WriteCapacityUnits": 9});
        let table = json!({"Table": {"TableStatus": status, "ProvisionedThroughput": units}});
        let replies = move |operation: &str, _: &Value| match operation {
            "DescribeTable" => Reply::With(200, table.clone()),
            "UpdateTable" => denied(operation),
            _ => Reply::Engine,
        };
        let fixture = fixture(|_, scaler| scaler.max_write_units = 99, replies).await;
        let answer = fixture.send(&alarm("shard-scaler-alarm-provisioned")).await;
        assert_has(&answer.expect("a repetition would not help"), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn contributor_insights_without_keys_are_named_with_the_remedy() {
    let insights = |status: &str, rules: Value| json!({"ContributorInsightsStatus": status, "ContributorInsightsRuleList": rules});
    let accessed_only = json!(["DynamoDBContributorInsights-PKC-items-1700000000000"]);
    let throttled = json!(["DynamoDBContributorInsights-PKT-items-1700000000000"]);
    // An account has a quota of rules, so another switching on alone does not help.
    let (name, text) = ("LimitExceededException", "too many rules");
    let mut failed = insights("FAILED", json!([]));
    failed["FailureException"] = json!({"ExceptionName": name, "ExceptionDescription": text});
    let rows = [
        (insights("DISABLED", throttled.clone()), "off", "Contributor Insights is off"),
        (insights("DISABLING", json!([])), "off", "Contributor Insights is off"),
        (insights("ENABLED", accessed_only), "off", "does not report throttled keys"),
        (failed, "failed", "FAILED (LimitExceededException: too many rules)"),
        (insights("ENABLING", throttled), "enabling", ""),
    ];
    for (described, state, why) in rows {
        let described = replies("DescribeContributorInsights", Reply::With(200, described));
        let fixture = fixture(|_, _| {}, described).await;
        let answer = fixture.send(&alarm("shard-scaler-alarm-direct")).await.expect("handled");
        assert_has(&answer, json!({"outcome": "handled", "contributor_insights": state}));
        assert!(fixture.aws.asked("GetInsightRuleReport").is_empty(), "there is no report to read");
        assert!(fixture.alarm_is_ok(), "{answer}");
        let advice = answer["advice"][0].as_str().unwrap_or_default();
        let command = "aws dynamodb update-contributor-insights --table-name items --contributor-insights-action ENABLE --contributor-insights-mode THROTTLED_KEYS";
        let has_command = advice.contains(command);
        assert!(advice.contains(why) && has_command == (state != "enabling"), "{answer}");
    }
}

/// The table with a replica and with an index of other keys.
fn with_indexes(table: &mut TableConfig, _: &mut ScalerConfig) {
    table.read_replicas = vec![REPLICA.to_owned()];
}

/// The metric of an alarm of an index.
fn metric(event: &mut Value) -> &mut Value {
    &mut event["alarmData"]["configuration"]["metrics"][0]["metricStat"]["metric"]
}

#[tokio::test(start_paused = true)]
async fn an_alarm_of_a_read_replica_grows_the_keys_throttled_there() {
    let hot = replies("GetInsightRuleReport", report(&["hot"], 1_700_000_040, 25_000.0));
    let fixture = fixture(with_indexes, hot).await;
    let mut event = alarm("shard-scaler-alarm-index");
    metric(&mut event)["dimensions"]["GlobalSecondaryIndexName"] = REPLICA.into();
    let answer = fixture.send(&event).await.expect("handled");
    let expected = json!([{"index": REPLICA, "causes": ["hot-writes"], "advice": "more shards relieve the keys"}]);
    assert_has(&answer, json!({"causes": [], "indexes": expected}));
    assert_has(&answer["keys"][0], json!({"partition_key": "hot", "outcome": "scaled"}));
    assert!(fixture.width("hot").await > 1);
    let asked = fixture.aws.asked("DescribeContributorInsights");
    let of_replica = json!({"TableName": "items", "IndexName": REPLICA});
    assert_eq!(asked, [of_replica], "the table's own keys are not in question");
    let rule = fixture.aws.asked("GetInsightRuleReport")[0]["RuleName"].to_string();
    assert!(rule.contains(REPLICA), "{rule}");
}

#[tokio::test(start_paused = true)]
async fn an_alarm_of_another_index_grows_nothing_and_says_its_need() {
    let advice = "give the index a partition key with more distinct values; more shards of the table's key need not help";
    let expected = json!([{"index": INDEX, "causes": ["hot-writes"], "advice": advice}]);
    // The second one names no limit.
    for name in ["WriteKeyRangeThroughputThrottleEvents", "WriteThrottleEvents"] {
        let fixture = fixture(with_indexes, |_, _| Reply::Engine).await;
        let mut event = alarm("shard-scaler-alarm-index");
        metric(&mut event)["name"] = name.into();
        let answer = fixture.send(&event).await.expect("handled");
        assert_has(&answer, json!({"causes": [], "keys": [], "indexes": expected}));
        assert!(fixture.aws.asked("DescribeContributorInsights").is_empty(), "{answer}");
        assert!(fixture.alarm_is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_with_unknown_keys_does_not_block_the_tables_keys() {
    let fixture = fixture(with_indexes, |operation, body| match operation {
        "DescribeContributorInsights" if body["IndexName"] == REPLICA => denied(operation),
        "GetInsightRuleReport" => report(&["hot"], 1_700_000_040, 25_000.0),
        _ => Reply::Engine,
    })
    .await;
    let mut event = alarm("shard-scaler-alarm-index");
    let mut metrics = event["alarmData"]["configuration"]["metrics"][0].clone();
    metrics["metricStat"]["metric"]["dimensions"] = json!({"TableName": "items"});
    metric(&mut event)["dimensions"]["GlobalSecondaryIndexName"] = REPLICA.into();
    event["alarmData"]["configuration"]["metrics"].as_array_mut().expect("metrics").push(metrics);
    let answer = fixture.send(&event).await.expect("a missing permission is no error");
    assert_eq!(answer["keys"][0]["outcome"], "scaled", "{answer}");
    let index = &answer["indexes"][0];
    assert_has(index, json!({"index": REPLICA, "outcome": "failed"}));
    let detail = index["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("DescribeContributorInsights"), "{answer}");
}
