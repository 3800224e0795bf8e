//! The cold start of the functions, compared with a minimal function that puts one item with the
//! SDK, under the same runtime API.
//!
//! ```sh
//! cargo build --release -p writer -p reader -p shard-scaler -p minimal-function
//! cargo bench -p system-tests --bench cold_start
//! ```

#![expect(clippy::print_stdout, reason = "the table is the product of a benchmark")]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use local::ServeOptions;
use system_tests::{Function, TestEdition, config, event, median};
use tokio::time::Instant;

/// The number of starts of each function. The functions take turns.
const STARTS: usize = 15;
const FUNCTIONS: [(&str, &str); 4] = [
    ("minimal-function", "writer-post-item"),
    ("writer", "writer-post-item"),
    ("reader", "reader-get-items"),
    ("shard-scaler", "shard-scaler-show"),
];

#[derive(Default)]
struct Measured {
    ready: Vec<Duration>,
    first: Vec<Duration>,
    hundredth: Vec<Duration>,
    peak_kilobytes: u64,
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release");
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let variables = Function::variables(&edition.dynamodb_url());
    let mut measured: Vec<Measured> = FUNCTIONS.iter().map(|_| Measured::default()).collect();
    for _ in 0..STARTS {
        for ((name, sample), measured) in FUNCTIONS.iter().zip(&mut measured) {
            let binary = folder.join(name);
            let mut function = Function::start(&binary.to_string_lossy(), &variables).await;
            measured.ready.push(function.ready().await);
            for request in 0..100 {
                let begun = Instant::now();
                let response = function.invoke(event(sample)).await;
                let took = begun.elapsed();
                assert!(response.get("function_error").is_none(), "{name}: {response}");
                match request {
                    0 => measured.first.push(took),
                    99 => measured.hundredth.push(took),
                    _ => {}
                }
            }
            measured.peak_kilobytes = measured.peak_kilobytes.max(function.peak_kilobytes());
        }
    }
    println!(
        "{STARTS} starts each, medians; targets: ready 1.2 times, zip 1.3 times the minimal \
         function's, peak memory under 40 MB"
    );
    println!("  function           ready ms         first ms  hundredth ms   peak MB       zip MB");
    let (mut ready_of_minimal, mut zip_of_minimal) = (f64::NAN, f64::NAN);
    for ((name, _), measured) in FUNCTIONS.iter().zip(measured) {
        let zip = zipped(&folder.join(name)) as f64 / 1e6;
        let [ready, first, hundredth] =
            [measured.ready, measured.first, measured.hundredth].map(median);
        if ready_of_minimal.is_nan() {
            (ready_of_minimal, zip_of_minimal) = (ready, zip);
        }
        let (by_ready, by_zip) = (ready / ready_of_minimal, zip / zip_of_minimal);
        let peak = measured.peak_kilobytes as f64 / 1e3;
        println!(
            "  {name:16} {ready:6.2} ({by_ready:.2})  {first:13.2}  {hundredth:12.2}  {peak:8.1}  {zip:5.2} ({by_zip:.2})"
        );
    }
    edition.stop().await;
}

/// The size of the binary in a zip file, in bytes.
fn zipped(binary: &Path) -> usize {
    let bytes = std::fs::read(binary)
        .unwrap_or_else(|error| panic!("{}: {error}; build it first", binary.display()));
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it").len()
}
