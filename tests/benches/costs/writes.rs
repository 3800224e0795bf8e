//! A write of a warm key, compared with a bare `PutItem` of the same item.

use local::in_process_clients;
use sharding::Item;
use sharding::internal::TableEngine;
use system_tests::warm_write::{bare, item, ours, per_write};
use system_tests::{Tables, config, partition_key, soon};
use tokio::time::Instant;

pub(crate) fn instructions() {
    println!("instructions of a write of a warm key, against a connector that responds at once");
    match per_write(&[], 200, 1_200) {
        Some((bare, ours)) => {
            println!("  bare PutItem {bare:.0}, ours {ours:.0}: {:.3} (target 1.10)", ours / bare)
        }
        None => println!("  not counted: valgrind is not installed"),
    }
}

pub(crate) async fn latency() {
    let tables = Tables::claimed(config()).await;
    let tables = Tables { service_time: crate::SERVICE_TIME, ..tables };
    tables.set_unlimited();
    let client = in_process_clients(&tables.connection()).dynamodb;
    let table = TableEngine::new(&client, config());
    ours(&table, &item(0)).await;
    table.finish_background_work().await;
    let (mut of_bare, mut warm, mut cold, mut cold_reads) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 1..400 {
        let begun = Instant::now();
        bare(&client, number).await;
        of_bare.push(begun.elapsed());
        let item = item(number);
        let begun = Instant::now();
        ours(&table, &item).await;
        warm.push(begun.elapsed());
        let unseen = Item { partition_key: partition_key(&format!("unseen-{number}")), ..item };
        let begun = Instant::now();
        ours(&table, &unseen).await;
        cold.push(begun.elapsed());
        table.finish_background_work().await;
        let never = partition_key(&format!("never-{number}"));
        let begun = Instant::now();
        let read = table.get(&never, &unseen.sort_key, true, soon()).await;
        cold_reads.push(begun.elapsed());
        assert!(read.expect("read").is_none());
    }
    let [bare, warm, cold, reads] = [of_bare, warm, cold, cold_reads].map(crate::median);
    println!("latency with {:?} service time, medians in ms", crate::SERVICE_TIME);
    println!(
        "  bare PutItem {bare:.2}; a write of a warm key {warm:.2}: {:.2} (target 1.05)",
        warm / bare
    );
    println!(
        "  a write of a key never seen {cold:.2}: {:.2}; a read of one {reads:.2}: {:.2} (one round trip each)",
        cold / bare,
        reads / bare
    );
}
