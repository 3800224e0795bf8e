//! A consumer of the table's stream: an event of Lambda goes in, and each user's change comes out
//! as a line.
//!
//! `cargo run -p dynamodb-write-sharding-stream --example stream_consumer events/stream-metadata-items.json < events/stream-dynamodb.json`
//!
//! The last line is the response: a partial batch response, so that Lambda delivers again from the
//! first record that failed. The file has the metadata items of the keys, as DynamoDB's JSON. A
//! function has a `ShardedTable` instead, and asks it for the widths of each key:
//! `table.maintenance().width_history(key).await`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it does")]

use std::collections::HashMap;
use std::error::Error;

use dynamodb_write_sharding_stream::{
    Decoded, PartitionKey, StreamDecoder, TableConfig, WidthHistory, failed_items, item_identifier,
    width_history,
};
use serde_json::Value;

/// What a function keeps between its invocations.
struct Consumer {
    config: TableConfig,
    decoder: StreamDecoder,
    /// The metadata items by key, and when they were read.
    metadata: (HashMap<String, Value>, u64),
}

impl Consumer {
    /// Handles an event, and returns the response. It stops at the first record that fails: the
    /// ones after it would overtake it.
    fn handle(&self, event: &Value) -> Result<Value, Box<dyn Error>> {
        let records = event["Records"].as_array().ok_or("the event has no Records")?;
        for record in records {
            if let Err(error) = self.take(record) {
                // Where it has no name, an empty one makes Lambda deliver the whole batch again.
                let identifier = item_identifier(record).unwrap_or_default();
                eprintln!("record {identifier:?}: {error}");
                return Ok(failed_items([identifier]));
            }
        }
        Ok(failed_items([]))
    }

    fn take(&self, record: &Value) -> Result<(), Box<dyn Error>> {
        let Some(record) = self.decoder.read(record)? else { return Ok(()) };
        let widths = self.widths(&record.partition_key)?;
        match self.decoder.decode(record, &widths)? {
            Decoded::Internal => Ok(()),
            // A function stores the change, if its position is greater than the stored one.
            Decoded::Change(change) => {
                let kind = change.kind;
                let (key, sort_key) = (change.partition_key, change.sort_key);
                println!("{kind:?} {sort_key} of {key}, position {}", change.position);
                Ok(())
            }
            // A function reads the item now, and takes the change if there is none.
            Decoded::Ambiguous(change) => {
                let kind = change.kind;
                Err(format!("a {kind:?} or none: the item must be read").into())
            }
            other => Err(format!("a later version of the decoder says {other:?}").into()),
        }
    }

    fn widths(&self, key: &PartitionKey) -> Result<WidthHistory, Box<dyn Error>> {
        let (items, read_at) = &self.metadata;
        Ok(match items.get(key.as_str()) {
            Some(item) => width_history(item, *read_at)?,
            None => WidthHistory::never_grown(&self.config, *read_at),
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = TableConfig::new("items", "items-metadata");
    config.ttl_attribute = Some("expires".to_owned());
    let items: Vec<Value> = match std::env::args().nth(1) {
        Some(path) => serde_json::from_slice(&std::fs::read(path)?)?,
        None => Vec::new(),
    };
    let key = |item: &Value| item[&config.partition_key_name]["S"].as_str().map(str::to_owned);
    let by_key = items.into_iter().filter_map(|item| Some((key(&item)?, item))).collect();
    let decoder = StreamDecoder::new(config.clone());
    // The file is read now, so it is as new as any record.
    let consumer = Consumer { config, decoder, metadata: (by_key, u64::MAX) };
    let event = serde_json::from_reader(std::io::stdin())?;
    println!("{}", consumer.handle(&event)?);
    Ok(())
}
