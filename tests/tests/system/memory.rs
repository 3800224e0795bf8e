//! Keys that never grew take no memory, no matter how many of them an instance has seen.

use std::process::Command;

use sharding::Item;
use sharding::internal::{Environment, TableEngine};
use system_tests::at_once::{self, StandingClock};
use system_tests::{OneItem, config, large_or, partition_key, peak_kilobytes, soon, valued_item};

/// The environment variable that starts this program as the instance, with the number of keys.
const KEYS: &str = "MEMORY_KEYS";
const PEAK: &str = "peak kilobytes:";
/// The number of keys that every instance sees first, so that all code is in use. It is far below
/// the number that an instance remembers.
const WARM_UP: usize = 200;

fn item(number: usize) -> Item {
    valued_item(partition_key(&format!("/shared/path-{number:07}.txt")), "123456789101", 1_024)
}

/// An instance that sees this number of keys: it writes to half of them, and reads the others.
async fn see(keys: usize) {
    let environment = Environment::seeded(StandingClock, 1);
    let table = TableEngine::with_environment(&at_once::client(), config(), environment);
    for number in 0..WARM_UP + keys {
        let item = item(number);
        if number % 2 == 0 {
            let written = table.put(&item, soon()).await.expect("stored");
            assert_eq!(written.number_of_shards, 1);
        } else {
            let found = table.get(&item.partition_key, &item.sort_key, true, soon()).await;
            assert_eq!(found.expect("a response"), None);
        }
    }
    table.finish_background_work().await;
}

/// The peak memory of an instance that sees this number of keys.
fn peak_of(keys: usize) -> u64 {
    let this = [
        "--exact",
        "memory::keys_that_never_grew_take_no_memory",
        "--nocapture",
        "--test-threads=1",
    ];
    let program = std::env::current_exe().expect("this program's own path");
    let output =
        Command::new(program).args(this).env(KEYS, keys.to_string()).output().expect("it runs");
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{log}{}", String::from_utf8_lossy(&output.stderr));
    let peak = log.lines().find_map(|line| line.split_once(PEAK)?.1.trim().parse().ok());
    peak.unwrap_or_else(|| panic!("no peak: {log}"))
}

#[test]
fn keys_that_never_grew_take_no_memory() {
    // 50 bytes for each key of the large form: less than its entry in any map would take.
    const MAX_GROWTH_KILOBYTES: u64 = 10_000;
    let Some(own) = peak_kilobytes("self") else {
        println!("not measured: the system does not report the memory of a process");
        return;
    };
    if let Ok(keys) = std::env::var(KEYS) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(see(keys.parse().expect("a number of keys")));
        println!("\n{PEAK} {}", peak_kilobytes("self").unwrap_or(own));
        return;
    }
    let keys = large_or(200_000, 20_000);
    let (none, many) = (peak_of(0), peak_of(keys));
    println!("{none} kB for an instance that has seen {WARM_UP} keys, {many} kB after {keys} more");
    assert!(many <= none + MAX_GROWTH_KILOBYTES, "{many} kB, {none} kB");
}
