//! A write of a warm key, compared with a bare `PutItem` of the same item. Valgrind counts the
//! instructions of both, so other load on the machine does not matter.

use std::process::Command;

use aws_sdk_dynamodb::Client;
use sharding::internal::{Environment, TableEngine};
use sharding::{Attributes, Item, Value};

use crate::at_once::{self, StandingClock};
use crate::metadata::{self, text};
use crate::{config, partition_key, soon, sort_key};

/// The environment variable that selects the side when this program starts itself.
const SIDE: &str = "INSTRUCTIONS_SIDE";
/// The environment variable for the number of operations of the side.
const TIMES: &str = "INSTRUCTIONS_TIMES";

/// The instructions of one bare `PutItem` and of one write by this product. Each is the difference
/// of two runs of this program with these arguments, which must reach [`run_side`]; so start and
/// warm-up do not count. `None` without valgrind.
pub fn per_write(arguments: &[&str], few: u64, many: u64) -> Option<(f64, f64)> {
    let of_side = |side: &str| {
        let (few_count, many_count) = (count(arguments, side, few)?, count(arguments, side, many)?);
        Some((many_count - few_count) as f64 / (many - few) as f64)
    };
    Some((of_side("bare")?, of_side("ours")?))
}

fn count(arguments: &[&str], side: &str, times: u64) -> Option<u64> {
    let this = std::env::current_exe().expect("this program's own path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args(arguments)
        .env(SIDE, side)
        .env(TIMES, times.to_string())
        .output()
        .ok()?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    let line = log.lines().find(|line| line.contains("Collected :"))?;
    line.split(':').nth(1)?.trim().parse().ok()
}

/// An item of about 1 KB.
fn item(number: usize) -> Item {
    let attributes = Attributes::from([
        ("path".to_owned(), Value::S("/shared/firetvGen2.txt".into())),
        ("bytes".to_owned(), Value::N("1024".into())),
        ("filler".to_owned(), Value::S("x".repeat(800))),
    ]);
    let (partition_key, sort_key) = (partition_key("k"), sort_key(&format!("{number:012}")));
    Item { partition_key, sort_key, attributes }
}

/// The write of a user of the SDK without this product.
async fn bare(client: &Client, number: usize) {
    let put = client.put_item().table_name("items").item("partition_key", text("k"));
    let put = put.item("sort_key", text(&format!("{number:012}")));
    let put = put.item("path", text("/shared/firetvGen2.txt"));
    let put = put.item("bytes", metadata::number(1_024)).item("filler", text(&"x".repeat(800)));
    put.send().await.expect("stored");
}

/// Runs one side of the comparison, if the environment selects one. Returns whether it did.
pub fn run_side() -> bool {
    let Ok(side) = std::env::var(SIDE) else { return false };
    let times = std::env::var(TIMES).ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = at_once::client();
    runtime.block_on(async {
        // Under valgrind a second passes quickly. The clock stands still, so that no view ages.
        let environment = Environment::seeded(StandingClock, 1);
        let table = TableEngine::with_environment(&client, config(), environment);
        table.put(&item(0), soon()).await.expect("stored");
        table.finish_background_work().await;
        for number in 0..times {
            match side.as_str() {
                "bare" => bare(&client, number).await,
                _ => drop(table.put(&item(number), soon()).await.expect("stored")),
            }
        }
    });
    true
}
