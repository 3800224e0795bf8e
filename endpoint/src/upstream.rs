//! The DynamoDB behind this endpoint: requests are signed with this process's credentials, and
//! throttled reads are repeated.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sdk_dynamodb::config::Region;
use aws_sdk_dynamodb::config::endpoint::{DefaultResolver, Params, ResolveEndpoint};
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_http_client::{Connector, tls};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use connection::server::is_on_this_machine;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep, timeout};

use crate::reply::{Failure, JSON, Members, Reply};

/// The longest that a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest that an answer may take. A drain waits longer for reads that are under way.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest that a source of credentials may take, and how long before they expire new ones are
/// asked for.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(10);
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// How long kept credentials serve before new ones are asked for again.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);
/// An answer of DynamoDB has at most 16 MB.
const MAX_ANSWER_BYTES: usize = 20 * 1_024 * 1_024;

/// The pause before a throttled read is repeated.
pub(crate) const READ_PAUSE: Duration = Duration::from_millis(50);
/// How long a throttled read is repeated.
pub(crate) const THROTTLED_FOR: Duration = Duration::from_secs(2);

pub(crate) const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
pub(crate) const TARGET_PREFIX: &str = "DynamoDB_20120810.";

/// Why the endpoint cannot start, or a request could not be sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UpstreamError(pub(crate) String);

fn failed(error: impl std::fmt::Display) -> UpstreamError {
    UpstreamError(error.to_string())
}

/// Whether a request may still be sent once it is signed.
pub(crate) type Lasts<'a> = &'a (dyn Fn() -> bool + Send + Sync);

/// The lease of a read whose result is checked under a view afterwards.
pub(crate) const CHECKED_AFTER: Lasts<'static> = &|| true;

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Sent {
    /// An answer came.
    Answered(Reply),
    /// It was not sent: the lease was over once it was signed, or no connection was made.
    Unsent(String),
    /// No answer came: it may have been applied.
    Unanswered(String),
}

/// The server behind the endpoint, and how requests to it are signed.
#[derive(Debug, Clone)]
pub struct Upstream {
    connector: Arc<RwLock<SharedHttpConnector>>,
    /// Makes a connector without connections.
    fresh: Option<fn() -> SharedHttpConnector>,
    credentials: SharedCredentialsProvider,
    kept: Arc<Mutex<Option<Credentials>>>,
    /// Held while new credentials are asked for: when that last was, and what it means if there are
    /// none now.
    renewal: Arc<AsyncMutex<Option<(Instant, String)>>>,
    region: Region,
    url: Uri,
    host: HeaderValue,
    has_region: bool,
}

impl Upstream {
    /// The server that an SDK's configuration names: its endpoint URL, or AWS in its region.
    ///
    /// # Errors
    /// [`UpstreamError`] if the configuration has no region or no credentials.
    pub async fn new(aws: &api::SdkConfig) -> Result<Self, UpstreamError> {
        let upstream = Self::over(aws, connector()).await?;
        Ok(Self { fresh: Some(connector), ..upstream })
    }

    /// A configuration of the SDK whose clients use these connections, so that they are renewed with
    /// them.
    #[must_use]
    pub fn connected(&self, aws: &api::SdkConfig) -> api::SdkConfig {
        let upstream = self.clone();
        let client = http_client_fn(move |_, _| SharedHttpConnector::new(upstream.clone()));
        aws.to_builder().http_client(client).build()
    }

    /// Drops all idle connections.
    pub(crate) fn renew(&self) {
        if let Some(fresh) = self.fresh {
            *self.connector.write().unwrap_or_else(PoisonError::into_inner) = fresh();
        }
    }

    /// As [`new`](Self::new), through this connector.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub async fn over(
        aws: &api::SdkConfig,
        connector: SharedHttpConnector,
    ) -> Result<Self, UpstreamError> {
        let region = aws.region().cloned().ok_or_else(|| {
            UpstreamError("no region: set AWS_REGION, or the profile's region".to_owned())
        })?;
        let credentials = aws.credentials_provider().ok_or_else(|| {
            UpstreamError("no credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID".to_owned())
        })?;
        let url = match aws.endpoint_url() {
            Some(url) => url.to_owned(),
            None => {
                let params = Params::builder()
                    .region(region.to_string())
                    .use_fips(aws.use_fips().unwrap_or_default())
                    .use_dual_stack(aws.use_dual_stack().unwrap_or_default())
                    .build()
                    .map_err(failed)?;
                let resolved = DefaultResolver::new().resolve_endpoint(&params).await;
                resolved.map_err(failed)?.url().to_owned()
            }
        };
        let has_region = !is_on_this_machine(&url);
        let url: Uri = url
            .parse()
            .map_err(|error| UpstreamError(format!("the endpoint URL {url:?}: {error}")))?;
        let host = url.authority().and_then(|host| HeaderValue::try_from(host.as_str()).ok());
        let host =
            host.ok_or_else(|| UpstreamError(format!("the endpoint URL {url} has no host")))?;
        let connector = Arc::new(RwLock::new(connector));
        let (fresh, kept, renewal) = (None, Arc::default(), Arc::default());
        Ok(Self { connector, fresh, credentials, kept, renewal, region, url, host, has_region })
    }

    /// Also accepts requests that are signed for another region: a server on this machine has none.
    #[must_use]
    pub fn of_any_region(self) -> Self {
        Self { has_region: false, ..self }
    }

    /// Whether requests that are signed for a region are served.
    pub(crate) fn accepts(&self, region: &str) -> bool {
        !self.has_region || region == self.region()
    }

    /// The region for which requests are signed.
    pub(crate) fn region(&self) -> &str {
        self.region.as_ref()
    }

    /// Sends a request of this endpoint.
    pub(crate) async fn call(&self, operation: &str, body: &Members, lasts: Lasts<'_>) -> Sent {
        let target = HeaderValue::try_from(format!("{TARGET_PREFIX}{operation}"))
            .expect("the name of an operation is visible ASCII");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON), (TARGET, target)]);
        let body = Bytes::from(Value::Object(body.clone()).to_string());
        self.send(&headers, body, lasts).await
    }

    /// Sends a client's request as it came: only the host and the signature are this endpoint's.
    /// Once it is signed, it is sent only if `lasts` still holds.
    pub(crate) async fn send(&self, headers: &HeaderMap, body: Bytes, lasts: Lasts<'_>) -> Sent {
        let request = match self.signed(headers, body).await {
            Ok(request) => request,
            Err(error) => return Sent::Unsent(error.0),
        };
        if !lasts() {
            return Sent::Unsent("the lease was over before the request was sent".to_owned());
        }
        match timeout(ANSWER_TIMEOUT, self.answer(request)).await {
            Ok(Ok(reply)) => Sent::Answered(reply),
            Ok(Err(error)) => Sent::Unanswered(error.to_string()),
            Err(_) => Sent::Unanswered("no answer came in time".to_owned()),
        }
    }

    async fn answer(&self, request: HttpRequest) -> Result<Reply, BoxError> {
        let response = HttpConnector::call(self, request).await?.try_into_http1x()?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?.to_bytes();
        Ok(Reply { status: parts.status, headers: end_to_end(&parts.headers), body })
    }

    /// The credentials, kept until a few minutes before they expire. Most sources of them allow few
    /// requests, so one request at a time asks for new ones. The kept ones serve until they expire.
    async fn fresh_credentials(&self) -> Result<Credentials, UpstreamError> {
        let asked = Instant::now();
        let kept = || {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let now = std::time::UNIX_EPOCH + api::since_epoch();
            let left = |credentials: &Credentials| {
                let expiry = credentials.expiry();
                expiry.map_or(Duration::MAX, |at| at.duration_since(now).unwrap_or_default())
            };
            kept.map(|kept| (left(&kept), kept)).filter(|(left, _)| !left.is_zero())
        };
        let mut last = match kept() {
            Some((left, credentials)) if left > RENEWED_BEFORE => return Ok(credentials),
            Some((_, credentials)) => match self.renewal.try_lock() {
                Ok(turn) => turn,
                Err(_) => return Ok(credentials),
            },
            None => self.renewal.lock().await,
        };
        if let Some((at, failed)) = &*last
            && (*at >= asked || kept().is_some() && at.elapsed() < RENEWAL_PAUSE)
        {
            return kept().map(|(_, kept)| kept).ok_or_else(|| UpstreamError(failed.clone()));
        }
        let provided = timeout(CREDENTIALS_TIMEOUT, self.credentials.provide_credentials()).await;
        let failed = match provided {
            Ok(Ok(credentials)) => {
                *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(credentials);
                "the credentials have expired".to_owned()
            }
            Ok(Err(error)) => format!("no credentials: {}", DisplayErrorContext(&error)),
            Err(_) => "no credentials came in time".to_owned(),
        };
        *last = Some((Instant::now(), failed.clone()));
        if kept().is_none_or(|(left, _)| left <= RENEWED_BEFORE) {
            tracing::error!(failed, "the credentials are not renewed");
        }
        kept().map(|(_, kept)| kept).ok_or(UpstreamError(failed))
    }

    async fn signed(&self, headers: &HeaderMap, body: Bytes) -> Result<HttpRequest, UpstreamError> {
        let credentials = self.fresh_credentials().await?;
        let mut request = http::Request::post(self.url.clone())
            .body(SdkBody::from(body.to_vec()))
            .map_err(failed)?;
        *request.headers_mut() = end_to_end(headers);
        request.headers_mut().insert(HOST, self.host.clone());
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let identity = credentials.into();
        let now = std::time::UNIX_EPOCH + api::since_epoch();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(self.region.as_ref())
            .name("dynamodb")
            .time(now)
            .settings(SigningSettings::default())
            .build()
            .map_err(failed)?;
        let signable_headers = request
            .headers()
            .iter()
            .filter(|(name, _)| name.as_str() == "host" || name.as_str().starts_with("x-amz-"))
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let url = self.url.to_string();
        let signable =
            SignableRequest::new("POST", &url, signable_headers, SignableBody::Bytes(&body))
                .map_err(failed)?;
        let (instructions, _) = sign(signable, &params.into()).map_err(failed)?.into_parts();
        instructions.apply_to_request_http1x(&mut request);
        HttpRequest::try_from(request).map_err(failed)
    }
}

impl HttpConnector for Upstream {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.connector.read().unwrap_or_else(PoisonError::into_inner).call(request)
    }
}

/// A connector of its own connections.
pub(crate) fn connector() -> SharedHttpConnector {
    let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT_TIMEOUT).build();
    let tls = tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring);
    let connector = Connector::builder().connector_settings(settings).tls_provider(tls).build();
    SharedHttpConnector::new(connector)
}

/// The headers without those of one connection, of the signature, and of the host.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    const OF_THE_HOP: &str = "authorization connection content-length expect host keep-alive \
        proxy-connection te trailer transfer-encoding upgrade x-amz-content-sha256 x-amz-date \
        x-amz-security-token";
    let is_kept = |name: &HeaderName| OF_THE_HOP.split(' ').all(|other| other != name.as_str());
    let kept = headers.iter().filter(|(name, _)| is_kept(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What came of a request that must have an answer.
pub(crate) fn answered(sent: Sent) -> Result<Reply, Failure> {
    match sent {
        Sent::Answered(reply) => Ok(reply),
        Sent::Unsent(why) => Err(Failure::throttled(format!("sharding-endpoint: {why}"))),
        Sent::Unanswered(why) => {
            tracing::warn!(why, "no answer from DynamoDB");
            Err(Failure::internal("sharding-endpoint: no answer from DynamoDB"))
        }
    }
}

/// Sends a read that may be repeated, until it is not throttled.
pub(crate) async fn repeated(
    upstream: &Upstream,
    operation: &str,
    body: &Members,
    lasts: Lasts<'_>,
) -> Result<Reply, Failure> {
    let until = Instant::now() + THROTTLED_FOR;
    loop {
        let reply = answered(upstream.call(operation, body, lasts).await)?;
        if reply.throttled().is_none() || Instant::now() + READ_PAUSE > until {
            return reply.success();
        }
        sleep(READ_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::SystemTime;

    use aws_credential_types::credential_fn::provide_credentials_fn;
    use aws_credential_types::provider::error::CredentialsError;
    use embedded_dynamodb::{Engine, InProcess};
    use futures_util::future::join_all;

    use super::*;

    /// Its source gives credentials once, which are good for so many seconds, and none afterwards.
    async fn upstream(lasts: Option<u64>) -> (Upstream, Arc<AtomicU32>) {
        let engine = Engine::in_memory().expect("a database");
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let source = SharedCredentialsProvider::new(provide_credentials_fn(move || {
            let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
            let left = lasts.filter(|_| is_first).map(Duration::from_secs);
            let expiry = left.map(|left| SystemTime::UNIX_EPOCH + api::since_epoch() + left);
            let provided = match expiry {
                Some(_) => Ok(Credentials::new("id", "secret", None, expiry, "test")),
                None => Err(CredentialsError::provider_error("the source does not answer")),
            };
            std::future::ready(provided)
        }));
        let aws = engine.sdk_config().to_builder().credentials_provider(source).build();
        let connector = SharedHttpConnector::new(InProcess::new(engine));
        (Upstream::over(&aws, connector).await.expect("an upstream"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_serve_until_they_expire() {
        let (upstream, asked) = upstream(Some(100)).await;
        for (pause, expected) in [(0, 1), (1, 1), (10, 2), (1, 2), (10, 3)] {
            tokio::time::advance(Duration::from_secs(pause)).await;
            let credentials = upstream.fresh_credentials().await.expect("they have not expired");
            assert_eq!(credentials.access_key_id(), "id");
            assert_eq!(asked.load(Ordering::Relaxed), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_wait_for_credentials_fail_together() {
        let (upstream, asked) = upstream(None).await;
        for result in join_all((0..20).map(|_| upstream.fresh_credentials())).await {
            let failed = result.expect_err("there are none").to_string();
            assert!(failed.contains("the source does not answer"), "{failed}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
