//! `advise` as a process.

use crate::{run, text_of};

#[test]
fn json_is_one_object() {
    let lines: String =
        (0..5_000).map(|i| format!("{{\"status\":\"{}\",\"order\":{i}}}\n", i % 5)).collect();
    let arguments = ["advise", "-", "--partition-key", "status", "--sort-key", "order", "--format"];
    let output = run(&[&arguments[..], &["json"]].concat(), &lines);
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    let advice: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(advice["verdict"]["uniformity"], "bad");
    assert_eq!(advice["partition_keys"]["distinct"], 5);
    assert_eq!(advice["breaking_rate"]["write_units_per_second"], 5_000);
    assert_eq!(advice["spreads"][0]["placements"].as_array().map(Vec::len), Some(10));
    assert_eq!(advice["over_time"], serde_json::Value::Null);
}

#[test]
fn an_invalid_line_ends_it_with_an_error_and_no_output() {
    let lines = "{\"status\":1}\n{\"status\":[]}\n";
    let output = run(&["advise", "-", "--partition-key", "status"], lines);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert_eq!(
        text_of(&output.stderr),
        "error: standard input, line 2: its field \"status\" is []; a string or a number is allowed\n"
    );
}
