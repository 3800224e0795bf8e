//! Warm throughput: read, published, and raised within a budget. In virtual time, over the embedded
//! engine.

use std::time::Duration;

use super::alarms::{ALARM, Fixture, alarm, fixture, report};
use super::aws::{Reply, replies};
use crate::assert_has;
use embedded_dynamodb::{PartitionLimits, WhileWarming};
use local::clients_over;
use serde_json::{Value, json};
use shard_scaler::{Failed, Scaler, ScalerConfig};
use sharding::{ShardedTable, WarmThroughput};
use system_tests::{ask, event, partition_key, soon};
use tokio::task::JoinSet;
use tokio::time::{Instant as Deadline, sleep};

const INSTANCES: usize = 20;
/// How long the engine takes to warm a table.
const WARMING: Duration = Duration::from_secs(60);

fn budget(max_warm_write_units: u64, max_warm_read_units: u64) -> ScalerConfig {
    ScalerConfig { max_warm_write_units, max_warm_read_units, ..ScalerConfig::default() }
}

/// A new on-demand table: four partitions.
async fn new_table(
    config: ScalerConfig,
    replies: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
) -> Fixture {
    let fixture = fixture(|_, scaler| *scaler = config, replies).await;
    fixture.engine.set_limits([("items".to_owned(), PartitionLimits::default())]);
    fixture
}

fn warm(write_units: u64) -> Value {
    json!({"action": "warm", "write_units": write_units})
}

/// Shards for a key, and units to be ready for.
fn set(shards: i64, write_units: i64) -> Value {
    let mut set = json!({"action": "set", "partition_key": "hot", "number_of_shards": shards});
    set["write_units"] = write_units.into();
    set
}

fn rearm() -> Value {
    json!({"action": "rearm", "alarms": [ALARM]})
}

impl Fixture {
    /// The value that every instance gets with the page of a key.
    async fn published(&self) -> Option<WarmThroughput> {
        // A page that was read before is older than its lease by now.
        sleep(Duration::from_secs(2)).await;
        self.table.until(soon()).warm_throughput(&partition_key("any")).await.expect("an answer")
    }

    /// The warm throughput that the table has, as DynamoDB describes it.
    fn described(&self) -> Value {
        let items = json!({"TableName": "items"});
        let described = ask(&self.engine, "DynamoDB_20120810", "DescribeTable", &items);
        described["Table"]["WarmThroughput"].clone()
    }

    async fn published_write_units(&self) -> Option<u64> {
        self.published().await.map(|warm| warm.write_units)
    }

    /// How often warm throughput was written to a page.
    fn publications(&self) -> usize {
        let of_warmth =
            |body: &Value| body["ExpressionAttributeNames"].to_string().contains("warm_throughput");
        self.aws.asked("UpdateItem").iter().filter(|body| of_warmth(body)).count()
    }

    /// Another process.
    fn other_instance(&self, config: ScalerConfig) -> Scaler {
        let table = ShardedTable::over(self.table.clone());
        Scaler::new(table, clients_over(self.aws.shared()), config)
    }
}

/// The responses to one event from all of them at once.
async fn at_once(scalers: impl IntoIterator<Item = Scaler>, event: &Value) -> Vec<Value> {
    let mut handling = JoinSet::new();
    for scaler in scalers {
        let event = event.clone();
        let deadline = Deadline::now() + Duration::from_secs(59);
        handling.spawn(async move {
            scaler.handle(&event, 1_700_000_000, deadline).await.expect("handled")
        });
    }
    handling.join_all().await
}

fn described(table: Value) -> Reply {
    Reply::With(200, json!({ "Table": table }))
}

fn units(write_units: u64, read_units: u64) -> Value {
    json!({"WriteUnitsPerSecond": write_units, "ReadUnitsPerSecond": read_units, "Status": "ACTIVE"})
}

#[tokio::test(start_paused = true)]
async fn the_lowest_capacity_is_published_once() {
    let table = json!({
        "TableStatus": "ACTIVE",
        "WarmThroughput": units(24_000, 12_000),
        "GlobalSecondaryIndexes": [
            {"IndexName": "by-day", "WarmThroughput": units(4_000, 36_000)},
            {"IndexName": "new"},
        ],
    });
    let described = replies("DescribeTable", described(table));
    let fixture = new_table(ScalerConfig::default(), described).await;
    assert_eq!(fixture.published().await, None);
    fixture.send(&rearm()).await.expect("handled");
    let lowest = WarmThroughput { write_units: 4_000, read_units: 12_000 };
    assert_eq!(fixture.published().await, Some(lowest));
    assert_eq!(fixture.publications(), 4, "one for each page");
    fixture.grow("hot", 2).await;
    for event in [rearm(), json!({"action": "drain"}), alarm("shard-scaler-alarm-direct")] {
        fixture.send(&event).await.expect("handled");
    }
    assert_eq!(fixture.publications(), 4, "nothing is written that stands");
}

#[tokio::test(start_paused = true)]
async fn what_is_being_raised_is_not_published() {
    let of = |status: &str| {
        let mut units = units(24_000, 72_000);
        units["Status"] = status.into();
        units
    };
    // The status of the table, of its warm throughput, and of that of an index.
    for (status, own, index, published) in [
        ("ACTIVE", "UPDATING", "ACTIVE", None),
        ("ACTIVE", "ACTIVE", "UPDATING", None),
        ("UPDATING", "ACTIVE", "ACTIVE", Some(24_000)),
    ] {
        let table = json!({
            "TableStatus": status,
            "WarmThroughput": of(own),
            "GlobalSecondaryIndexes": [{"IndexName": "by-day", "WarmThroughput": of(index)}],
        });
        let described = replies("DescribeTable", described(table));
        let fixture = new_table(budget(40_000, 0), described).await;
        let answer = fixture.send(&warm(40_000)).await.expect("handled");
        let reason = "another update of the table is under way";
        assert_has(&answer, json!({"outcome": "unchanged", "reason": reason}));
        assert_eq!(fixture.published_write_units().await, published);
        assert_eq!(fixture.publications() > 0, published.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn without_warm_throughput_everything_else_goes_on() {
    let own = |warm: Value| json!({"Table": {"TableStatus": "ACTIVE", "WarmThroughput": warm}});
    let half = json!({"WriteUnitsPerSecond": 4_000});
    let negative = json!({"WriteUnitsPerSecond": -1, "ReadUnitsPerSecond": 5});
    let not_shown =
        "shows no WarmThroughput of the on-demand table: this server does not have the field";
    let denied = json!({"__type": "x#AccessDeniedException", "message": "no"});
    for (status, body, reason, outcome) in [
        (200, own(Value::Null), not_shown, "unchanged"),
        (200, own(half), not_shown, "unchanged"),
        (200, own(negative), not_shown, "unchanged"),
        (400, denied, "AccessDeniedException", "failed"),
    ] {
        let described = replies("DescribeTable", Reply::With(status, body));
        let fixture = new_table(budget(40_000, 0), described).await;
        let answer = fixture.send(&set(4, 20_000)).await.expect("handled");
        assert_has(&answer, json!({"outcome": "scaled", "warm": {"outcome": outcome}}));
        assert!(answer["warm"].to_string().contains(reason), "{answer}");
        assert_eq!(fixture.published().await, None);
        // Never without knowing what it can serve already.
        assert!(fixture.aws.asked("UpdateTable").is_empty());
    }
    let fixture = new_table(ScalerConfig::default(), replies("DescribeTable", Reply::Never)).await;
    let set = json!({"action": "set", "partition_key": "hot", "number_of_shards": 4});
    assert_eq!(fixture.send(&set).await.expect("handled")["outcome"], "scaled");
}

#[tokio::test(start_paused = true)]
async fn twenty_callers_in_one_process_make_one_update() {
    let fixture = new_table(budget(40_000, 0), |_, _| Reply::Engine).await;
    let answers = at_once((0..INSTANCES).map(|_| fixture.scaler.clone()), &warm(24_000)).await;
    let count = |outcome: &str| answers.iter().filter(|one| one["outcome"] == outcome).count();
    assert_eq!((count("warming"), count("unchanged")), (1, INSTANCES - 1), "{answers:?}");
    assert_eq!(fixture.aws.asked("UpdateTable").len(), 1);
    sleep(WARMING).await;
    assert_eq!(fixture.described()["WriteUnitsPerSecond"], 24_000);
}

/// All of them read the table before the first of them requested a raise.
#[tokio::test(start_paused = true)]
async fn twenty_processes_that_look_at_the_same_time_make_one_raise() {
    let config = budget(40_000, 0);
    for while_warming in [WhileWarming::Refuses, WhileWarming::Joins] {
        let late = replies("DescribeTable", Reply::Late(Duration::from_secs(1)));
        let fixture = new_table(config, late).await;
        let limits = PartitionLimits { while_warming, ..PartitionLimits::default() };
        fixture.engine.set_limits([("items".to_owned(), limits)]);
        let scalers = (0..INSTANCES).map(|_| fixture.other_instance(config));
        let answers = at_once(scalers, &event("shard-scaler-warm-by-writer")).await;
        assert_eq!(fixture.aws.asked("UpdateTable").len(), INSTANCES, "{answers:?}");
        let (warming, unchanged): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer["outcome"] == "warming");
        let accepted = if while_warming == WhileWarming::Refuses { 1 } else { INSTANCES };
        assert_eq!(warming.len(), accepted, "{while_warming:?}: {answers:?}");
        let refused =
            "UpdateTable: ResourceInUseException: another update of the table is under way";
        for answer in unchanged {
            assert_has(answer, json!({"outcome": "unchanged", "reason": refused}));
        }
        for answer in warming {
            assert_has(answer, json!({"added": {"write_units": 20_000, "read_units": 0}}));
        }
        sleep(WARMING).await;
        let raised = json!({"Status": "ACTIVE", "WriteUnitsPerSecond": 24_000});
        assert_has(&fixture.described(), raised);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_of_a_writer_asks_for_write_units_alone() {
    let fixture = new_table(budget(24_000, 0), |_, _| Reply::Engine).await;
    let answer = fixture.send(&event("shard-scaler-warm-by-writer")).await.expect("handled");
    assert_has(&answer, json!({"outcome": "warming", "limited_by": null}));
    let update = json!({"TableName": "items", "WarmThroughput": {"WriteUnitsPerSecond": 24_000}});
    assert_eq!(fixture.aws.asked("UpdateTable"), [update]);
    // For another key, which needs less.
    for (after, reason) in
        [(1, "as much was asked for already"), (60, "the table can serve as much already")]
    {
        sleep(Duration::from_secs(after)).await;
        let answer = fixture.send(&warm(3_000)).await.expect("handled");
        assert_has(&answer, json!({"outcome": "unchanged", "reason": reason}));
    }
    assert_eq!(fixture.aws.asked("UpdateTable").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_budget_below_the_need_is_used_up_and_named() {
    let fixture = new_table(budget(10_000, 0), |_, _| Reply::Engine).await;
    let limit = json!("MAX_WARM_WRITE_UNITS is 10000, 24000 are needed");
    let answer = fixture.send(&warm(24_000)).await.expect("handled");
    assert_has(&answer, json!({"outcome": "warming", "limited_by": limit}));
    assert_eq!(answer["table"]["to"]["write_units"], 10_000, "{answer}");
    sleep(WARMING + Duration::from_secs(1)).await;
    let used_up = "the table can serve as much already as the budget allows";
    let enough = "the table can serve as much already";
    let (own, lower) = (fixture.scaler.clone(), fixture.other_instance(budget(5_000, 0)));
    for (scaler, units, reason, limited_by) in [
        (&own, 24_000, used_up, limit),
        (&own, 9_000, enough, Value::Null),
        // The table can serve more than this budget.
        (&lower, 9_000, enough, Value::Null),
    ] {
        let answers = at_once([scaler.clone()], &warm(units)).await;
        assert_has(&answers[0], json!({"reason": reason, "limited_by": limited_by}));
    }
    assert_eq!(fixture.aws.asked("UpdateTable").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_alarm_warms_a_table_short_of_partitions_within_the_budget() {
    for (config, outcome, to) in
        [(budget(0, 0), "unchanged", None), (budget(6_000, 0), "warming", Some(6_000))]
    {
        // In the minute after the one in which the key grew.
        let hot = replies("GetInsightRuleReport", report(&["hot"], 1_700_000_100, 1_000_000.0));
        let fixture = new_table(config, hot).await;
        fixture.grow("hot", 24).await;
        fixture.clock.jump(Duration::from_secs(120));
        let answer = fixture.send(&alarm("shard-scaler-alarm-direct")).await.expect("handled");
        assert_eq!(answer["keys"][0]["outcome"], "unchanged", "{answer}");
        let warm = &answer["warm"];
        assert_has(warm, json!({"outcome": outcome, "table": {"to": {"write_units": to}}}));
        assert_eq!(warm["needed"]["write_units"], 8_000, "twice the partitions: {answer}");
        let limit =
            format!("MAX_WARM_WRITE_UNITS is {}, 8000 are needed", config.max_warm_write_units);
        assert_eq!(warm["limited_by"], json!(limit), "{answer}");
        let update =
            json!({"TableName": "items", "WarmThroughput": {"WriteUnitsPerSecond": 6_000}});
        let updates = fixture.aws.asked("UpdateTable");
        assert_eq!(updates, Vec::from_iter(to.map(|_| update)), "{answer}");
        if to.is_some() {
            let once = warm["note"].as_str().unwrap_or_default();
            assert!(once.contains("charged once") && once.contains("cannot be undone"), "{answer}");
            assert_has(warm, json!({"added": {"write_units": 2_000, "read_units": 0}}));
            // Writers get it as soon as an instance has read it again.
            assert_eq!(fixture.published_write_units().await, Some(4_000), "not at once");
            sleep(WARMING + Duration::from_secs(1)).await;
            fixture.send(&rearm()).await.expect("handled");
            assert_eq!(fixture.published_write_units().await, Some(6_000));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_warms_table_and_indexes_in_advance_by_one_update() {
    let fixture = new_table(budget(40_000, 40_000), |operation, _| match operation {
        "DescribeTable" => described(json!({
            "TableStatus": "ACTIVE",
            "WarmThroughput": units(4_000, 12_000),
            "GlobalSecondaryIndexes": [
                {"IndexName": "by-day", "WarmThroughput": units(4_000, 36_000)},
                {"IndexName": "ready", "WarmThroughput": units(50_000, 36_000)},
            ],
        })),
        "UpdateTable" => Reply::With(200, json!({"TableDescription": {"TableStatus": "UPDATING"}})),
        _ => Reply::Engine,
    })
    .await;
    let mut event = set(4, 20_000);
    event["read_units"] = json!(30_000);
    let answer = fixture.send(&event).await.expect("handled");
    assert_has(&answer, json!({"outcome": "scaled", "to": 4}));
    let added = json!({"write_units": 32_000, "read_units": 18_000});
    let warm = json!({"outcome": "warming", "status": "UPDATING", "added": added});
    assert_has(&answer["warm"], warm);
    let index = json!({"IndexName": "by-day", "WarmThroughput": {"WriteUnitsPerSecond": 20_000}});
    let update = json!({
        "TableName": "items",
        "WarmThroughput": {"WriteUnitsPerSecond": 20_000, "ReadUnitsPerSecond": 30_000},
        "GlobalSecondaryIndexUpdates": [{"Update": index}],
    });
    assert_eq!(fixture.aws.asked("UpdateTable"), [update]);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_costs_nothing() {
    let fixture = new_table(budget(40_000, 0), |_, _| Reply::Engine).await;
    for (event, field) in [
        (set(300, 20_000), "number_of_shards"),
        (set(0, 20_000), "number_of_shards"),
        (set(4, -1), "write_units"),
        (json!({"action": "warm"}), "write_units"),
        (json!({"action": "warm", "read_units": 2_000_000_000}), "read_units"),
    ] {
        let answer = fixture.send(&event).await.expect("refused");
        assert_has(&answer, json!({"outcome": "refused", "field": field}));
    }
    assert!(fixture.aws.asked("UpdateTable").is_empty(), "{:?}", fixture.aws);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_what_it_would_raise() {
    let config = ScalerConfig { dry_run: true, ..budget(40_000, 0) };
    let fixture = new_table(config, |_, _| Reply::Engine).await;
    let answer = fixture.send(&warm(20_000)).await.expect("handled");
    assert_has(&answer, json!({"outcome": "dry-run", "table": {"to": {"write_units": 20_000}}}));
    assert!(fixture.aws.asked("UpdateTable").is_empty());
    assert_eq!(fixture.published().await, None, "nothing is written either");
}

/// A server that does not show what the table can serve: only the directory has it.
#[tokio::test(start_paused = true)]
async fn a_dry_run_announces_the_decision_that_is_carried_out() {
    for (write_units, outcomes) in
        [(4_000, ["unchanged", "unchanged"]), (1_000_000, ["dry-run", "scaled"])]
    {
        let fixture = new_table(ScalerConfig::default(), |operation, _| match operation {
            "DescribeTable" => Reply::With(200, json!({"Table": {"TableStatus": "ACTIVE"}})),
            "GetInsightRuleReport" => report(&["hot"], 1_700_000_100, 25_000.0),
            _ => Reply::Engine,
        })
        .await;
        fixture.grow("hot", 18).await;
        let warm = WarmThroughput { write_units, read_units: 12_000 };
        let deadline = Deadline::now() + Duration::from_secs(59);
        fixture.table.until(deadline).publish_warm_throughput(warm).await.expect("published");
        // The known page is from the same instant.
        sleep(Duration::from_millis(1)).await;
        fixture.clock.jump(Duration::from_secs(120));
        let event = alarm("shard-scaler-alarm-direct");
        let updates = || fixture.aws.asked("UpdateItem").len();
        let before = updates();
        let dry = ScalerConfig { dry_run: true, ..ScalerConfig::default() };
        let dry = fixture.other_instance(dry).handle(&event, fixture.now(), deadline).await;
        let announced = dry.expect("handled");
        assert_eq!(updates(), before, "nothing is written: {announced}");
        let carried_out = fixture.send(&event).await.expect("handled");
        let keys = [&announced["keys"][0], &carried_out["keys"][0]];
        assert_eq!(keys.map(|key| key["outcome"].as_str().unwrap_or_default()), outcomes);
        for field in ["from", "to", "reason", "throttled"] {
            assert_eq!(keys[0][field], keys[1][field], "{field}: {announced} {carried_out}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_failure_of_an_update_is_named_and_nothing_is_lost() {
    let rows = [
        ("ResourceInUseException", Ok("unchanged")),
        ("AccessDeniedException", Ok("failed")),
        ("ValidationException", Ok("failed")),
        ("LimitExceededException", Err("warm failed: UpdateTable: LimitExceededException")),
    ];
    for (class, expected) in rows {
        let error = json!({"__type": format!("x#{class}"), "message": "no"});
        let failing = replies("UpdateTable", Reply::With(400, error));
        let fixture = new_table(budget(40_000, 0), failing).await;
        match (fixture.send(&warm(24_000)).await, expected) {
            (Ok(answer), Ok(outcome)) => {
                assert_eq!(answer["outcome"], outcome, "{answer}");
                assert!(answer.to_string().contains(class), "{answer}");
            }
            (Err(failed), Err(summary)) => assert!(failed.to_string().starts_with(summary)),
            (handled, expected) => panic!("{class}: {handled:?}, and not {expected:?}"),
        }
        assert_eq!(fixture.described()["WriteUnitsPerSecond"], 4_000);
        // The known value is published; the next event tries again, and shards are added anyway.
        assert_eq!(fixture.published_write_units().await, Some(4_000));
        let answer = fixture.send(&set(2, 24_000)).await.unwrap_or_else(Failed::into_response);
        assert_eq!(answer["outcome"], "scaled", "{answer}");
        assert!(answer["warm"].to_string().contains(class), "{answer}");
    }
}
