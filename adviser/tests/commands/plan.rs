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
        "\n| a page ",
        "\n| a month ",
        "\n| at rest, a month ",
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
