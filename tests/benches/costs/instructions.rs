//! Instructions by valgrind: the same whatever else the machine does.

use std::process::Command;

/// The environment variable by which the benchmark, called by itself, knows which side to run.
pub(crate) const SIDE: &str = "BENCHMARK_SIDE";
/// How often the side runs its operation.
pub(crate) const TIMES: &str = "BENCHMARK_TIMES";

/// Instructions of one operation of a side: the difference of two runs, so that start and warm-up do not count. `None` without valgrind.
pub(crate) fn per_operation(side: &str) -> Option<f64> {
    const FEW: u64 = 200;
    const MANY: u64 = 1_200;
    let (few, many) = (count(side, FEW)?, count(side, MANY)?);
    Some((many - few) as f64 / (MANY - FEW) as f64)
}

fn count(side: &str, times: u64) -> Option<u64> {
    let this = std::env::current_exe().expect("the benchmark's own path");
    let directory = tempfile::tempdir().expect("a directory");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .env(SIDE, side)
        .env(TIMES, times.to_string())
        .current_dir(directory.path())
        .output()
        .ok()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    let line = told.lines().find(|line| line.contains("Collected :"))?;
    line.split(':').nth(1)?.trim().parse().ok()
}
