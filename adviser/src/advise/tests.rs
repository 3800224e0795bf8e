//! Whole files through both passes.

use std::io::Write;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use sharding::internal::policy::rules::ScalingPolicy;

use super::verdict::Uniformity;
use super::*;

fn file(content: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

/// The advice for the audit log in memory of these bounds.
fn audit_log(bounds: &Bounds) -> Advice {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/audit-log.jsonl.gz");
    let options = WriteOptions { time: Some("time".into()), ..WriteOptions::of("path") };
    super::advise(&Source::open(&path).unwrap(), &options, bounds).unwrap()
}

fn advise(file: &Path, options: &WriteOptions) -> Advice {
    super::advise(&Source::open(file).unwrap(), options, &Bounds::default()).unwrap()
}

/// The expected numbers were counted by another program.
#[test]
fn the_audit_log_is_counted_exactly() {
    let advice = audit_log(&Bounds::default());
    assert_eq!((advice.totals.items, advice.totals.units), (61_299, 61_299));
    let hottest = advice.hottest_keys.iter().map(|key| (key.partition_key.as_str(), key.items));
    let expected = [("Cargo.lock", 3_952), ("Cargo.toml", 3_595), ("package.json", 3_491)];
    assert_eq!(hottest.take(3).collect::<Vec<_>>(), expected);
    let time = advice.over_time.as_ref().unwrap();
    assert_eq!((time.from, time.to), (1_403_710_614, 1_787_345_599));
    assert_eq!((time.peak.write_units_per_second, time.peak.at), (504, 1_777_901_349));
    assert!(time.peaks_are_exact && time.overloads.is_empty());
    let ranking = &advice.totals.ranking;
    assert_eq!((ranking.distinct, ranking.is_exact, ranking.unlisted_at_most), (5_301, true, 0));
    assert_eq!(advice.verdict.uniformity, Uniformity::Uneven);
    let peak = advice.hottest_keys[0].peak.unwrap();
    assert_eq!((peak.write_units_per_second, peak.at), (17, 1_476_225_722));
    let momentary = advice.totals.momentary.unwrap().mean_share;
    assert!((momentary - 0.082_131_147_541).abs() < 1e-11, "{momentary}");
    // This is more than the 6.4 % of the hottest file, and not by chance: different files are hot
    // at different times.
    assert_eq!((advice.breaking_rate, &advice.breaking_key), (12_175, &None));
}

#[test]
fn in_little_memory_the_audit_logs_hottest_keys_stay_exact() {
    let bounds = Bounds { keys: 20_000, followed: 50, seconds: 1_000 };
    let (advice, again) = (audit_log(&bounds), audit_log(&bounds));
    assert_eq!(advice.report().to_string(), again.report().to_string());
    let ranking = &advice.totals.ranking;
    assert!(!ranking.is_exact && (100..=5_301).contains(&ranking.distinct), "{ranking:?}");
    let time = advice.over_time.as_ref().unwrap();
    let peak = time.peak.write_units_per_second;
    assert!(peak == 504 || !time.peaks_are_exact && peak < 504, "{peak}");
    assert_eq!(advice.hottest_keys[0].items, 3_952);
}

#[test]
fn a_key_that_exceeds_its_partition_is_reported_with_its_shards() {
    let mut lines = String::new();
    let mut write = |device: &str, second: u64, bytes: u64| {
        lines.push_str(&format!(
            "{{\"device\":\"{device}\",\"at\":\"2026-01-01T00:00:0{second}Z\",\"bytes\":{bytes}}}\n"
        ));
    };
    for second in 0..4 {
        for number in 0..(if second == 3 { 900 } else { 1_200 }) {
            write("hot", second, 2_000);
            write(&format!("cold-{number}"), second, 100);
        }
    }
    let log = file(&lines);
    let (time, size) = (Some("at".into()), Some("bytes".into()));
    let advice = advise(log.path(), &WriteOptions { time, size, ..WriteOptions::of("device") });
    assert_eq!((advice.totals.items, advice.totals.units), (9_000, 13_500));
    let overloads = &advice.over_time.as_ref().unwrap().overloads;
    let [overload] = overloads.as_slice() else { panic!("{advice:?}") };
    let peak = overload.peak.write_units_per_second;
    assert_eq!((overload.partition_key.as_str(), peak, overload.seconds), ("hot", 2_400, 4));
    let by_policy = u64::from(crate::plan::unlimited_shards(2_400));
    assert_eq!((overload.fewest_shards, overload.shards_by_policy), (3, by_policy));
    assert_eq!(advice.verdict.uniformity, Uniformity::Bad);
    let text = advice.report().to_string();
    let given = format!("would get {by_policy} on a table that has served as much before");
    for part in ["\"hot\" took 2,400 write units in a second", &given] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The advice for a log of this number of writes of one size, ten per second.
fn log(writes: u64, bytes: u64, mut key: impl FnMut(u64) -> u64) -> Advice {
    let line =
        |i: u64| format!("{{\"k\":{},\"t\":{},\"n\":{bytes}}}\n", key(i), 1_700_000_000 + i / 10);
    let log = file(&(0..writes).map(line).collect::<String>());
    let (time, size) = (Some("t".into()), Some("n".into()));
    advise(log.path(), &WriteOptions { time, size, ..WriteOptions::of("k") })
}

#[test]
fn the_verdict_does_not_depend_on_the_size_of_the_items() {
    for kb in [1, 10, 100] {
        let bytes = kb * 1_024;
        let once = log(5_000, bytes, |i| i);
        assert_eq!(once.verdict.uniformity, Uniformity::Good, "{kb} KB: {:?}", once.verdict);

        let mut rng = StdRng::seed_from_u64(kb);
        let few = log(40_000, bytes, |_| rng.random_range(0..60));
        assert_eq!(few.verdict.uniformity, Uniformity::Good, "{kb} KB: {:?}", few.verdict);
        let rate = few.breaking_rate;
        assert!((52_000..60_000).contains(&rate), "{kb} KB: {rate}");
        assert_eq!(few.breaking_key.as_ref(), Some(&few.hottest_keys[0].partition_key));

        let is_hot = |rng: &mut StdRng| rng.random_bool(0.46);
        let hot =
            log(40_000, bytes, |_| if is_hot(&mut rng) { 7 } else { rng.random_range(10..2_000) });
        assert_eq!(hot.breaking_key.as_deref(), Some("7"), "{kb} KB");

        let by_date = log(40_000, bytes, |i| i / 2_000);
        assert_eq!(by_date.verdict.uniformity, Uniformity::Bad, "{kb} KB: {:?}", by_date.verdict);
        assert!(by_date.verdict.reason.contains("by turns"), "{kb} KB: {:?}", by_date.verdict);
        assert_eq!((by_date.breaking_rate, &by_date.breaking_key), (1_000, &None));
    }
}

#[test]
fn a_file_without_an_item_or_that_is_missing_is_an_error() {
    let error = |path: &Path| {
        let writes = Some(WriteOptions::of("k"));
        let options = AdviseOptions { file: path.into(), writes, observed: false };
        report(&options).unwrap_err().to_string()
    };
    for content in ["", "\n \n"] {
        let file = file(content);
        let expected = format!("{}: the file has no item", file.path().display());
        assert_eq!(error(file.path()), expected);
    }
    let error = error(Path::new("no/such/file"));
    assert!(error.starts_with("no/such/file: No such file"), "{error}");
}

#[test]
fn the_picture_names_keys_of_any_kind() {
    let lines: String = (0..2_000)
        .map(|i| format!("{{\"k\":\"<{}&\\u001b\\\"\u{fffe}\u{202e}\",\"t\":{i}}}\n", i % 7))
        .collect();
    let log = file(&lines);
    let options = WriteOptions { time: Some("t".into()), ..WriteOptions::of("k") };
    let svg = tempfile::NamedTempFile::new().unwrap();
    render_svg(&advise(log.path(), &options), svg.path()).unwrap();
    let drawn = std::fs::read_to_string(svg.path()).unwrap();
    assert!(drawn.contains("&lt;3&amp;\\u{1b}"));
    assert!(!drawn.contains(['\u{1b}', '\u{fffe}', '\u{202e}']));
}

fn observed(lines: &str) -> String {
    let file = file(lines);
    let options = AdviseOptions { file: file.path().into(), writes: None, observed: true };
    report(&options).map_or_else(|error| error.to_string(), |report| report.to_string())
}

fn hot_key(key: &str, units: u64, refused: &[&str]) -> Value {
    json!({"table": "orders", "key": key, "write_units": units, "throttled": 3, "shards": 9, "refused": refused})
}

#[test]
fn what_two_endpoints_have_observed_of_a_key_is_added() {
    let refused = ["Expected", "TransactWriteItems"];
    let keys = [hot_key("warm", 1_500, &[]), hot_key("hot", 1_200, &refused)];
    let first = json!({ "not_armed": keys });
    let second = json!({ "not_armed": [hot_key("hot", 800, &["QueryFilter"])] });
    let text = observed(&format!("{first}\n{second}\n"));
    assert!(
        text.starts_with("verdict     bad: these endpoints have seen 2 keys throttled"),
        "{text}"
    );
    let shards = ScalingPolicy::default().shards_if_throttled(2_000.0).to_string();
    let row =
        ["hot", "orders", "2,000", &shards, "Expected,", "QueryFilter,", "TransactWriteItems"];
    let is_row = |line: &str| line.split(['|', ' ']).filter(|cell| !cell.is_empty()).eq(row);
    assert!(text.lines().any(is_row), "{text}");
}

#[test]
fn the_hottest_observed_keys_are_shown_whole() {
    let long = |number: u64| format!("{}#{number}", "tenant".repeat(20));
    let keys: Vec<_> = (0..30).map(|number| hot_key(&long(number), number, &[])).collect();
    let text = observed(&json!({ "not_armed": keys }).to_string());
    assert!(text.contains(&long(29)) && !text.contains(&long(9)), "{text}");
    assert!(text.contains("\nand 10 more keys\n"), "{text}");
}

#[test]
fn only_an_endpoint_that_answered_can_have_seen_no_hot_key() {
    let good = "verdict     good: these endpoints have seen no throttled key";
    assert!(observed("{\"not_armed\":[]}\n").starts_with(good));
    assert!(observed("").ends_with(": no endpoint's line is in it"));
    let error = observed("\n{\"not_armed\":[{\"table\":\"orders\"}]}\n");
    assert!(
        error.contains(", line 2: it is not what an endpoint has observed: missing field `key`")
    );
}
