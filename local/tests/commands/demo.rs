//! Runs `demo` as a process, and checks its output and its exit status.

use std::process::{Command, Stdio};

fn local(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_local"));
    command.args(arguments.split(' ')).stdin(Stdio::null());
    command
}

#[test]
fn the_demo_is_printed_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("story.svg");
    let mut command = local("demo --seconds 20 --writes 40 --partition-write-units 10 --svg");
    let output = command.arg(&path).output().expect("it runs");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let rise = "the load rises to 40 writes a second";
    for line in [rise, "| since the load rose", "| reads, from second 0 on"] {
        assert!(out.contains(line), "{line} is not in {out}");
    }
    let is_row = |line: &&str| line.contains("look-ups that did not find the item");
    let row = out.lines().find(is_row).expect("the row");
    assert_eq!(row.matches(" 0 ").count(), 2, "{row}");
    let svg = std::fs::read_to_string(&path).expect("the picture");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.matches("<polyline ").count() >= 7, "the lines of three charts");
}

#[test]
fn an_unwritable_picture_is_reported_before_the_demo() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("missing").join("story.svg");
    let output = local("demo --seconds 600 --svg").arg(&path).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with(&format!("error: {}: ", path.display())), "{said}");
    assert!(output.stdout.is_empty(), "it ran before the check");
}
