//! The endpoint over HTTP: what it lets through, and how it stops.

use std::net::SocketAddr;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use endpoint::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::world::{SHARDED, World};

struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<std::io::Result<()>>,
}

async fn served(world: &World) -> Served {
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
    served.stop.send(()).expect("it runs");
    served.ended.await.expect("it ends").expect("without an error");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_stores_and_reads_through_it_and_idle_connections_do_not_hold_it() {
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
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let put = client.put_item().table_name(SHARDED).item("pk", text("k")).item("sk", text("s"));
    put.item("n", AttributeValue::N("1".into())).send().await.expect("stored");
    let updated = client
        .update_item()
        .table_name(SHARDED)
        .key("pk", text("k"))
        .key("sk", text("s"))
        .update_expression("ADD n :one")
        .condition_expression("n = :one")
        .expression_attribute_values(":one", AttributeValue::N("1".into()))
        .return_values(aws_sdk_dynamodb::types::ReturnValue::AllNew);
    let updated = updated.send().await.expect("updated").attributes.expect("attributes");
    assert_eq!(updated["n"], AttributeValue::N("2".into()));
    assert_eq!(updated.len(), 3, "{updated:?}");
    served.stop.send(()).expect("it runs");
    served.ended.await.expect("it ends").expect("without an error");
}
