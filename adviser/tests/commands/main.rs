//! The commands as processes: their output and exit codes.

mod advise;
mod plan;

use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};

/// Runs the adviser with this standard input.
fn run(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adviser"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // A command that refuses its arguments does not read its input, so the write may fail.
    drop(child.stdin.take().expect("its input").write_all(input.as_bytes()));
    child.wait_with_output().expect("it ends")
}

fn text_of(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("writes.jsonl");
    let lines: String = (0..1_000).map(|i| format!("{{\"status\":\"{i}\"}}\n")).collect();
    std::fs::write(&file, lines).expect("it is written");
    let advise = ["advise", file.to_str().expect("a path"), "--partition-key", "status"];
    let as_json = [&advise[..], &["--format", "json"]].concat();
    for arguments in [as_json, advise.to_vec(), plan::with_rate("300")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_adviser"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        drop(child.stdout.take());
        let mut errors = String::new();
        child.stderr.take().expect("its errors").read_to_string(&mut errors).expect("text");
        let status = child.wait().expect("it ends");
        assert!(status.success() && errors.is_empty(), "{status}: {errors}");
    }
}
