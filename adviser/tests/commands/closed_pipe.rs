//! Commands whose output pipe is closed early, as by `| head`.

use std::io::Read as _;
use std::process::{Command, Stdio};

#[test]
fn a_closed_pipe_is_not_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("writes.jsonl");
    let lines: String = (0..1_000).map(|i| format!("{{\"status\":\"{i}\"}}\n")).collect();
    std::fs::write(&file, lines).expect("it is written");
    let file = file.to_str().expect("a path");
    for arguments in [
        &["advise", file, "--partition-key", "status", "--format", "json"][..],
        &["advise", file, "--partition-key", "status"],
        &[
            "plan",
            "--write-rate",
            "5000",
            "--item-size",
            "100",
            "--read-rate",
            "10",
            "--page-size",
            "10",
        ],
    ] {
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
