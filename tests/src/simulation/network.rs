//! The network between one instance and the engine, with its faults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use embedded_dynamodb::Response;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{Clock, protocol::view::Moment};
use tokio::time::{Instant, sleep, sleep_until};

use super::faults::{Fault, FaultRates};
use super::world::World;
use super::{Plan, locked};
use crate::wire::respond;

/// One instance's connection and clock.
#[derive(Debug)]
pub(super) struct Instance {
    /// The instance's number in the record.
    number: usize,
    world: Arc<World>,
    faults: AtomicBool,
    rates: FaultRates,
    dead: AtomicBool,
    state: Mutex<State>,
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
/// The head start of a clock against the true time. A set-back takes away at most this time.
const EARLIEST_CLOCK: Duration = Duration::from_secs(4);

impl Plan {
    /// The largest difference between two clocks that were not set back.
    const fn clocks_differ(self) -> Duration {
        Duration::from_millis(if self.has_wrong_clocks() { 5_000 } else { 100 })
    }
}

impl Instance {
    pub(super) fn new(
        (number, seed): (usize, u64),
        world: &Arc<World>,
        rates: FaultRates,
    ) -> Arc<Self> {
        let mut rng = StdRng::seed_from_u64(seed);
        let skew = EARLIEST_CLOCK + rng.random_range(Duration::ZERO..world.plan.clocks_differ());
        let state = State {
            rng,
            frozen_until: world.began,
            frozen: Duration::ZERO,
            skew,
            metadata_down_until: world.began,
            set_back_at: None,
        };
        Arc::new(Self {
            number,
            world: Arc::clone(world),
            faults: AtomicBool::new(true),
            rates,
            dead: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        self.faults.store(false, Ordering::Relaxed);
        locked(&self.state).metadata_down_until = self.world.began;
        *locked(&self.world.stretch) = None;
    }

    /// Freezes the sandbox: it sends and receives nothing, and its monotonic clock stops.
    pub(super) fn freeze(&self, length: Duration) {
        let mut state = locked(&self.state);
        let now = Instant::now();
        if state.frozen_until <= now && state.set_back_at.is_none_or(|at| at + APART < now) {
            state.frozen_until = now + length;
            state.frozen += length;
            self.world.count(|totals| totals.faults += 1);
        }
    }

    pub(super) fn set_clock_back(&self, by: Duration) {
        let mut state = locked(&self.state);
        let now = Instant::now();
        if now < state.frozen_until + APART {
            return;
        }
        state.set_back_at = Some(now);
        state.skew = state.skew.saturating_sub(by);
        self.world.count(|totals| totals.faults += 1);
    }

    /// Makes its metadata requests fail for a while.
    pub(super) fn lose_metadata(&self, length: Duration) {
        locked(&self.state).metadata_down_until = Instant::now() + length;
    }

    /// Ends the process. Its requests in flight may still be applied.
    pub(super) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.world.count(|totals| {
            totals.faults += 1;
            totals.deaths += 1;
        });
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Waits while the sandbox is frozen; forever, once it is dead.
    async fn run_on(&self) {
        loop {
            if self.is_dead() {
                std::future::pending::<()>().await;
            }
            let until = locked(&self.state).frozen_until;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    fn latency(&self) -> Duration {
        Duration::from_micros(locked(&self.state).rng.random_range(500..8_000))
    }

    fn draw(&self, is_metadata: bool, is_write: bool) -> Option<Fault> {
        if !self.faults.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = locked(&self.state);
        if is_metadata && Instant::now() < state.metadata_down_until {
            return Some(Fault::ServerErrorBefore);
        }
        let drawn = state.rng.random_range(0..1_000);
        if drawn >= self.rates.any {
            let (besides, late) = (drawn - self.rates.any, self.rates.late_writes);
            return match (is_metadata, is_write) {
                (false, false) if besides < self.rates.slow_reads => Some(Fault::Slow),
                (false, true) if besides < late => Some(Fault::AppliedLate),
                (false, true) if besides < late + self.rates.throttles => {
                    Some(Fault::Throttle("AccountLimitExceeded"))
                }
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
            7 if is_metadata => Fault::Slow,
            7 if is_write => Fault::Conflict,
            _ => return None,
        })
    }

    /// Applies a request that has reached the tables.
    fn carry_out(&self, is_late: bool, target: &str, body: &[u8]) -> Response {
        let World { engine, began, record, .. } = &*self.world;
        let response = engine.respond("/", Some(target), body);
        let when = (self.number, began.elapsed(), is_late);
        locked(record).arrived(engine, when, (target, body), &response);
        response
    }

    /// Applies a request after its sender has given up.
    async fn apply_late(
        self: &Arc<Self>,
        target: String,
        body: Vec<u8>,
    ) -> Result<HttpResponse, ConnectorError> {
        let (delay, breaks) = {
            let mut state = locked(&self.state);
            (self.rates.delay(&mut state.rng), state.rng.random::<bool>())
        };
        self.world.count(|totals| {
            totals.faults += 1;
            totals.late_requests += 1;
            totals.very_late_requests += u64::from(delay > Duration::from_secs(60));
        });
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
        let stretch = *locked(&self.world.stretch);
        let delays = stretch.and_then(|stretch| stretch.delays(is_metadata, is_write, &body));
        let (before, after) = delays.unwrap_or_default();
        sleep(before).await;
        let fault = self.draw(is_metadata, is_write);
        if !matches!(fault, None | Some(Fault::AppliedLate)) {
            self.world.count(|totals| totals.faults += 1);
        }
        let apply = || self.carry_out(false, &target, &body);
        let response = match fault {
            None => apply(),
            Some(Fault::Throttle(limit)) => throttled(limit, is_write),
            Some(Fault::ServerErrorBefore) => failed(500, "InternalServerError", ""),
            Some(Fault::ServerErrorAfter) => {
                drop(apply());
                failed(500, "InternalServerError", "")
            }
            Some(Fault::ResponseDropped) => {
                drop(apply());
                return Err(ConnectorError::io("the connection broke".into()));
            }
            Some(Fault::ResponseTooLate) => {
                let response = apply();
                sleep(TOO_LATE).await;
                response
            }
            Some(Fault::AppliedLate) => return self.apply_late(target, body).await,
            // Another program's transaction uses the item.
            Some(Fault::Conflict) => failed(400, "TransactionConflictException", ""),
            Some(Fault::Slow) => {
                let delay = Duration::from_millis(locked(&self.state).rng.random_range(200..2_500));
                sleep(delay).await;
                apply()
            }
        };
        sleep(self.latency() + after).await;
        self.run_on().await;
        let mut answer = respond(response.status, response.body)?;
        answer.headers_mut().insert("content-type", response.content_type);
        Ok(answer)
    }
}

fn throttled(limit: &str, is_write: bool) -> Response {
    let access = if is_write { "Write" } else { "Read" };
    let reasons = if limit.is_empty() {
        String::new()
    } else {
        format!(r#"{{"reason":"Table{access}{limit}","resource":"arn"}}"#)
    };
    failed(400, "ThrottlingException", &format!(r#","throttlingReasons":[{reasons}]"#))
}

/// An error response, with more members if any.
fn failed(status: u16, kind: &str, more: &str) -> Response {
    let body = format!(r#"{{"__type":"x#{kind}","message":"injected"{more}}}"#);
    Response { status, content_type: "application/x-amz-json-1.0", body: body.into_bytes() }
}

/// The instance as the SDK's HTTP client, and as a clock.
#[derive(Debug, Clone)]
pub(super) struct Process(pub(super) Arc<Instance>);

impl HttpConnector for Process {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let instance = Arc::clone(&self.0);
        HttpConnectorFuture::new(async move { instance.call(request).await })
    }
}

/// The wall-clock time at the beginning, far from zero.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

impl Clock for Process {
    fn now(&self) -> Moment {
        let state = locked(&self.0.state);
        let now = Instant::now();
        let elapsed = now.duration_since(self.0.world.began);
        let still_frozen = state.frozen_until.saturating_duration_since(now);
        let stood_still = state.frozen.saturating_sub(still_frozen);
        Moment {
            monotonic: elapsed.saturating_sub(stood_still),
            wall: EPOCH + elapsed + state.skew,
        }
    }
}
