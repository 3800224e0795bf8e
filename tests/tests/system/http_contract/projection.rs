//! `fields`, `count` and backward pages.

use serde_json::{Value, json};
use system_tests::config;

use super::{assert_problem, set_shards, start};

fn numbers(page: &Value) -> Vec<u64> {
    let items = page["items"].as_array().expect("items");
    items.iter().filter_map(|item| item["sort_key"].as_str()?.parse().ok()).collect()
}

#[tokio::test]
async fn fields_leave_out_the_other_attributes_of_items_and_pages() {
    let edition = start(config()).await;
    for shards in [1, 8] {
        set_shards(&edition, "k", shards).await;
        for number in 0..10 {
            let attributes = json!({"n": number, "filler": "x".repeat(4_000), "a.b": true, "deep": {"inner": number}});
            let item = json!({"partition_key": "k", "sort_key": number.to_string(), "attributes": attributes});
            assert_eq!(edition.post("/items", &item).await.status, 201);
        }
        let whole = edition.text("/items?partition_key=k&consistent=true").await;
        let of_fields = "/items?partition_key=k&consistent=true&fields=n,a.b,unknown";
        let page = edition.text(of_fields).await;
        assert!(page.len() * 20 < whole.len(), "{} of {} bytes", page.len(), whole.len());
        let [whole, page] =
            [whole, page].map(|text| serde_json::from_str::<Value>(&text).expect("JSON"));
        assert_eq!(page["consumed_capacity"], whole["consumed_capacity"], "the same units");
        for (number, item) in page["items"].as_array().expect("items").iter().enumerate() {
            let expected = json!({"partition_key": "k", "sort_key": number.to_string(), "attributes": {"n": number, "a.b": true}});
            assert_eq!(*item, expected);
        }
        let one = edition.get("/item?partition_key=k&sort_key=3&fields=deep&consistent=true").await;
        assert_eq!(one.body["attributes"], json!({"deep": {"inner": 3}}));
        let all = edition.get("/item?partition_key=k&sort_key=3&consistent=true").await;
        assert_eq!(one.headers["etag"], all.headers["etag"]);
    }
    for (fields, about) in [
        ("", "empty"),
        ("n,", "an empty name"),
        ("n,n", "twice"),
        ("_sh:v", "reserved"),
        ("sort_key", "a key"),
    ] {
        for path in ["/items?partition_key=k", "/item?partition_key=k&sort_key=3"] {
            let response = edition.get(&format!("{path}&fields={fields}")).await;
            assert_problem(&response, 400, "invalid_parameter", Some("fields"), about);
        }
    }
}

#[tokio::test]
async fn items_are_counted_in_pages() {
    let edition = start(config()).await;
    for shards in [1, 8] {
        set_shards(&edition, "k", shards).await;
        for number in 0..25 {
            let item = json!({"partition_key": "k", "sort_key": format!("{number:02}"), "attributes": {"filler": "x".repeat(500)}});
            assert_eq!(edition.post("/items", &item).await.status, 201);
        }
        let path = "/item?partition_key=k&sort_key=07";
        assert_eq!(edition.send("DELETE", path, &[], None).await.status, 204);
        let counting = "/items?partition_key=k&count=true&consistent=true";
        let all = edition.get(counting).await.body;
        let expected = (&json!(24), &Value::Null, &Value::Null);
        assert_eq!((&all["count"], &all["cursor"], &all["items"]), expected, "{all}");
        let range = edition.get(&format!("{counting}&from=05&to=09")).await.body;
        assert_eq!(range["count"], 4);
        let (mut counted, mut cursor) = (0, String::new());
        loop {
            let page = edition.get(&format!("{counting}&limit=10{cursor}")).await.body;
            counted += page["count"].as_u64().expect("a count");
            let Some(next) = page["cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(counted, 24);
    }
    for (parameters, field) in
        [("&fields=n", "fields"), ("&limit=1001", "limit"), ("&limit=0", "limit")]
    {
        let response = edition.get(&format!("/items?partition_key=k&count=true{parameters}")).await;
        assert_problem(&response, 400, "invalid_parameter", Some(field), parameters);
    }
}

#[tokio::test]
async fn pages_go_back_the_way_they_came() {
    let edition = start(config()).await;
    for number in 10..35 {
        let item = json!({"partition_key": "k", "sort_key": number.to_string(), "attributes": {}});
        assert_eq!(edition.post("/items", &item).await.status, 201);
    }
    for shards in [1, 8] {
        set_shards(&edition, "k", shards).await;
        for parameters in
            ["&limit=7", "&limit=5&order=desc", "&limit=4&from=13&to=29", "&limit=6&prefix=2"]
        {
            let path = format!("/items?partition_key=k&consistent=true{parameters}");
            let page = async |cursor: &str| {
                let response = edition.get(&format!("{path}&cursor={cursor}")).await;
                assert_eq!(response.status, 200, "{}", response.body);
                response.body
            };
            let (items, _) = edition.read_all("k", &format!("&consistent=true{parameters}")).await;
            let all = numbers(&json!({ "items": items }));
            let mut at = edition.get(&path).await.body;
            assert_eq!(at["previous"], Value::Null, "no page precedes the first one");
            while let Some(next) = at["cursor"].as_str() {
                at = page(next).await;
            }
            // The last page may have no items.
            let before_last = &all[..all.len() - numbers(&at).len()];
            let mut back = Vec::new();
            while let Some(previous) = at["previous"].as_str() {
                at = page(previous).await;
                back.splice(0..0, numbers(&at));
            }
            let about = format!("{parameters}, {shards} shards: each once, in the same order");
            assert_eq!(back, before_last, "{about}");
            if let Some(next) = at["cursor"].as_str() {
                let again = numbers(&page(next).await);
                assert_eq!(again.first(), all.get(numbers(&at).len()), "forwards again");
            }
        }
    }
    let first = edition.get("/items?partition_key=k&limit=7").await.body;
    let cursor = first["cursor"].as_str().expect("more");
    let second = edition.get(&format!("/items?partition_key=k&limit=7&cursor={cursor}")).await.body;
    let previous = second["previous"].as_str().expect("the first page");
    for parameters in ["&order=desc", "&from=12", "&prefix=1", "&count=true"] {
        let path = format!("/items?partition_key=k{parameters}&cursor={previous}");
        let response = edition.get(&path).await;
        assert_problem(&response, 400, "invalid_cursor", Some("cursor"), parameters);
    }
}
