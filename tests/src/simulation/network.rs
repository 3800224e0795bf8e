//! The network between one instance and the engine, with its faults.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpClient};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use embedded_dynamodb::{Engine, Response, http_client};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{Clock, Moment};
use tokio::time::{Instant, sleep, sleep_until};

use super::record::Record;

/// The injected faults, by kind.
#[derive(Debug, Default)]
pub(super) struct Injected {
    pub(super) throttles: AtomicU64,
    pub(super) server_errors: AtomicU64,
    pub(super) lost_responses: AtomicU64,
    pub(super) late_requests: AtomicU64,
    pub(super) slow_metadata: AtomicU64,
    pub(super) slow_reads: AtomicU64,
    pub(super) conflicts: AtomicU64,
    pub(super) freezes: AtomicU64,
    pub(super) clocks_set_back: AtomicU64,
    pub(super) deaths: AtomicU64,
}

impl Injected {
    /// Late requests, deaths, and faults of all kinds.
    pub(super) fn late_deaths_and_all(&self) -> (u64, u64, u64) {
        let kinds = [
            &self.throttles,
            &self.server_errors,
            &self.lost_responses,
            &self.late_requests,
            &self.slow_metadata,
            &self.slow_reads,
            &self.conflicts,
            &self.freezes,
            &self.clocks_set_back,
            &self.deaths,
        ];
        let count = |kind: &AtomicU64| kind.load(Ordering::Relaxed);
        (count(&self.late_requests), count(&self.deaths), kinds.into_iter().map(count).sum())
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Throttle(&'static str),
    ServerErrorBefore,
    ServerErrorAfter,
    ResponseDropped,
    ResponseTooLate,
    AppliedLate,
    SlowMetadata,
    SlowRead,
    Conflict,
}

/// One instance's connection and clock.
#[derive(Debug)]
pub(super) struct Instance {
    /// The instance's number in the record.
    number: usize,
    engine: Engine,
    origin: Instant,
    faults: AtomicBool,
    rates: FaultRates,
    dead: AtomicBool,
    state: Mutex<State>,
    record: Arc<Record>,
}

#[derive(Debug)]
struct State {
    rng: StdRng,
    frozen_until: Instant,
    frozen: Duration,
    skew: Duration,
    metadata_down_until: Instant,
    set_back_at: Option<Instant>,
}

/// The least time between a freeze and a set-back of the clock. A freeze hides time from one clock
/// and a set-back hides it from the other. A process with these two clocks cannot notice both
/// within the life of one view, so the simulation keeps them more than a lease apart.
const APART: Duration = Duration::from_secs(2);
/// A delay that is longer than an attempt waits for its response.
const TOO_LATE: Duration = Duration::from_millis(3_200);
/// The largest difference of clocks that are not set back, in milliseconds.
const LARGEST_SKEW_MS: u64 = 100;
/// The head start of a clock against the true time. A set-back takes away at most this time.
const EARLIEST_CLOCK: Duration = Duration::from_secs(4);

/// The largest difference of two clocks of a run.
pub(super) fn largest_difference(are_set_back: bool) -> Duration {
    let skew = Duration::from_millis(LARGEST_SKEW_MS);
    if are_set_back { EARLIEST_CLOCK + skew } else { skew }
}

/// The number of faults per thousand requests of an instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultRates {
    /// Any kind of fault.
    pub(super) any: u32,
    /// Additional faults of reads of items: the read arrives long after the rest of the same page
    /// was read.
    pub(super) slow_reads: u32,
    /// Additional faults of writes of items: the write arrives after its sender has given up.
    pub(super) late_writes: u32,
    /// The longest delay of a late write.
    pub(super) latest: Duration,
}

impl FaultRates {
    /// The longest delay of a late write that a drain waits for.
    pub(super) const LATEST: Duration = Duration::from_secs(9);
    /// No faults.
    pub(super) const NONE: Self =
        Self { any: 0, slow_reads: 0, late_writes: 0, latest: Self::LATEST };
    /// An instance that serves requests.
    pub(super) const SERVING: Self = Self { any: 40, late_writes: 20, ..Self::NONE };
    /// An instance whose writes often arrive late.
    pub(super) const LATE: Self = Self { late_writes: 250, ..Self::SERVING };
    /// An instance that serves reads while items are moved.
    pub(super) const READING: Self = Self { slow_reads: 120, ..Self::SERVING };
    /// An instance whose reads often last longer than a move.
    pub(super) const READING_SLOWLY: Self = Self { slow_reads: 400, ..Self::SERVING };
    /// An instance that drains: thousands of requests, one after another.
    pub(super) const DRAINING: Self = Self { any: 10, late_writes: 10, ..Self::NONE };
    /// An instance whose moves often arrive late, even after the next drain of the same items has
    /// begun.
    pub(super) const DRAINING_LATE: Self =
        Self { late_writes: 300, latest: Duration::from_secs(40), ..Self::DRAINING };
}

impl Instance {
    pub(super) fn new(
        (number, seed): (usize, u64),
        engine: Engine,
        origin: Instant,
        rates: FaultRates,
        record: Arc<Record>,
    ) -> Arc<Self> {
        let mut rng = StdRng::seed_from_u64(seed);
        let skew = EARLIEST_CLOCK + Duration::from_millis(rng.random_range(0..LARGEST_SKEW_MS));
        let state = State {
            rng,
            frozen_until: origin,
            frozen: Duration::ZERO,
            skew,
            metadata_down_until: origin,
            set_back_at: None,
        };
        Arc::new(Self {
            number,
            engine,
            origin,
            faults: AtomicBool::new(true),
            rates,
            dead: AtomicBool::new(false),
            state: Mutex::new(state),
            record,
        })
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        self.faults.store(false, Ordering::Relaxed);
        self.state().metadata_down_until = self.origin;
    }

    /// Freezes the sandbox: it sends and receives nothing, and its monotonic clock stops.
    pub(super) fn freeze(&self, length: Duration) {
        let mut state = self.state();
        let now = Instant::now();
        if state.frozen_until <= now && state.set_back_at.is_none_or(|at| at + APART < now) {
            state.frozen_until = now + length;
            state.frozen += length;
            self.record.injected.freezes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets the wall clock back.
    pub(super) fn set_clock_back(&self, by: Duration) {
        let mut state = self.state();
        let now = Instant::now();
        if now < state.frozen_until + APART {
            return;
        }
        state.set_back_at = Some(now);
        state.skew = state.skew.saturating_sub(by);
        self.record.injected.clocks_set_back.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes its metadata requests fail for a while.
    pub(super) fn lose_metadata(&self, length: Duration) {
        self.state().metadata_down_until = Instant::now() + length;
    }

    /// Ends the process. Its requests in flight may still be applied.
    pub(super) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.record.injected.deaths.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the sandbox is frozen; forever, once it is dead.
    async fn run_on(&self) {
        loop {
            if self.is_dead() {
                std::future::pending::<()>().await;
            }
            let until = self.state().frozen_until;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    fn latency(&self) -> Duration {
        Duration::from_micros(self.state().rng.random_range(500..8_000))
    }

    fn draw(&self, is_metadata: bool, is_write: bool) -> Option<Fault> {
        if !self.faults.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state();
        if is_metadata && Instant::now() < state.metadata_down_until {
            return Some(Fault::ServerErrorBefore);
        }
        let drawn = state.rng.random_range(0..1_000);
        if drawn >= self.rates.any {
            let besides = drawn - self.rates.any;
            return match (is_metadata, is_write) {
                (false, false) if besides < self.rates.slow_reads => Some(Fault::SlowRead),
                (false, true) if besides < self.rates.late_writes => Some(Fault::AppliedLate),
                _ => None,
            };
        }
        const REASONS: [&str; 4] = [
            "ProvisionedThroughputExceeded",
            "AccountLimitExceeded",
            "MaxOnDemandThroughputExceeded",
            "",
        ];
        Some(match state.rng.random_range(0..8) {
            0 | 1 => Fault::Throttle(REASONS[state.rng.random_range(0..REASONS.len())]),
            2 => Fault::ServerErrorBefore,
            3 if is_write => Fault::ServerErrorAfter,
            4 => Fault::ResponseDropped,
            5 => Fault::ResponseTooLate,
            6 if is_write => Fault::AppliedLate,
            7 if is_metadata => Fault::SlowMetadata,
            7 if is_write => Fault::Conflict,
            _ => return None,
        })
    }

    /// Applies a request that has reached the tables.
    fn carry_out(&self, is_late: bool, target: &str, body: &[u8]) -> Response {
        let response = self.engine.respond("/", Some(target), body);
        let when = (self.number, self.origin.elapsed(), is_late);
        self.record.arrived(&self.engine, when, (target, body), &response);
        response
    }

    /// Applies a request after its sender has given up.
    async fn apply_late(
        self: &Arc<Self>,
        target: String,
        body: Vec<u8>,
    ) -> Result<HttpResponse, ConnectorError> {
        let (delay, breaks) = {
            let mut state = self.state();
            let latest = self.rates.latest.as_millis() as u64;
            (Duration::from_millis(state.rng.random_range(700..latest)), state.rng.random())
        };
        let instance = Arc::clone(self);
        tokio::spawn(async move {
            sleep(delay).await;
            instance.carry_out(true, &target, &body);
        });
        // The caller either times out, or gets an error at once and sends again before the first
        // request arrives.
        if breaks {
            return Err(ConnectorError::io("the connection broke".into()));
        }
        std::future::pending().await
    }

    async fn call(self: &Arc<Self>, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        self.run_on().await;
        sleep(self.latency()).await;
        let target = request.headers().get("x-amz-target").unwrap_or_default().to_owned();
        let body = request.body().bytes().unwrap_or_default().to_vec();
        let is_metadata = String::from_utf8_lossy(&body).contains("\"items-metadata\"");
        let is_write =
            ["PutItem", "UpdateItem", "DeleteItem"].iter().any(|kind| target.ends_with(kind));
        let fault = self.draw(is_metadata, is_write);
        let count = |kind: &AtomicU64| kind.fetch_add(1, Ordering::Relaxed);
        let apply = || self.carry_out(false, &target, &body);
        let response = match fault {
            None => apply(),
            Some(Fault::Throttle(limit)) => {
                count(&self.record.injected.throttles);
                throttled(limit, is_write)
            }
            Some(Fault::ServerErrorBefore) => {
                count(&self.record.injected.server_errors);
                server_error()
            }
            Some(Fault::ServerErrorAfter) => {
                count(&self.record.injected.server_errors);
                drop(apply());
                server_error()
            }
            Some(Fault::ResponseDropped) => {
                count(&self.record.injected.lost_responses);
                drop(apply());
                return Err(ConnectorError::io("the connection broke".into()));
            }
            Some(Fault::ResponseTooLate) => {
                count(&self.record.injected.lost_responses);
                let response = apply();
                sleep(TOO_LATE).await;
                response
            }
            Some(Fault::AppliedLate) => {
                count(&self.record.injected.late_requests);
                return self.apply_late(target, body).await;
            }
            Some(Fault::SlowRead) => {
                count(&self.record.injected.slow_reads);
                let delay = Duration::from_millis(self.state().rng.random_range(200..2_500));
                sleep(delay).await;
                apply()
            }
            Some(Fault::Conflict) => {
                count(&self.record.injected.conflicts);
                conflict()
            }
            Some(Fault::SlowMetadata) => {
                count(&self.record.injected.slow_metadata);
                let delay = Duration::from_millis(self.state().rng.random_range(200..2_500));
                sleep(delay).await;
                apply()
            }
        };
        sleep(self.latency()).await;
        self.run_on().await;
        respond(response)
    }
}

fn respond(from_engine: Response) -> Result<HttpResponse, ConnectorError> {
    let status = from_engine
        .status
        .try_into()
        .map_err(|error| ConnectorError::other(Box::new(error), None))?;
    let mut response = HttpResponse::new(status, SdkBody::from(from_engine.body));
    response.headers_mut().insert("content-type", from_engine.content_type);
    Ok(response)
}

fn throttled(limit: &str, is_write: bool) -> Response {
    let access = if is_write { "Write" } else { "Read" };
    let reasons = if limit.is_empty() {
        String::new()
    } else {
        format!(r#"{{"reason":"Table{access}{limit}","resource":"arn"}}"#)
    };
    let body = format!(
        r#"{{"__type":"x#ThrottlingException","message":"injected","throttlingReasons":[{reasons}]}}"#
    );
    Response { status: 400, content_type: "application/x-amz-json-1.0", body: body.into_bytes() }
}

/// The error response when another program's transaction uses the item.
fn conflict() -> Response {
    let body = br#"{"__type":"x#TransactionConflictException","message":"injected"}"#.to_vec();
    Response { status: 400, content_type: "application/x-amz-json-1.0", body }
}

fn server_error() -> Response {
    let body = br#"{"__type":"x#InternalServerError","message":"injected"}"#.to_vec();
    Response { status: 500, content_type: "application/x-amz-json-1.0", body }
}

/// The instance as the SDK's HTTP client.
#[derive(Debug, Clone)]
pub(super) struct Connection(pub(super) Arc<Instance>);

impl Connection {
    pub(super) fn into_shared(self) -> SharedHttpClient {
        http_client(self)
    }
}

impl HttpConnector for Connection {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let instance = Arc::clone(&self.0);
        HttpConnectorFuture::new(async move { instance.call(request).await })
    }
}

/// The instance's clocks.
#[derive(Debug, Clone)]
pub(super) struct InstanceClock(pub(super) Arc<Instance>);

/// The wall-clock time at the beginning, far from zero.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

impl Clock for InstanceClock {
    fn now(&self) -> Moment {
        let state = self.0.state();
        let now = Instant::now();
        let elapsed = now.duration_since(self.0.origin);
        let still_frozen = state.frozen_until.saturating_duration_since(now);
        let stood_still = state.frozen.saturating_sub(still_frozen);
        Moment {
            monotonic: elapsed.saturating_sub(stood_still),
            wall: EPOCH + elapsed + state.skew,
        }
    }
}
