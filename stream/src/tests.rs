//! The sample events, and single records that are decided in each way.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::*;
use crate::record::{DynamoItem, parse};
use sharding_core::internal::dynamo::{from_dynamo, into_dynamo};
use sharding_core::internal::{protocol::history::ShardHistory, protocol::metadata::ShardMetadata};
use sharding_core::{PartitionKey, Placement, ShardCount, SortKey, TableConfig, Version, Writes};

/// When the key of the sample events got its second shard.
const GROWN_AT: u64 = 1_700_000_000;
const HOUR: u64 = 3_600;

fn event(name: &str) -> Json {
    let path = format!("{}/../events/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).expect("a sample event")).expect("JSON")
}

fn sample(name: &str) -> Vec<Json> {
    event(name)["Records"].as_array().expect("records").clone()
}

fn config() -> TableConfig {
    let config = TableConfig::new("items", "items-metadata");
    config.with(|config| config.ttl_attribute = Some("expires".into()))
}

fn decode(record: &Json) -> Result<Decoded, StreamError> {
    let item = &event("stream-metadata-items")[0];
    let widths = width_history(item, GROWN_AT + HOUR).expect("a metadata item");
    decode_with(&config(), record, &widths)
}

fn decode_with(
    config: &TableConfig,
    record: &Json,
    widths: &WidthHistory,
) -> Result<Decoded, StreamError> {
    let decoder = StreamDecoder::new(config.clone());
    let Some(record) = decoder.read(record)? else { return Ok(Decoded::Internal) };
    decoder.decode(record, widths)
}

/// One word for each record.
fn said(decoded: &Decoded) -> String {
    let kind = |change: &Change| format!("{:?}", change.kind).to_lowercase();
    match decoded {
        Decoded::Change(change) => format!("{} {}", kind(change), change.sort_key),
        Decoded::Internal => "internal".to_owned(),
        Decoded::Ambiguous(change) => format!("{}?", kind(change)),
    }
}

#[test]
fn the_changes_of_users_are_told_from_what_a_drain_does() {
    let decoded: Vec<Decoded> =
        sample("stream-dynamodb").iter().map(|record| decode(record).unwrap()).collect();
    let decoded_as: Vec<String> = decoded.iter().map(said).collect();
    let expected = [
        "put order-1141",
        "put order-1140",
        "put order-1141",
        "delete order-1140",
        "put order-1143",
        "delete order-1143",
        // An item is copied, two originals are removed, and a tombstone.
        "internal",
        "internal",
        "internal",
        "internal",
        "put order-1142",
        "expiry order-1142",
        "delete order-1141",
    ];
    assert_eq!(decoded_as, expected);
    let Decoded::Change(replaced) = &decoded[2] else { panic!("{:?}", decoded[2]) };
    let fruit = |item: &Option<sharding_core::Item>| {
        format!("{:?}", *item.as_ref().expect("an image").attributes)
    };
    assert_eq!(fruit(&replaced.old), r#"{"fruit": S("grape"), "kg": N("2.50")}"#);
    assert_eq!(fruit(&replaced.new), r#"{"fruit": S("plum")}"#, "without the product's attributes");
    let Decoded::Change(buried) = &decoded[5] else { panic!("{:?}", decoded[5]) };
    // What was deleted stood on another shard.
    assert_eq!((&buried.old, &buried.new), (&None, &None));
}

#[test]
fn a_kinesis_stream_gives_the_same_changes_though_reordered() {
    // The last position of each item.
    let mut positions: BTreeMap<SortKey, Option<Position>> = BTreeMap::new();
    let mut decoded_as = Vec::new();
    for record in sample("stream-kinesis") {
        if let Decoded::Change(change) = decode(&record).unwrap() {
            let said = said(&Decoded::Change(change.clone()));
            let last = positions.entry(change.sort_key).or_default();
            let position = Some(change.position);
            let is = if position > *last { "new" } else { "late" };
            *last = position.max(last.take());
            decoded_as.push(format!("{is}: {said}"));
        }
    }
    let expected = [
        "new: put order-1140",
        "new: put order-1141",
        "late: put order-1141",
        "new: delete order-1140",
        "late: delete order-1140",
        "new: put order-1143",
        "new: delete order-1143",
        "new: put order-1142",
        "new: expiry order-1142",
        "new: delete order-1141",
    ];
    assert_eq!(decoded_as, expected);
}

#[test]
fn the_time_of_a_record_is_read_in_its_precision() {
    let at = |time: Json| {
        let mut record = sample("stream-dynamodb").swap_remove(0);
        record["dynamodb"]["ApproximateCreationDateTime"] = time;
        match StreamDecoder::new(config()).read(&record) {
            Ok(Some(record)) => Ok(record.at.as_micros()),
            Ok(None) => panic!("it is about an item"),
            Err(error) => Err(error.to_string()),
        }
    };
    let rows = [
        (json!(1_700_000_000), 1_700_000_000_000_000),
        (json!(1_700_000_000.0), 1_700_000_000_000_000),
        (json!(1_700_000_000_123u64), 1_700_000_000_123_000),
        (json!(1_700_000_000_123_456u64), 1_700_000_000_123_456),
    ];
    for (time, micros) in rows {
        assert_eq!(at(time.clone()), Ok(micros), "{time}");
    }
    for time in [json!(-1), json!("1700000000"), json!(1e300), Json::Null] {
        let error = at(time).unwrap_err();
        assert!(error.starts_with("dynamodb.ApproximateCreationDateTime "), "{error}");
    }
}

#[test]
fn a_stream_without_both_images_is_refused_by_name() {
    let error = decode(&sample("stream-keys-only")[0]).unwrap_err().to_string();
    let expected =
        "dynamodb.StreamViewType is \"KEYS_ONLY\"; the stream must have NEW_AND_OLD_IMAGES";
    assert_eq!(error, expected);
}

#[test]
fn the_metadata_table_has_no_changes() {
    let keys = json!({"partition_key": {"S": "_sharding:page:0:0"}});
    let page = json!({"eventName": "MODIFY", "dynamodb": {"Keys": keys}});
    for record in [page, sample("stream-metadata-table").swap_remove(0)] {
        assert_eq!(decode(&record), Ok(Decoded::Internal), "{record}");
    }
}

#[test]
fn what_is_wrong_with_a_record_is_named() {
    let whole = sample("stream-dynamodb").swap_remove(2);
    let with = |pointer: &str, value: Json| {
        let mut record = whole.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        record.pointer_mut(parent).expect("it is there")[name] = value;
        decode(&record).unwrap_err().to_string()
    };
    // The place that is changed, and what follows it in the message.
    let rows = [
        ("/eventName", json!("UPSERT"), " is \"UPSERT\"; expected INSERT, MODIFY or REMOVE"),
        ("/eventName", Json::Null, " is missing"),
        ("/dynamodb/Keys", Json::Null, " is missing"),
        ("/dynamodb/Keys/partition_key", json!({"N": "1"}), " is missing or is not a string"),
        (
            "/dynamodb/Keys/sort_key",
            json!({"S": ""}),
            " is no sort key: it is empty; a key has at least one byte",
        ),
        (
            "/dynamodb/NewImage/_sh:v",
            json!({"N": "-5"}),
            " is not a version: a whole number of at most 38 digits",
        ),
        ("/dynamodb/SequenceNumber", json!("first"), " is not a number of 1 to 40 digits"),
        (
            "/eventSourceARN",
            json!("arn:aws:dynamodb:eu-west-1:123456789012:table/others/stream/x"),
            " names the table \"others\"; this decoder is for \"items\"",
        ),
    ];
    for (pointer, value, problem) in rows {
        let (message, field) = (with(pointer, value), pointer[1..].replace('/', "."));
        assert_eq!(message, field + problem, "{pointer}");
    }
    let inside = with("/dynamodb/NewImage/fruit", json!({"X": "plum"}));
    assert_eq!(inside, "dynamodb.NewImage.fruit is not in DynamoDB's JSON");
    let images = "dynamodb does not have the images of the event";
    assert_eq!(with("/eventName", json!("INSERT")), format!("{images} INSERT"));
    assert_eq!(with("/dynamodb/NewImage", Json::Null), format!("{images} MODIFY"));
    let other = "dynamodb.Keys.partition_key is no shard of \"2014-07-10\", which _sh:k names";
    assert_eq!(with("/dynamodb/NewImage/_sh:k", json!({"S": "2014-07-10"})), other);
    let of_kinesis =
        |data: &str| decode(&json!({"kinesis": {"data": data}})).unwrap_err().to_string();
    assert_eq!(of_kinesis("%"), "kinesis.data is not base64");
    assert!(of_kinesis("e30x").starts_with("kinesis.data is not JSON: "));
    assert_eq!(of_kinesis("e30="), "kinesis.data.dynamodb.Keys is missing");
    for record in ["null", "7", "[]", "{}", r#"{"dynamodb": "x"}"#, r#"{"kinesis": []}"#] {
        let decoded = decode(&serde_json::from_str(record).unwrap());
        assert!(matches!(decoded, Err(StreamError::Field { .. })), "{record}");
    }
}

/// A record of one item: the shard that it is on, when, and what was and is there.
fn record(shard: u32, sort_key: &str, at: u64, old: Option<Json>, new: Option<Json>) -> Json {
    let stored = if shard == 1 { "orders".to_owned() } else { format!("orders\u{1f}s{shard}") };
    let keys = json!({"partition_key": {"S": stored}, "sort_key": {"S": sort_key}});
    let name = match (&old, &new) {
        (None, _) => "INSERT",
        (Some(_), Some(_)) => "MODIFY",
        (Some(_), None) => "REMOVE",
    };
    let whole = |image: Option<Json>| {
        let mut whole = keys.clone();
        whole.as_object_mut().unwrap().extend(image?.as_object()?.clone());
        Some(whole)
    };
    json!({"eventName": name, "dynamodb": {
        "ApproximateCreationDateTime": at, "Keys": keys, "SequenceNumber": "100000000000000000000",
        "OldImage": whole(old), "NewImage": whole(new)}})
}

fn insert(shard: u32, sort_key: &str, at: u64, new: Json) -> Json {
    record(shard, sort_key, at, None, Some(new))
}

fn remove(shard: u32, sort_key: &str, at: u64, old: Json) -> Json {
    record(shard, sort_key, at, Some(old), None)
}

fn version(era: u64, clock: u64) -> Json {
    image(Version::new(era, clock * 1_000_000, 1))
}

fn image(version: Version) -> Json {
    json!({"_sh:k": {"S": "orders"}, "_sh:v": {"N": version.to_string()}})
}

/// Of a key that grew to two shards at 10,000 and to eight at 100,000.
fn grown_twice(settled: bool, read_at: u64) -> WidthHistory {
    let entries: &[&str] = if settled { &["100000:8"] } else { &["9998:1", "10000:2", "100000:8"] };
    let metadata = ShardMetadata {
        number_of_shards: ShardCount::new(8).unwrap(),
        era: 3,
        last_updated: 100_000,
        shard_history: ShardHistory::parse(entries.iter().copied()).unwrap(),
        settled,
        drained_at: settled.then_some(102_000),
        ..ShardMetadata::unregistered()
    };
    WidthHistory::of(&metadata, read_at)
}

/// What is said of a record of the key that grew twice.
fn said_of(record: &Json) -> String {
    said(&decode_with(&config(), record, &grown_twice(false, 101_500)).unwrap())
}

/// A sort key whose homes under one, two and eight shards are these.
fn with_homes(homes: [u32; 3]) -> String {
    let key = PartitionKey::new("orders").unwrap();
    let home = |text: &str, width| {
        let sort_key = SortKey::parse(SortKeyType::String, text).unwrap();
        let home = Placement::Calculated.home(&key, &sort_key, ShardCount::new(width).unwrap());
        home.map(|shard| shard.get())
    };
    let has = |text: &String| {
        [1, 2, 8].into_iter().zip(homes).all(|(width, at)| home(text, width) == Some(at))
    };
    (0..10_000).map(|n| format!("order-{n}")).find(has).expect("there is one")
}

#[test]
fn a_record_is_judged_by_the_width_of_eight_minutes_before() {
    let (stays, goes) = (with_homes([1, 1, 1]), with_homes([1, 2, 5]));
    let insert = |shard, sort_key: &str, era, at| insert(shard, sort_key, at, version(era, 5_000));
    let remove = |shard, sort_key: &str, era, at| remove(shard, sort_key, at, version(era, 5_000));
    let rows = [
        (insert(1, &goes, 1, 9_000), "put"),
        // The open was a moment ago; or by the clock of the table, not yet.
        (insert(1, &goes, 1, 10_060), "put"),
        (insert(2, &goes, 2, 10_060), "put"),
        (insert(2, &goes, 2, 9_970), "put"),
        // A copy of an earlier era at the new home, by a drain; or by a write that needs it there,
        // as soon as the era begins.
        (insert(2, &goes, 1, 11_000), "internal"),
        (insert(2, &goes, 1, 10_010), "internal"),
        // At a home of its era that is home again.
        (insert(1, &stays, 1, 11_000), "internal"),
        (insert(1, &stays, 2, 11_000), "put"),
        (remove(1, &goes, 1, 9_000), "delete"),
        (remove(1, &goes, 1, 10_060), "delete"),
        (remove(1, &goes, 1, 11_100), "internal"),
        (remove(2, &goes, 1, 11_200), "delete"),
        (remove(1, &stays, 1, 11_200), "delete"),
        // A drain goes on up to the next change, and its last removals count to its era.
        (remove(1, &goes, 1, 100_005), "internal"),
        (remove(2, &goes, 2, 100_005), "delete"),
        (remove(2, &goes, 2, 101_500), "internal"),
        (remove(5, &goes, 3, 101_500), "delete"),
    ];
    for (record, expected) in rows {
        assert_eq!(said_of(&record).split(' ').next(), Some(expected), "{record}");
    }
}

#[test]
fn an_addition_in_place_is_a_change_and_a_mark_is_none() {
    let stays = with_homes([1, 1, 1]);
    let old = Version::new(1, 5_000_000_000, 1);
    let (plain, added) = (image(old), image(old.stepped()));
    let moved = image(old.stepped().stepped());
    let mut marked = plain.clone();
    marked["_sh:l"] = json!({"N": "961"});
    let mut edited = marked.clone();
    edited["text"] = json!({"S": "another program's"});
    for (old, new, expected) in [
        (&plain, &added, "put"),
        (&plain, &moved, "internal"),
        (&plain, &marked, "internal"),
        (&marked, &marked, "internal"),
        (&marked, &edited, "put"),
        (&plain, &plain, "put"),
    ] {
        let modify = record(1, &stays, 11_000, Some(old.clone()), Some(new.clone()));
        assert_eq!(said_of(&modify).split(' ').next(), Some(expected), "{modify}");
    }
}

#[test]
fn a_consumer_behind_a_drain_is_told_what_is_not_certain() {
    let goes = with_homes([1, 2, 5]);
    let widths = grown_twice(true, 103_000);
    let mut ended = version(2, 5_000);
    ended["expires"] = json!({"N": "98000"});
    let rows = [
        (insert(2, &goes, 99_000, version(2, 5_000)), "put order"),
        (insert(2, &goes, 99_000, version(1, 5_000)), "put?"),
        (remove(2, &goes, 99_000, version(2, 5_000)), "delete?"),
        // It had expired, and DynamoDB did not remove it.
        (remove(2, &goes, 99_000, ended), "delete?"),
    ];
    for (record, expected) in rows {
        let decoded_as = said(&decode_with(&config(), &record, &widths).unwrap());
        assert!(decoded_as.starts_with(expected), "{decoded_as}");
    }
}

#[test]
fn widths_that_were_read_too_long_before_the_record_are_refused() {
    let widths = WidthHistory::never_grown(&config(), 50_000);
    let at = |at| decode_with(&config(), &insert(1, "a", at, version(1, at)), &widths);
    assert!(at(50_240).is_ok());
    assert_eq!(at(50_241), Err(StreamError::WidthsTooOld { at: 50_241, read_at: 50_000 }));
}

#[test]
fn an_expired_copy_left_by_a_width_change_may_be_the_item() {
    let mut old = version(1, 5_000);
    old["expires"] = json!({"N": "11000"});
    let mut removed = remove(1, &with_homes([1, 2, 5]), 11_100, old);
    // A drain does not bring home what has expired.
    assert_eq!(said_of(&removed), "expiry?");
    removed["userIdentity"] = json!({"type": "Service", "principalId": "dynamodb.amazonaws.com"});
    assert_eq!(said_of(&removed), "expiry?");
}

#[test]
fn in_a_table_that_takes_appends_the_age_of_a_copy_tells_a_move() {
    let config = config().with(|config| {
        (config.writes, config.placement) = (Writes::Appends, Placement::Random);
    });
    let of_clock = |clock: u64| image(Version::new(0, clock * 1_000_000, 7));
    let lowest = || image(Version::LOWEST);
    let rows = [
        (insert(3, "a", 101_001, of_clock(101_000)), false, "put a"),
        (insert(3, "a", 101_100, of_clock(100_000)), false, "internal"),
        (insert(3, "a", 101_000, lowest()), false, "put a"),
        (insert(3, "a", 101_000, lowest()), true, "put?"),
        (remove(3, "a", 101_000, version(0, 9)), false, "internal"),
    ];
    for (record, settled, expected) in rows {
        let decoded = decode_with(&config, &record, &grown_twice(settled, 101_000)).unwrap();
        assert_eq!(said(&decoded), expected, "{record}");
    }
}

#[test]
fn another_programs_item_has_no_version_until_it_moves() {
    let never = WidthHistory::never_grown(&config(), 100_000);
    let (grown, moves) = (grown_twice(false, 101_500), with_homes([1, 2, 2]));
    let text = || json!({"text": {"S": "x"}});
    let kept = || Some(version(1, 5));
    let rows = [
        (insert(1, "a", 10_000, text()), &never, "put a"),
        (remove(1, "a", 10_000, text()), &never, "delete a"),
        // The other program has changed an attribute, and left the version.
        (record(1, "a", 90_000, kept(), kept()), &never, "put a"),
        (insert(2, &moves, 101_000, image(Version::ADOPTED)), &grown, "internal"),
        (remove(1, &moves, 101_000, text()), &grown, "internal"),
        (insert(2, "a", 10_000, text()), &never, "internal"),
    ];
    for (record, widths, expected) in rows {
        let decoded = decode_with(&config(), &record, widths).unwrap();
        assert_eq!(said(&decoded), expected, "{record}");
        if let Decoded::Change(change) = decoded
            && record["eventName"] != "MODIFY"
        {
            assert_eq!(change.version, None);
        }
    }
}

#[test]
fn a_change_has_the_version_position_and_time_of_its_record() {
    let Decoded::Change(change) = decode(&sample("stream-dynamodb")[2]).unwrap() else {
        panic!("a change")
    };
    assert_eq!(change.version.unwrap().to_string(), "1001699999500000000000000001");
    let position = "00000000001-0000000000000000000100000000000000000003";
    assert_eq!(change.position.to_string(), position);
    assert_eq!(change.at.as_secs(), 1_699_999_500);
}

#[test]
fn what_is_read_from_json_is_written_back() {
    let image = json!({
        "text": {"S": ""}, "number": {"N": "-1.50"}, "bytes": {"B": "AAEC"},
        "flag": {"BOOL": false}, "none": {"NULL": true}, "texts": {"SS": ["a", "b"]},
        "numbers": {"NS": ["1", "2"]}, "binaries": {"BS": ["AA==", "AQ=="]},
        "map": {"M": {"S": {"M": {}}, "list": {"L": [{"L": []}, {"S": "x"}]}}},
    });
    let item: DynamoItem = parse(&image).unwrap();
    let same = item.into_iter().map(|(name, value)| (name, into_dynamo(from_dynamo(value))));
    assert_eq!(json!(same.collect::<DynamoItem>()), image);
}

#[test]
fn what_is_wrong_is_named_with_the_way_to_it() {
    let nested = json!({"M": {"b": {"L": [{"S": "x"}, {"N": 7}]}}});
    let rows = [
        (nested, "a.M.b.L[1].N"),
        (json!({"B": "%"}), "a"),
        (json!({"BOOL": "true"}), "a.BOOL"),
        (json!({"SS": ["x", 1]}), "a.SS[1]"),
        (json!({"V": "x"}), "a"),
        (json!({}), "a"),
        (json!({"S": "x", "N": "1"}), "a"),
        (json!("x"), "a"),
    ];
    let why = |image: &Json| parse::<DynamoItem>(image).unwrap_err().to_string();
    let problem = "is not in DynamoDB's JSON";
    for (value, field) in rows {
        assert_eq!(why(&json!({ "a": value })), format!("{field} {problem}"));
    }
    assert_eq!(why(&json!([])), format!("it {problem}"));
}

#[test]
fn a_failed_record_is_named_to_lambda() {
    let of_kinesis = json!({"kinesis": {"sequenceNumber": "495"}});
    let records = [json!({"dynamodb": {"SequenceNumber": "111"}}), of_kinesis, json!({})];
    let identifiers: Vec<Option<&str>> = records.iter().map(item_identifier).collect();
    assert_eq!(identifiers, [Some("111"), Some("495"), None]);
    assert_eq!(failed_items([]), json!({"batchItemFailures": []}));
    let one = json!({"batchItemFailures": [{"itemIdentifier": "111"}]});
    assert_eq!(failed_items(["111"]), one);
}
