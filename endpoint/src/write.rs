//! Writes of armed keys: plain ones by the crate, all others as requests of the client's together
//! with a condition of the protocol.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sharding::internal::protocol::copies::{Answer, Copy};
use sharding::internal::protocol::expressed::{ExpressedWrite, Next, Operation, Outcome, Request};
use sharding::internal::protocol::layout::Places;
use sharding::internal::protocol::view::View;
use sharding::internal::{KeyJob, write_units};
use sharding::{Conditions, Item, MAX_ITEM_BYTES, ShardNumber, TableError, WriteErrorKind};
use tokio::time::Instant;

use crate::item;
use crate::read::{copies, shard_key};
use crate::reply::{Failure, Members, Reply};
use crate::request::{ClientWrite, compose};
use crate::upstream::Sent;

/// How long a write waits while the key's width changes.
const LONGEST_PAUSE: Duration = Duration::from_millis(1_500);
const OUT_OF_TIME: &str = "sharding-endpoint: no attempt succeeded in time";
/// The write units of a request whose item is not known.
const UNKNOWN_UNITS: u64 = 1;

impl ClientWrite<'_> {
    /// Carries the write out.
    pub(crate) async fn run(self) -> Result<Reply, Failure> {
        let mut session = self.table.engine.job(self.key, self.deadline);
        if session.not_armed_before().await?.is_none()
            && let Some(done) = self.plain().await?
        {
            return Ok(done);
        }
        let reply = self.attempts(&mut session).await;
        if let Err(failure) = &reply {
            if let Some(outcome) = failure.outcome() {
                session.failed(outcome);
            }
            tracing::debug!(?failure, operation = self.operation, "a write was not acknowledged");
        }
        reply
    }

    /// A put or a deletion without condition and without a result is the crate's. `None` if it is
    /// something else, or if DynamoDB must say what is wrong with it.
    async fn plain(&self) -> Result<Option<Reply>, Failure> {
        use WriteErrorKind::{Invalid, NotArmed, Table};
        let names = ["TableName", "Item", "Key", "ReturnValuesOnConditionCheckFailure"];
        let is_plain = |(name, value): (&String, &Value)| {
            names.contains(&name.as_str()) || name.starts_with("Return") && *value == "NONE"
        };
        if self.operation == "UpdateItem" || !self.body.iter().all(is_plain) {
            return Ok(None);
        }
        let engine = &self.table.engine;
        let written = if self.operation == "DeleteItem" {
            let conditions = Conditions::default();
            engine.delete_if(self.key, &self.sort_key, &conditions, self.deadline).await
        } else {
            let item = self.body.get("Item").and_then(Value::as_object);
            let attributes = item.and_then(|item| self.table.attributes(item));
            let Some(attributes) = attributes.filter(|it| it.size() <= MAX_ITEM_BYTES) else {
                return Ok(None);
            };
            let (partition_key, sort_key) = (self.key.clone(), self.sort_key.clone());
            engine.put(&Item { partition_key, sort_key, attributes }, self.deadline).await
        };
        let Err(error) = written else { return Ok(Some(Reply::ok(Members::new()))) };
        // Nothing was stored. DynamoDB's own text comes with the next request.
        let is_refused =
            matches!(error.kind, Invalid(_) | NotArmed { .. } | Table(TableError::Rejected(_)));
        if is_refused { Ok(None) } else { Err(error.into()) }
    }

    fn operation(&self) -> Operation {
        match self.operation {
            "PutItem" => Operation::Put,
            "DeleteItem" => Operation::Delete,
            _ => Operation::Update { creates: self.clauses.creates() },
        }
    }

    fn units(&self) -> u64 {
        let item = self.body.get("Item");
        item.map_or(UNKNOWN_UNITS, |item| write_units(item.to_string().len()))
    }

    async fn attempts(&self, session: &mut KeyJob<'_>) -> Result<Reply, Failure> {
        let now = || self.table.engine.now();
        let mut write =
            ExpressedWrite::new(self.operation(), session.waits(), session.tie_breaker());
        let mut view = session.view().await?;
        let (mut pulled, mut last) = (Vec::new(), None);
        let (pause_ends, mut refusals) = (Instant::now() + LONGEST_PAUSE, 0);
        loop {
            let places = session.places(&self.sort_key, &view);
            match write.next((&view, &places, now())) {
                Next::Done(outcome) => {
                    session.end().await;
                    return self.end(outcome, last, session, &view);
                }
                Next::Look(None) => view = session.view().await?,
                Next::Look(Some(since)) => {
                    view = match session.view_since(since).await {
                        Ok(view) => view,
                        // It may have been applied, and no newer view has confirmed it.
                        Err(_) if write.is_over() => return Err(Failure::unknown()),
                        Err(error) => return Err(error.into()),
                    }
                }
                Next::Verify(since) => view = session.verify(since).await?,
                Next::Pause => {
                    if !session.wait_for_open(pause_ends.min(self.deadline)).await? {
                        return Err(Failure::throttled(
                            "sharding-endpoint: the key is being spread over more shards",
                        ));
                    }
                    view = session.view().await?;
                }
                Next::Read => {
                    let of = (self.key, &self.sort_key);
                    pulled = copies(self.table, session, of, &places, &Members::new()).await?;
                    let copies: Vec<(ShardNumber, Copy)> =
                        pulled.iter().map(|(shard, raw)| (*shard, item::copy(raw))).collect();
                    write.read(&copies, (&view, &places, now()));
                }
                Next::Send(request) => {
                    if Instant::now() >= self.deadline {
                        return Err(Failure::throttled(OUT_OF_TIME));
                    }
                    let (answer, reply) =
                        self.send(session, &request, (&places, &view), &pulled).await?;
                    // Another writer is changing the same item.
                    let is_refused = matches!(answer, Answer::Refused(_));
                    refusals += u32::from(is_refused);
                    let waits = answer == Answer::Rejected || is_refused && refusals > 2;
                    write.answered(&request, answer, (&view, &places, now()));
                    if waits && !write.is_over() {
                        if !session.pause().await {
                            let reply = reply.filter(|reply| reply.throttled().is_some());
                            let out_of_time = || Failure::throttled(OUT_OF_TIME);
                            return Err(reply.map_or_else(out_of_time, Failure::of));
                        }
                        view = session.view().await?;
                    }
                    last = reply;
                }
            }
        }
    }

    /// Sends one request to the item's home.
    async fn send(
        &self,
        session: &mut KeyJob<'_>,
        request: &Request,
        (places, view): (&Places, &Arc<View>),
        read: &[(ShardNumber, Members)],
    ) -> Result<(Answer, Option<Reply>), Failure> {
        let (home, width) = (places.home, view.layout.number_of_shards);
        let stored_key = shard_key(session, home);
        let (operation, body) = compose(self, request, (home, width, &stored_key), read)?;
        let lasts = session.lasts(view);
        let place = (home, width);
        let reply = match self.table.upstream.call(operation, &body, &lasts).await {
            Sent::Answered(reply) => reply,
            Sent::Unsent(why) => {
                tracing::debug!(why, "a request was not sent");
                return Ok((Answer::Rejected, None));
            }
            Sent::Unanswered(why) => {
                tracing::warn!(why, "no answer from DynamoDB");
                return Ok((Answer::Unanswered, None));
            }
        };
        if reply.is_ok() {
            session.attempted(place, &self.sort_key, self.units(), None);
            return Ok((Answer::Applied, Some(reply)));
        }
        if reply.status.is_server_error() {
            return Ok((Answer::Unanswered, None));
        }
        if let Some(scope) = reply.throttled() {
            session.attempted(place, &self.sort_key, self.units(), Some(scope));
            return Ok((Answer::Rejected, Some(reply)));
        }
        match reply.error_type().as_str() {
            "ConditionalCheckFailedException" => {
                session.attempted(place, &self.sort_key, self.units(), None);
                let stored = reply.members().get("Item").and_then(Value::as_object).cloned();
                let stored = stored.filter(|it| self.table.counts(it, self.key, home));
                Ok((Answer::Refused(stored.as_ref().map(item::copy)), Some(reply)))
            }
            "TransactionConflictException" | "ReplicatedWriteConflictException" => {
                Ok((Answer::Rejected, None))
            }
            // DynamoDB says what is wrong with the request.
            _ => Err(Failure::of(reply)),
        }
    }

    fn end(
        &self,
        outcome: Outcome,
        last: Option<Reply>,
        session: &KeyJob<'_>,
        view: &View,
    ) -> Result<Reply, Failure> {
        let wants = |member: &str| item::text(self.body, member).unwrap_or("NONE");
        // What was found on a tombstone is not shown.
        let (member, is_shown) = match outcome {
            Outcome::Applied { on_item } => {
                session.wrote(view, &self.sort_key, self.units());
                let changes_nothing = self.operation() == (Operation::Update { creates: false });
                let is_old = changes_nothing || wants("ReturnValues").ends_with("_OLD");
                ("Attributes", on_item || !is_old)
            }
            Outcome::Refused { on_item } => {
                ("Item", on_item && wants("ReturnValuesOnConditionCheckFailure") == "ALL_OLD")
            }
            Outcome::Unknown => return Err(Failure::unknown()),
            Outcome::Lost => {
                tracing::error!(key = self.key.as_str(), "an item is of a later era: rebuild");
                return Err(Failure::internal(
                    "sharding-endpoint: the key's metadata is lost; rebuild it from the table",
                ));
            }
        };
        let reply = last.ok_or_else(Failure::unknown)?;
        let mut body = reply.members();
        if let Some(Value::Object(mut shown)) = body.remove(member) {
            self.table.strip(&mut shown, self.key);
            if is_shown && !shown.is_empty() {
                body.insert(member.to_owned(), Value::Object(shown));
            }
        }
        let metrics = body.get_mut("ItemCollectionMetrics");
        let key = metrics.and_then(|it| it.get_mut("ItemCollectionKey")?.as_object_mut());
        if let Some(key) = key {
            self.table.strip(key, self.key);
        }
        Ok(reply.with_body(&Value::Object(body)))
    }
}
