//! The endpoint over HTTP: what it lets through, and how it stops.

use std::net::SocketAddr;

use endpoint::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::world::World;

/// A server of a world: its address, what stops it, and its end.
pub(crate) async fn served(
    world: &World,
) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<std::io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = Server::new(world.service.clone(), &["laptop.lan".to_owned()]);
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(server.serve(listener, async {
        let _ = stopped.await;
    }));
    (address, stop, ended)
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
    let (address, stop, ended) = served(&world).await;
    // Clients that send nothing do not keep the others waiting.
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(address).await.expect("a connection"));
    }
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
        let answer = sent(address, &format!("{post}{host}{target}{signature}"), b"{}").await;
        assert!(answer.contains(expected), "{host}{target}{signature}: {answer}");
    }
    let health = sent(address, "GET / HTTP/1.1\nhost: localhost\n", b"").await;
    assert!(health.contains("healthy: dynamodb.local"), "{health}");
    let large = vec![b' '; 17 * 1_024 * 1_024];
    let head = format!("{post}host: localhost\n{target}{own}");
    let answer = sent(address, &head, &large).await;
    assert!(answer.is_empty() || answer.contains("413"), "{answer}");
    stop.send(()).expect("it runs");
    ended.await.expect("it ends").expect("without an error");
    drop(idle);
}
