//! The DynamoDB port, as a program sees it that expects DynamoDB: headers and ARNs.

use std::collections::HashSet;

use local::ServeOptions;
use serde_json::{Value, json};
use system_tests::{TestEdition, config};

/// A caller of the port. One without a region does not sign.
struct Caller<'a> {
    edition: &'a TestEdition,
    region: Option<&'a str>,
}

impl Caller<'_> {
    async fn send(&self, target: &str, body: &Value) -> reqwest::Response {
        let request = reqwest::Client::new().post(self.edition.dynamodb_url());
        let mut request = request.header("x-amz-target", target).body(body.to_string());
        if let Some(region) = self.region {
            let scope = format!("KEY/20261124/{region}/dynamodb/aws4_request");
            let signed =
                format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0");
            request = request.header("authorization", signed);
        }
        request.send().await.expect("the port responds")
    }

    async fn ask(&self, target: &str, body: Value) -> Value {
        let response = self.send(target, &body).await;
        let (status, body) = (response.status(), response.json().await.expect("JSON"));
        assert_eq!(status, 200, "{target}: {body}");
        body
    }

    async fn dynamodb(&self, operation: &str, body: Value) -> Value {
        self.ask(&format!("DynamoDB_20120810.{operation}"), body).await
    }

    async fn streams(&self, operation: &str, body: Value) -> Value {
        self.ask(&format!("DynamoDBStreams_20120810.{operation}"), body).await
    }
}

fn table(name: &str) -> Value {
    json!({
        "TableName": name,
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "BillingMode": "PAY_PER_REQUEST",
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"},
        "GlobalSecondaryIndexes": [{
            "IndexName": "by-pk",
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "ALL"},
        }],
    })
}

#[tokio::test]
async fn each_response_has_a_request_id_of_its_own() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let caller = Caller { edition: &edition, region: None };
    let mut responses = Vec::new();
    for target in ["ListTables", "ListTables", "NoSuchOperation", "DescribeTable"] {
        responses.push(caller.send(&format!("DynamoDB_20120810.{target}"), &json!({})).await);
    }
    responses.push(reqwest::get(edition.dynamodb_url()).await.expect("the port responds"));
    let id = |response: &reqwest::Response| response.headers().get("x-amzn-requestid").cloned();
    let ids: HashSet<_> = responses.iter().map(|it| id(it).expect("a request id")).collect();
    assert_eq!(ids.len(), responses.len(), "{ids:?}");
    edition.stop().await;
}

#[tokio::test]
async fn arns_name_the_region_of_the_caller() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    for region in ["eu-west-1", "us-east-1"] {
        let caller = Caller { edition: &edition, region: Some(region) };
        let names = [format!("{region}-a"), format!("{region}-b")];
        let mut streams = Vec::new();
        for name in &names {
            caller.dynamodb("CreateTable", table(name)).await;
            let described = caller.dynamodb("DescribeTable", json!({"TableName": name})).await;
            let arn = format!("arn:aws:dynamodb:{region}:000000000000:table/{name}");
            let table = &described["Table"];
            assert_eq!(table["TableArn"], arn);
            let index = &table["GlobalSecondaryIndexes"][0];
            assert_eq!(index["IndexArn"], format!("{arn}/index/by-pk"));
            let stream = table["LatestStreamArn"].as_str().expect("an ARN").to_owned();
            assert!(stream.starts_with(&format!("{arn}/stream/")), "{stream}");
            streams.push(stream);
            // A request accepts the ARN instead of the name.
            caller.dynamodb("ListTagsOfResource", json!({"ResourceArn": arn})).await;
            let item = json!({"pk": {"S": "k"}, "itsArn": {"S": "arn:aws:dynamodb:dynoxide:1:x"}});
            caller.dynamodb("PutItem", json!({"TableName": name, "Item": item})).await;
        }
        let [first, second] = &streams[..] else { panic!("two streams: {streams:?}") };
        let rest = caller.streams("ListStreams", json!({"ExclusiveStartStreamArn": first})).await;
        assert_eq!(rest["Streams"][0]["StreamArn"], *second, "{rest}");

        let described = caller.streams("DescribeStream", json!({"StreamArn": second})).await;
        let shard = &described["StreamDescription"]["Shards"][0]["ShardId"];
        let from =
            json!({"StreamArn": second, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"});
        let iterator = caller.streams("GetShardIterator", from).await["ShardIterator"].take();
        let read = caller.streams("GetRecords", json!({"ShardIterator": iterator})).await;
        let record = &read["Records"][0];
        assert_eq!(record["awsRegion"], region, "{read}");
        let own = &record["dynamodb"]["NewImage"]["itsArn"]["S"];
        assert_eq!(own, "arn:aws:dynamodb:dynoxide:1:x", "a user's data stays as it is");
    }
    edition.stop().await;
}
