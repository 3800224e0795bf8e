//! `plan` as a process: its output and exit code.

use std::process::{Command, Output};

fn run(changed: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adviser"));
    command
        .args(["plan", "--item-size", "1024", "--read-rate", "10", "--page-size", "100"])
        .args(changed);
    command.output().expect("the command runs")
}

fn text_of(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

#[test]
fn text_begins_with_the_verdict_and_has_every_part() {
    let output = run(&["--write-rate", "5000"]);
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    let text = text_of(&output.stdout);
    assert!(
        text.starts_with(
            "Shard it: this key needs 5,000 write units a second, one partition takes 1,000,"
        ),
        "{text}"
    );
    for part in [
        "\ndemand ",
        "\npartitions ",
        "\nshards ",
        "\ndirectory ",
        "\n| a page ",
        "\n| a month ",
        "\n| at rest, a month ",
        "\nDynamoDB by itself: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.ends_with('\n') && output.stderr.is_empty());
}

#[test]
fn json_is_one_object() {
    let output = run(&["--write-rate", "300", "--format", "json"]);
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["verdict"]["kind"], "leave");
    assert_eq!(plan["shards"]["judged"], 1);
    assert_eq!(plan["demand"]["write_units_per_second"], 300.0);
}

#[test]
fn a_wrong_value_is_refused_with_what_is_allowed() {
    let output = run(&["--write-rate", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let error = text_of(&output.stderr);
    let expected = "error: invalid value '0' for '--write-rate <N>': 0 is not in 1..=1000000";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(run(&[]).status.code(), Some(2), "no rate at all");
}

#[test]
fn a_launch_has_its_section_and_its_part_of_the_json() {
    let launch = [
        "--write-rate",
        "5000",
        "--launch",
        "2199-03-01T18:00:00+01:00",
        "--index",
        "read-replica-1",
    ];
    let output = run(&launch);
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    let text = text_of(&output.stdout);
    for part in [
        "\nBefore launch day, 2199-03-01T17:00:00Z (from a new table):\n",
        "\n1. By 2199-03-01T16:00:00Z. Warm the table and its indexes",
        "     aws dynamodb update-table --table-name MAIN-TABLE --warm-throughput WriteUnitsPerSecond=",
        "\"IndexName\":\"read-replica-1\"",
        "     PeakSchedule=cron(0 16 1 3 ? 2199)\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = run(&[&launch[..], &["--format", "json"]].concat());
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["launch"]["at"], "2199-03-01T17:00:00Z");
    assert_eq!(plan["launch"]["is_late"], false);
    assert_eq!(plan["launch"]["warming"][1]["index"], "read-replica-1");
}

#[test]
fn a_launch_that_is_no_time_or_past_is_refused() {
    let launch = |when| run(&["--write-rate", "5000", "--launch", when]);
    let wrong = launch("next week");
    assert_eq!(wrong.status.code(), Some(2));
    let error = text_of(&wrong.stderr);
    let expected = "error: invalid value 'next week' for '--launch <WHEN>': an RFC 3339 date (2027-03-01, from midnight";
    assert!(error.starts_with(expected), "{error}");
    let past = launch("2014-07-09");
    assert_eq!(past.status.code(), Some(1));
    assert!(past.stdout.is_empty());
    let error = text_of(&past.stderr);
    assert!(error.starts_with("error: --launch 2014-07-09T00:00:00Z is past: it is 2"), "{error}");
}
