//! `advise` as a process: its output and exit code.

use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_adviser"));
    child
        .arg("advise")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = child.spawn().expect("the command starts");
    // A command that refuses its arguments does not read its input, so the write may fail.
    drop(std::io::Write::write_all(&mut child.stdin.take().expect("its input"), input.as_bytes()));
    child.wait_with_output().expect("it ends")
}

#[test]
fn json_is_one_object() {
    let lines: String =
        (0..5_000).map(|i| format!("{{\"status\":\"{}\",\"order\":{i}}}\n", i % 5)).collect();
    let output =
        run(&["-", "--partition-key", "status", "--sort-key", "order", "--format", "json"], &lines);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let advice: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(advice["verdict"]["uniformity"], "bad");
    assert_eq!(advice["partition_keys"]["distinct"], 5);
    assert_eq!(advice["breaking_rate"]["write_units_per_second"], 5_000);
    assert_eq!(advice["spreads"][0]["placements"].as_array().map(Vec::len), Some(10));
    assert_eq!(advice["over_time"], serde_json::Value::Null);
}

#[test]
fn an_invalid_line_ends_it_with_an_error_and_no_output() {
    let output = run(&["-", "--partition-key", "status"], "{\"status\":1}\n{\"status\":[]}\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        error,
        "error: standard input, line 2: its field \"status\" is []; a string or a number is allowed\n"
    );
}
