//! `plan` as a process.

use crate::{run, text_of};

/// The arguments of a plan for this rate of writes.
pub(crate) fn with_rate(rate: &'static str) -> Vec<&'static str> {
    let others = ["--item-size", "1024", "--read-rate", "10", "--page-size", "100"];
    [&["plan", "--write-rate", rate], &others[..]].concat()
}

#[test]
fn text_begins_with_the_verdict_and_has_every_part() {
    let output = run(&with_rate("5000"), "");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text_of(&output.stderr));
    let text = text_of(&output.stdout);
    let verdict = "Shard it: this key needs 5,000 write units a second, one partition takes 1,000,";
    assert!(text.starts_with(verdict) && text.ends_with('\n'), "{text}");
    for part in
        ["demand ", "partitions ", "shards ", "| a page ", "| a month ", "| at rest, a month "]
    {
        assert!(text.contains(&format!("\n{part}")), "{part}: {text}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_what_is_allowed() {
    let output = run(&with_rate("0"), "");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let error = text_of(&output.stderr);
    let expected = "error: invalid value '0' for '--write-rate <N>': 0 is not in 1..=1000000";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(run(&["plan"], "").status.code(), Some(2), "no rate at all");
}
