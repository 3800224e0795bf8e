//! The commands as processes: their output and exit codes.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adviser"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

/// Runs the adviser with this standard input.
fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = start(arguments);
    // A command that refuses its arguments does not read its input, so the write may fail.
    drop(child.stdin.take().expect("its input").write_all(input.as_bytes()));
    child.wait_with_output().expect("it ends")
}

fn text_of(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// The arguments of a plan for this rate of writes.
fn plan_for(rate: &'static str) -> Vec<&'static str> {
    let others = ["--item-size", "1024", "--read-rate", "10", "--page-size", "100"];
    [&["plan", "--write-rate", rate], &others[..]].concat()
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("writes.jsonl");
    let lines: String = (0..1_000).map(|i| format!("{{\"status\":\"{i}\"}}\n")).collect();
    std::fs::write(&file, lines).expect("it is written");
    let advise = ["advise", file.to_str().expect("a path"), "--partition-key", "status"];
    for arguments in [advise.to_vec(), plan_for("300")] {
        let mut child = start(&arguments);
        drop(child.stdout.take());
        let mut errors = String::new();
        child.stderr.take().expect("its errors").read_to_string(&mut errors).expect("text");
        let status = child.wait().expect("it ends");
        assert!(status.success() && errors.is_empty(), "{status}: {errors}");
    }
}

#[test]
fn the_advice_begins_with_the_verdict_and_has_its_figures() {
    let lines: String = (0..5_000).map(|i| format!("{{\"status\":\"{}\"}}\n", i % 5)).collect();
    let output = run(&["advise", "-", "--partition-key", "status"], &lines);
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    let text = text_of(&output.stdout);
    assert!(text.starts_with("verdict     bad: there are only 5 partition keys"), "{text}");
    for part in ["keys        5 distinct", "breaks      above 5,000 write units", "| 0 "] {
        assert!(text.contains(&format!("\n{part}")), "{part}: {text}");
    }
    assert!(!text.contains("\ntime "), "no times are given: {text}");
}

#[test]
fn an_invalid_line_ends_advise_with_an_error_and_no_output() {
    let lines = "{\"status\":1}\n{\"status\":[]}\n";
    let output = run(&["advise", "-", "--partition-key", "status"], lines);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert_eq!(
        text_of(&output.stderr),
        "error: standard input, line 2: its field \"status\" is neither a string nor a number\n"
    );
}

#[test]
fn advise_reads_writes_or_observations_and_not_both() {
    let observed = run(&["advise", "-", "--observed"], "{\"not_armed\":[]}\n");
    assert!(observed.status.success(), "{}", text_of(&observed.stderr));
    assert!(text_of(&observed.stdout).starts_with("verdict     good"));
    let rows = [
        (&["advise", "-", "--observed", "--time", "t"][..], "'--observed' cannot be used with"),
        (&["advise", "-"], "--partition-key <FIELD>"),
    ];
    for (arguments, why) in rows {
        let output = run(arguments, "");
        assert_eq!(output.status.code(), Some(2));
        let error = text_of(&output.stderr);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_plan_begins_with_the_verdict_and_has_every_part() {
    let output = run(&plan_for("5000"), "");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text_of(&output.stderr));
    let text = text_of(&output.stdout);
    let verdict = "Shard it: this key needs 5,000 write units a second, one partition takes 1,000,";
    assert!(text.starts_with(verdict) && text.ends_with('\n'), "{text}");
    for part in ["demand ", "partitions ", "shards ", "| a page ", "| a month "] {
        assert!(text.contains(&format!("\n{part}")), "{part}: {text}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_what_is_allowed() {
    let output = run(&plan_for("0"), "");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let error = text_of(&output.stderr);
    let expected = "error: invalid value '0' for '--write-rate <N>': 0 is not in 1..=1000000";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(run(&["plan"], "").status.code(), Some(2), "no rate at all");
}
