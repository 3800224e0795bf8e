//! Keys that are not armed: the bytes that reach DynamoDB are the client's, and so is the answer.

use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use bytes::Bytes;
use embedded_dynamodb::InProcess;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::world::{PLAIN, SHARDED, World};

/// A request as it left the endpoint: its target, its other headers, and its body.
type Recorded = (String, Vec<String>, Bytes);

#[derive(Debug, Clone)]
struct Recorder {
    inner: InProcess,
    recorded: Arc<Mutex<Vec<Recorded>>>,
}

impl HttpConnector for Recorder {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let headers = request.headers();
        let target = headers.get("x-amz-target").unwrap_or_default().to_owned();
        let names = headers.iter().map(|(name, _)| name.to_owned()).collect();
        let body = Bytes::copy_from_slice(request.body().bytes().unwrap_or_default());
        self.recorded.lock().expect("no panic").push((target, names, body));
        self.inner.call(request)
    }
}

/// One request of each operation on items, and of some on tables, with the odd spaces of a client.
fn requests(table: &str) -> Vec<(&'static str, String)> {
    let key = r#"{ "pk":{"S":"k"},  "sk":{"S":"s"} }"#;
    let item = r#"{"sk":{"S":"s"},"pk":{"S":"k"},"_version":{"N":"1"},"big":{"N":"1e40"}}"#;
    let named = format!(r#""TableName" : "{table}""#);
    let part = format!("{{{named},\"Key\":{key}}}");
    let query = r##""KeyConditionExpression":"#p=:k","ExpressionAttributeNames":{"#p":"pk"},
        "ExpressionAttributeValues":{":k":{"S":"k"}}"##;
    vec![
        ("PutItem", format!(r#"{{{named},"Item":{item}, "Expected":{{}} }}"#)),
        ("PutItem", format!(r#"{{{named},"Item":{{"sk":{{"S":"s"}},"pk":{{"S":"k"}}}}}}"#)),
        ("GetItem", format!(r#"{{ {named},"Key":{key},"ConsistentRead":true}}"#)),
        ("UpdateItem", format!(r#"{{{named},"Key":{key},"UpdateExpression":"SET a = sk"}}"#)),
        ("Query", format!("{{{named},{query}}}")),
        ("Scan", format!(r#"{{{named} , "Limit":5}}"#)),
        (
            "BatchWriteItem",
            format!(r#"{{"RequestItems":{{"{table}":[{{"DeleteRequest":{{"Key":{key}}}}}]}}}}"#),
        ),
        ("BatchGetItem", format!(r#"{{"RequestItems":{{"{table}":{{"Keys":[{key}]}}}}}}"#)),
        ("TransactWriteItems", format!(r#"{{"TransactItems":[{{"Delete":{part}}}]}}"#)),
        ("TransactGetItems", format!(r#"{{"TransactItems":[{{"Get":{part}}}]}}"#)),
        ("DeleteItem", format!(r#"{{{named},"Key":{key},"ReturnValues":"ALL_OLD"}}"#)),
        ("ExecuteStatement", format!(r#"{{"Statement":"SELECT * FROM \"{table}\""}}"#)),
        ("DescribeTable", format!("{{{named}}}")),
        ("ListTables", "{ }".to_owned()),
        ("NoSuchOperation", format!("{{{named}}}")),
        ("PutItem", "no JSON".to_owned()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn without_armed_keys_the_bytes_are_the_clients() {
    let world = World::new(false).await;
    let inner = InProcess::new(world.engine.clone());
    let recorder = Recorder { inner, recorded: Arc::default() };
    let world = world.through(recorder.clone()).await;
    let at_start = std::mem::take(&mut *recorder.recorded.lock().expect("no panic"));
    assert!(at_start.len() > 1, "{at_start:?}");
    for table in [SHARDED, PLAIN] {
        for (operation, body) in requests(table) {
            let target = format!("DynamoDB_20120810.{operation}");
            let headers = HeaderMap::from_iter(
                [
                    ("x-amz-target", target.as_str()),
                    ("content-type", "application/x-amz-json-1.0"),
                    ("user-agent", "a client"),
                    ("x-amz-meta", "kept"),
                    ("authorization", "AWS4-HMAC-SHA256 Credential=the client's"),
                    ("x-amz-date", "20200101T000000Z"),
                    ("connection", "keep-alive"),
                ]
                .map(|(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::try_from(value).expect("text"))
                }),
            );
            let reply = world.service.respond(&headers, Bytes::from(body.clone())).await;
            let sent = std::mem::take(&mut *recorder.recorded.lock().expect("no panic"));
            let [(sent_target, names, sent_body)] = &sent[..] else {
                panic!("{operation}: {} requests", sent.len());
            };
            assert_eq!((sent_target.as_str(), &sent_body[..]), (target.as_str(), body.as_bytes()));
            for kept in ["user-agent", "x-amz-meta", "content-type"] {
                assert!(names.iter().any(|name| name == kept), "{operation} lost {kept}");
            }
            let is_read = operation.starts_with("Get")
                || matches!(operation, "Query" | "Scan" | "ListTables" | "BatchGetItem");
            if is_read {
                let native = world.engine.respond("/", Some(&target), body.as_bytes());
                assert_eq!(reply.body, native.body, "{operation}");
            }
        }
    }
}
