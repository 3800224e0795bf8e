//! POSTs and GETs of many keys that never grow, compared with the bare requests of the SDK.
//! Requests and units are exact, in the time of the simulated service. Latencies are wall-clock
//! times; the sides take turns, each with some of the keys. `COSTS_KEYS` sets the number of keys.

use system_tests::many_keys::{Cost, OPERATIONS, Side};

/// Concurrent requests in the time of the simulated service: more than ten thousand requests per
/// second.
const AT_ONCE: usize = 64;
/// Concurrent requests in wall-clock time: few, so that the machine's limit is not measured.
const AT_ONCE_BY_THE_CLOCK: usize = 4;
/// One in this number of keys is measured in wall-clock time.
const SAMPLE: usize = 100;
/// The number of keys in a side's turn.
const TURN: usize = 250;

pub(crate) fn compare() {
    let keys = std::env::var("COSTS_KEYS").ok();
    let keys = keys.map_or(1_000_000, |keys| keys.parse().expect("COSTS_KEYS is a number of keys"));
    let simulated =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let simulated = simulated.expect("a runtime");
    println!(
        "{keys} keys that never grow, {:?} per request, {AT_ONCE} at once, compared with bare requests",
        crate::SERVICE_TIME
    );
    simulated.block_on(counts(keys));
    let by_the_clock =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    by_the_clock.expect("a runtime").block_on(latencies((keys / SAMPLE).max(TURN)));
}

async fn counts(keys: usize) {
    let (bare, ours) = (Side::bare().await, Side::ours().await);
    for operation in OPERATIONS {
        let bare = bare.carry_out(operation, 0..keys, AT_ONCE).await;
        let ours = ours.carry_out(operation, 0..keys, AT_ONCE).await;
        let (requests, units) =
            (ours.requests as f64 / bare.requests as f64, ours.units / bare.units);
        println!(
            "  {operation:?}: {requests:.5} times the requests (target 1.001), \
             {units:.5} times the units (target 1.001)"
        );
        print_times(&format!("{operation:?}"), &bare, &ours);
    }
}

async fn latencies(keys: usize) {
    println!("  {keys} of them by the clock, {AT_ONCE_BY_THE_CLOCK} at once");
    let (bare, ours) = (Side::bare().await, Side::ours().await);
    for operation in OPERATIONS {
        let (mut of_bare, mut of_ours) = (Cost::default(), Cost::default());
        for from in (0..keys).step_by(TURN) {
            let turn = from..(from + TURN).min(keys);
            of_bare.add(bare.carry_out(operation, turn.clone(), AT_ONCE_BY_THE_CLOCK).await);
            of_ours.add(ours.carry_out(operation, turn, AT_ONCE_BY_THE_CLOCK).await);
        }
        print_times(&format!("{operation:?} by the clock"), &of_bare, &of_ours);
    }
}

fn print_times(about: &str, bare: &Cost, ours: &Cost) {
    let times = [50, 99].map(|percent| (bare.percentile(percent), ours.percentile(percent)));
    let [median, slow] =
        times.map(|(bare, ours)| format!("{bare:.2} and {ours:.2} ms: {:.3}", ours / bare));
    println!("  {about}: median {median}; 99th percentile {slow} (target 1.05)");
}
