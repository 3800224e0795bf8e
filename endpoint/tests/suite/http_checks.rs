//! The endpoint over HTTP: what it lets through, and how it stops.

use std::net::SocketAddr;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{Credentials, Region};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use endpoint::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::world::{SHARDED, World};

pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<std::io::Result<()>>,
}

impl Served {
    pub(crate) async fn end(self) {
        self.stop.send(()).expect("it runs");
        self.ended.await.expect("it ends").expect("without an error");
    }
}

pub(crate) async fn served(world: &World) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = Server::new(world.service.clone(), &["laptop.lan".to_owned()]);
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(server.serve(listener, async {
        let _ = stopped.await;
    }));
    Served { address, stop, ended }
}

/// Sends a request as it is, and returns the answer.
async fn sent(address: SocketAddr, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = head.replace('\n', "\r\n");
    let head = format!("{head}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.expect("sent");
    // A server that refuses does not read the body.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_must_be_for_this_machine_and_region() {
    let world = World::new(true).await;
    let served = served(&world).await;
    let signed = |region: &str| {
        format!(
            "authorization: AWS4-HMAC-SHA256 Credential=a/20260101/{region}/dynamodb/aws4_request, \
             SignedHeaders=host, Signature=0\n"
        )
    };
    let post = "POST / HTTP/1.1\n";
    let target = "x-amz-target: DynamoDB_20120810.ListTables\n";
    let (own, other) = (signed("local"), signed("eu-west-1"));
    let short = own.replace("a/20260101/local/dynamodb/aws4_request", "x");
    let of_another = own.replace("aws4_request", "e");
    let rows = [
        ("host: localhost\n", target, own.as_str(), "200"),
        ("host: 127.0.0.1:8000\n", target, &own, "200"),
        ("host: laptop.lan\n", target, &own, "200"),
        ("host: evil.example\n", target, &own, "403"),
        ("", target, &own, "403"),
        ("host: localhost\norigin: http://localhost\n", target, &own, "403"),
        ("host: localhost\n", "", &own, "UnknownOperationException"),
        ("host: localhost\n", target, "", "InvalidSignatureException"),
        ("host: localhost\n", target, &other, "eu-west-1"),
        ("host: localhost\n", target, "authorization: Bearer x\n", "InvalidSignatureException"),
        ("host: localhost\n", target, &short, "InvalidSignatureException"),
        ("host: localhost\n", target, &of_another, "InvalidSignatureException"),
    ];
    for (host, target, signature, expected) in rows {
        let answer = sent(served.address, &format!("{post}{host}{target}{signature}"), b"{}").await;
        assert!(answer.contains(expected), "{host}{target}{signature}: {answer}");
    }
    let health = sent(served.address, "GET / HTTP/1.1\nhost: localhost\n", b"").await;
    assert!(health.contains("healthy: dynamodb.local"), "{health}");
    let large = vec![b' '; 17 * 1_024 * 1_024];
    let head = format!("{post}host: localhost\n{target}{own}");
    let answer = sent(served.address, &head, &large).await;
    assert!(answer.is_empty() || answer.contains("413"), "{answer}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_for_rust_uses_a_key_that_grows_beside_idle_clients() {
    let world = World::new(true).await;
    let served = served(&world).await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(served.address).await.expect("a connection"));
    }
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version_latest()
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .region(Region::new("local"))
        .credentials_provider(Credentials::new("a", "b", None, None, "test"))
        .endpoint_url(format!("http://{}", served.address))
        .build();
    let client = Client::from_conf(config);
    let number = |n: u32| AttributeValue::N(n.to_string());
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let sort_key = |n: u32| AttributeValue::S(format!("{n:03}"));
    // The first item moves when it is updated after a growth.
    let update = |expected: u32| {
        client
            .update_item()
            .table_name(SHARDED)
            .key("pk", text("k"))
            .key("sk", sort_key(0))
            .update_expression("ADD n :one")
            .condition_expression("n = :expected")
            .expression_attribute_values(":one", number(1))
            .expression_attribute_values(":expected", number(expected))
            .return_values(ReturnValue::AllNew)
            .send()
    };
    for (grown, width) in (0..).zip([1, 2, 5]) {
        if width > 1 {
            world.grow("k", width).await;
        }
        for n in 10 * grown..10 * (grown + 1) {
            let put = client.put_item().table_name(SHARDED).item("pk", text("k"));
            put.item("sk", sort_key(n)).item("n", number(1)).send().await.expect("stored");
        }
        let before = grown + 1;
        let updated = update(before).await.expect("updated").attributes.expect("attributes");
        assert_eq!((updated.len(), &updated["n"]), (3, &number(before + 1)), "{updated:?}");
        let refused = update(before).await.expect_err("the condition does not hold");
        let refused = refused.into_service_error();
        assert!(refused.is_conditional_check_failed_exception(), "{refused:?}");
    }
    let pages = client
        .query()
        .table_name(SHARDED)
        .key_condition_expression("pk = :k")
        .expression_attribute_values(":k", text("k"))
        .limit(7)
        .into_paginator()
        .items()
        .send();
    let items: Vec<_> = pages.try_collect().await.expect("pages");
    let found: Vec<_> = items.iter().map(|item| item["sk"].clone()).collect();
    assert_eq!(found, (0..30).map(sort_key).collect::<Vec<_>>());
    served.end().await;
}
