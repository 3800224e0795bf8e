//! Scans of a table with keys that have several shards.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cases::{keyed, leaks};
use crate::world::{SHARDED, World, joined, together};

const ITEMS: u32 = 12;
/// Keys that have several shards when a scan begins, in the order in which it shows them.
const GROWN: [&str; 3] = ["a", "c", "e"];
/// The others.
const COLD: [&str; 3] = ["b", "d", "f"];

async fn put(world: &World, key: &str, number: u32) {
    let item = keyed(key, &format!("{number:03}"), &json!({ "n": {"N": number.to_string()} }));
    world.done("PutItem", &json!({ "Item": item })).await;
}

/// Items from before and after a growth, a tombstone and an older copy for each grown key.
async fn filled() -> World {
    let world = World::new(true).await;
    for key in GROWN.into_iter().chain(COLD) {
        for number in 0..=ITEMS / 2 {
            put(&world, key, number).await;
        }
    }
    tokio::join!(world.grow("a", 4), world.grow("c", 2), world.grow("e", 8));
    for key in GROWN.into_iter().chain(COLD) {
        for number in [0].into_iter().chain(ITEMS / 2..=ITEMS) {
            put(&world, key, number).await;
        }
        let last = keyed(key, &format!("{ITEMS:03}"), &json!({}));
        world.done("DeleteItem", &json!({ "Key": last })).await;
    }
    world
}

/// A page, and where the scan goes on.
async fn page(world: &World, scan: &Value, start: Option<Value>) -> (Value, Option<Value>) {
    let start = start.map_or_else(|| json!({}), |start| json!({ "ExclusiveStartKey": start }));
    let mut page = world.done("Scan", &together(&[scan, &start])).await;
    let next = page.as_object_mut().and_then(|page| page.remove("LastEvaluatedKey"));
    assert!(!leaks(&page), "{page}");
    (page, next)
}

/// The sort keys of each key in the order of the pages, and the keys in that order.
fn shown(pages: &[Value]) -> (BTreeMap<String, Vec<String>>, Vec<String>) {
    let (mut by_key, mut order) = (BTreeMap::<String, Vec<String>>::new(), Vec::new());
    for item in pages.iter().flat_map(|page| page["Items"].as_array().into_iter().flatten()) {
        let text = |name: &str| item[name]["S"].as_str().unwrap_or_default().to_owned();
        if order.last() != Some(&text("pk")) {
            order.push(text("pk"));
        }
        by_key.entry(text("pk")).or_default().push(text("sk"));
    }
    (by_key, order)
}

#[track_caller]
fn assert_each_item_once(pages: &[Value]) {
    let (by_key, _) = shown(pages);
    assert_eq!(by_key.len(), GROWN.len() + COLD.len());
    for (key, mut shown) in by_key {
        shown.sort();
        assert_eq!(shown, sort_keys(0..ITEMS), "{key}");
    }
}

fn sort_keys(numbers: impl Iterator<Item = u32>) -> Vec<String> {
    numbers.map(|number| format!("{number:03}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_shows_grown_keys_first_and_in_order() {
    let world = filled().await;
    let every = ["a", "b", "c", "d", "e", "f"].as_slice();
    let filter = |text: &str, value: Value| json!({ "FilterExpression": text, "ExpressionAttributeValues": { ":v": value } });
    // A filter, the keys of which it shows items, and the first item that it shows.
    let filters = [
        (json!({}), every, 0),
        (filter("n > :v", json!({"N": "3"})), every, 4),
        (filter("sk > :v", json!({"S": "003"})), every, 4),
        (filter("pk = :v", json!({"S": "c"})), &["c"], 0),
        (filter("(pk = :v) AND attribute_exists(sk)", json!({"S": "d"})), &["d"], 0),
    ];
    for (filter, keys, first) in filters {
        for limit in [None, Some(1), Some(5), Some(1_000)] {
            let limited = limit.map_or_else(|| json!({}), |limit: u64| json!({ "Limit": limit }));
            let mut scan = together(&[&json!({ "ConsistentRead": true }), &filter, &limited]);
            let pages = world.pages("Scan", SHARDED, &scan).await;
            let (by_key, order) = shown(&pages);
            let case = format!("{filter}, {limit:?}");
            for (key, shown) in &by_key {
                assert_eq!(*shown, sort_keys(first..ITEMS), "{case}: {key}");
            }
            assert_eq!(by_key.keys().collect::<Vec<_>>(), keys, "{case}");
            let grown: Vec<&str> = GROWN.into_iter().filter(|key| keys.contains(key)).collect();
            assert_eq!(order[..grown.len()], grown, "{case}");
            let full = pages.iter().filter(|page| limit == page["ScannedCount"].as_u64()).count();
            if let Some(limit @ (1 | 5)) = limit {
                let of_grown = u64::from(ITEMS) * GROWN.len() as u64 / limit;
                assert!(full as u64 >= of_grown, "{case}: {full} pages are full");
            }
            scan["Select"] = json!("COUNT");
            let counted = world.pages("Scan", SHARDED, &scan).await;
            assert_eq!(joined(&counted).1, joined(&pages).1, "{case}");
            assert!(counted.iter().all(|page| page.get("Items").is_none()), "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_shows_each_item_once_while_keys_grow() {
    let world = filled().await;
    let scan = json!({ "ConsistentRead": true, "Limit": 4 });
    let (mut pages, mut start) = (Vec::new(), None);
    // Two processes read the pages. The second one learns of the growths meanwhile.
    let mut worlds = [world.with_another_endpoint().await, world];
    loop {
        worlds.reverse();
        let [world, _] = &worlds;
        // One of the grown grows again, one of the others for the first time, and both are written.
        match pages.len() {
            3 => drop(tokio::join!(world.grow("c", 12), world.grow("d", 4))),
            4 | 8 | 12 => {
                for key in ["a", "c", "d"] {
                    for number in 0..ITEMS {
                        put(world, key, number).await;
                    }
                }
            }
            _ => {}
        }
        let (page, next) = page(world, &scan, start).await;
        pages.push(page);
        match next {
            Some(next) => start = Some(next),
            None => break,
        }
    }
    assert!(pages.len() > 12, "{} pages", pages.len());
    let [world, _] = &worlds;
    let (first, _) = page(world, &json!({ "Limit": 1 }), None).await;
    assert_eq!(first["Items"][0]["pk"], json!({"S": "a"}));
    assert_each_item_once(&pages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_may_begin_after_any_key() {
    let world = filled().await;
    let all = world.pages("Scan", SHARDED, &json!({ "ConsistentRead": true })).await;
    // A key that the client makes itself, of an item that is stored nowhere.
    let (_, next) = page(&world, &json!({ "Limit": 1 }), None).await;
    let mut between = next.expect("there is more");
    between["sk"] = json!({"S": "0055"});
    let (page_of, _) = page(&world, &json!({ "Limit": 1 }), Some(between)).await;
    assert_eq!(page_of["Items"][0]["sk"], json!({"S": "006"}));
    assert_eq!(page_of["Items"][0]["pk"], json!({"S": "a"}));
    // Without our mark, the scan goes on as DynamoDB's own does.
    let start = keyed("b", "000", &json!({}));
    let (native, _) = page(&world, &json!({ "ConsistentRead": true }), Some(start)).await;
    assert!(native["Count"].as_u64() < all[0]["Count"].as_u64(), "{native}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parallel_scan_shows_each_item_once() {
    let world = filled().await;
    let mut pages = Vec::new();
    for segment in 0..3 {
        let scan = json!({ "Segment": segment, "TotalSegments": 3, "Limit": 5 });
        pages.extend(world.pages("Scan", SHARDED, &scan).await);
    }
    assert_each_item_once(&pages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_that_is_wrong_is_refused_as_dynamodb_does() {
    let world = filled().await;
    for wrong in [
        json!({ "Limit": 0 }),
        json!({ "FilterExpression": "n >" }),
        json!({ "FilterExpression": "n > :absent" }),
        json!({ "FilterExpression": "" }),
        json!({ "Segment": 3, "TotalSegments": 3 }),
        json!({ "Select": "SPECIFIC_ATTRIBUTES" }),
        json!({ "ScanIndexForward": false }),
        json!({ "ExclusiveStartKey": "a" }),
    ] {
        world.refused("Scan", &wrong).await;
    }
}
