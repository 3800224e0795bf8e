//! The HTTP server: what a request must have before it is looked at, and the bounds of bodies,
//! times and connections.

use std::convert::Infallible;
use std::io::ErrorKind::{ConnectionAborted, ConnectionReset};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use connection::hosts::Hosts;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, ORIGIN};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::observed;
use crate::reply::{Failure, Reply};
use crate::served::Service;
use crate::upstream::TARGET;

/// DynamoDB's limit of a body.
const MAX_BODY_BYTES: usize = 16 * 1_024 * 1_024;
/// The longest that a request's headers, with the time before them, and then its body may take.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The most connections at once. Further clients wait.
const MAX_CONNECTIONS: usize = 16_384;
/// When the process stops, open requests get this time to finish, and then background work does.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// A process that did not run for this long was frozen, and its connections may be dead.
const FREEZE: Duration = Duration::from_secs(5);
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");

/// A server of an endpoint.
#[derive(Debug, Clone)]
pub struct Server {
    service: Arc<Service>,
    hosts: Hosts,
}

impl Server {
    /// A server that accepts these host names besides `localhost` and addresses.
    #[must_use]
    pub fn new(service: Service, allowed_hosts: &[String]) -> Self {
        Self { service: Arc::new(service), hosts: Hosts::new(allowed_hosts) }
    }

    /// Serves until `stop` resolves. Then it ends what is under way, within a time limit.
    ///
    /// # Errors
    /// The operating system's error, if the listener fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send,
    ) -> std::io::Result<()> {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let graceful = GracefulShutdown::new();
        let (mut tasks, mut stop) = (JoinSet::new(), std::pin::pin!(stop));
        tasks.spawn(report_hot_keys(Arc::clone(&self.service)));
        tasks.spawn(renew_connections(Arc::clone(&self.service)));
        loop {
            while tasks.try_join_next().is_some() {}
            let accepting = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (listener.accept().await, slot)
            };
            let (accepted, slot) = tokio::select! {
                () = &mut stop => break,
                accepted = accepting => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) if matches!(error.kind(), ConnectionAborted | ConnectionReset) => {
                    continue;
                }
                Err(error) => {
                    // Too many open files: those that end make room.
                    tracing::warn!(%error, "a connection was not accepted");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let server = self.clone();
            let serve = service_fn(move |request| {
                let server = server.clone();
                async move { server.respond(request).await }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(READ_TIMEOUT)
                .serve_connection(TokioIo::new(stream), serve);
            let connection = graceful.watch(connection);
            tasks.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection ended");
                }
                drop(slot);
            });
        }
        drop(listener);
        if timeout(GRACE_PERIOD, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests were still open and were aborted");
        }
        if timeout(GRACE_PERIOD, self.service.finish()).await.is_err() {
            tracing::warn!("some background work is unfinished; other processes continue it");
        }
        Ok(())
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        let reply = match self.own_reply(&parts.method, parts.uri.path(), &parts.headers) {
            Some(reply) => reply,
            None => match timeout(READ_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await
            {
                Ok(Ok(body)) => self.service.respond(&parts.headers, body.to_bytes()).await,
                Ok(Err(_)) => {
                    let why = "the body is over 16 MB, or was cut off\n";
                    Reply::text(StatusCode::PAYLOAD_TOO_LARGE, why)
                }
                Err(_) => {
                    Reply::text(StatusCode::REQUEST_TIMEOUT, "the body did not come in time\n")
                }
            },
        };
        let mut response = Response::new(Full::new(reply.body));
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        response.headers_mut().entry(REQUEST_ID).or_insert_with(request_id);
        Ok(response)
    }

    /// The response that this process gives itself: its health, what it has observed, or a
    /// rejection.
    fn own_reply(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Reply> {
        let text =
            |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let forbidden = |why: &str| Some(Reply::text(StatusCode::FORBIDDEN, why));
        let host = text(HOST);
        if !self.hosts.accepts(host) {
            return forbidden(&format!(
                "{host:?} is not a known name of this machine; if it is one, start with \
                 --allowed-host\n"
            ));
        }
        if headers.contains_key(ORIGIN) {
            return forbidden("this server is not for web pages\n");
        }
        if *method == Method::GET {
            if path == observed::PATH {
                return Some(self.service.observed().shown());
            }
            let health = format!("healthy: dynamodb.{}\n", self.service.region());
            return Some(Reply::text(StatusCode::OK, &health));
        }
        if *method != Method::POST || !headers.contains_key(TARGET) {
            return Some(Failure::unknown_operation().into_reply());
        }
        if text(CONTENT_LENGTH).parse::<usize>().is_ok_and(|length| length > MAX_BODY_BYTES) {
            let why = "the body is over 16 MB\n";
            return Some(Reply::text(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let Some(region) = scope_region(text(AUTHORIZATION)) else {
            return Some(Failure::signature("the request is not signed (SigV4)").into_reply());
        };
        (!self.service.upstream.accepts(region)).then(|| {
            let why = format!(
                "the request is signed for {region:?}; this endpoint serves {:?}. \
                 AWS_ENDPOINT_URL_DYNAMODB applies to every DynamoDB client of a program \
                 (sharding-endpoint)",
                self.service.region()
            );
            Failure::signature(why).into_reply()
        })
    }
}

/// An id that no other request has: the time and the request's number in this process.
pub fn request_id() -> HeaderValue {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let id = format!("{:016X}{number:016X}", api::since_epoch().as_micros());
    HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("0"))
}

/// The region of a signature's credential scope.
fn scope_region(authorization: &str) -> Option<&str> {
    let rest = authorization.strip_prefix("AWS4-HMAC-SHA256")?;
    let credential = rest.split(',').find_map(|part| part.trim().strip_prefix("Credential="))?;
    let mut parts = credential.rsplit('/');
    let is_scope = parts.next() == Some("aws4_request") && parts.next().is_some();
    parts.next().filter(|_| is_scope)
}

/// Says once a minute which keys that are not armed were throttled.
async fn report_hot_keys(service: Arc<Service>) {
    loop {
        sleep(observed::PERIOD).await;
        for hot in service.observed().take(observed::PERIOD) {
            tracing::warn!(
                table = hot.table,
                key = hot.key,
                write_units = hot.write_units,
                throttled = hot.throttled,
                shards = hot.shards,
                refused = ?hot.refused,
                "a key that is not armed is throttled"
            );
        }
    }
}

/// Drops idle connections after a freeze: the server has closed them meanwhile, and a write that is
/// sent on one has an unknown outcome. A frozen machine stops one clock, a frozen process none.
async fn renew_connections(service: Arc<Service>) {
    let now = || (Instant::now(), api::since_epoch());
    let mut last = now();
    loop {
        sleep(Duration::from_secs(1)).await;
        let (instant, wall) = now();
        if (instant - last.0).max(wall.saturating_sub(last.1)) > FREEZE {
            tracing::warn!("this process was frozen; its connections are renewed");
            service.upstream.renew();
        }
        last = (instant, wall);
    }
}
