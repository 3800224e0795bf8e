//! Writes of armed keys: plain ones by the crate, all others as requests of the client's together
//! with a condition of the protocol.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sharding::internal::protocol::copies::{Answer, Copy};
use sharding::internal::protocol::expressed::{ExpressedWrite, Next, Operation, Outcome, Request};
use sharding::internal::protocol::layout::Places;
use sharding::internal::protocol::view::View;
use sharding::internal::{FailedWrite, KeySession, write_units};
use sharding::{
    Item, MAX_ITEM_BYTES, PartitionKey, ShardNumber, SortKey, TableError, WriteErrorKind,
};
use tokio::time::Instant;

use crate::expression::{self, Clauses, Placeholders};
use crate::item;
use crate::read::{copies, shard_key};
use crate::reply::{Failure, Members, Reply};
use crate::request::compose;
use crate::table::ServedTable;
use crate::upstream::Sent;

/// How long a write waits while the key's width changes.
const LONGEST_PAUSE: Duration = Duration::from_millis(1_500);
const OUT_OF_TIME: &str = "sharding-endpoint: no attempt succeeded in time";
/// The write units of a request whose item is not known.
const UNKNOWN_UNITS: u64 = 1;

/// The members of a write of an armed key. Any other is refused.
const MEMBERS: [&str; 11] = [
    "TableName",
    "Item",
    "Key",
    "UpdateExpression",
    "ConditionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "ReturnValues",
    "ReturnConsumedCapacity",
    "ReturnItemCollectionMetrics",
    "ReturnValuesOnConditionCheckFailure",
];

/// A write of one item of an armed key, as the client sent it.
#[derive(Debug)]
pub(crate) struct ClientWrite<'a> {
    pub(crate) table: &'a ServedTable,
    pub(crate) operation: &'a str,
    pub(crate) key: &'a PartitionKey,
    pub(crate) sort_key: SortKey,
    pub(crate) body: &'a Members,
    /// The clauses of an update.
    pub(crate) clauses: Clauses,
    pub(crate) deadline: Instant,
}

/// Refuses members that are on none of these lists.
pub(crate) fn check_members(
    operation: &str,
    body: &Members,
    lists: &[&[&str]],
) -> Result<(), Failure> {
    let is_known = |name: &str| lists.iter().any(|known| known.contains(&name));
    match body.keys().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::unsupported(&format!("{name} of {operation}"))),
    }
}

impl<'a> ClientWrite<'a> {
    /// Reads a client's request.
    pub(crate) fn read(
        table: &'a ServedTable,
        operation: &'a str,
        key: &'a PartitionKey,
        body: &'a Members,
        deadline: Instant,
    ) -> Result<Self, Failure> {
        check_members(operation, body, &[&MEMBERS])?;
        let of = if operation == "PutItem" { "Item" } else { "Key" };
        let item = item::map(body, of);
        item::check_names(item.keys().map(String::as_str))?;
        let sort_key = if of == "Key" {
            item::check_is_key(&item)?;
            item::sort_key(table, &item)?
        } else {
            item::sort_key_to_put(table, &item)?
        };
        let shown = item::text(body, "ReturnValuesOnConditionCheckFailure").unwrap_or("NONE");
        if !["NONE", "ALL_OLD"].contains(&shown) {
            return Err(Failure::validation(format!(
                "1 validation error detected: Value '{shown}' at \
                 'returnValuesOnConditionCheckFailure' failed to satisfy constraint: Member must \
                 satisfy enum value set: [ALL_OLD, NONE]"
            )));
        }
        let placeholders = Placeholders::of(body);
        for name in ["ConditionExpression", "UpdateExpression"] {
            if !expression::is_balanced(item::text(body, name).unwrap_or_default()) {
                let why = "Syntax error; a parenthesis has no partner";
                return Err(Failure::validation(format!("Invalid {name}: {why}")));
            }
            expression::check(body, name, &placeholders)?;
        }
        let clauses = Clauses::parse(item::text(body, "UpdateExpression").unwrap_or_default())
            .ok_or_else(|| Failure::validation("Invalid UpdateExpression: Syntax error"))?;
        let keys = [table.partition_key_name(), table.sort_key_name()];
        let set = clauses.set.as_deref().unwrap_or_default();
        if expression::read_by_set(set, &placeholders).iter().any(|name| keys.contains(name)) {
            return Err(Failure::unsupported("a key name on the right-hand side of an update"));
        }
        Ok(Self { table, operation, key, sort_key, body, clauses, deadline })
    }

    /// Carries the write out.
    pub(crate) async fn run(self) -> Result<Reply, Failure> {
        let mut session = self.table.engine.session(self.key, self.deadline);
        if session.counts().await?
            && let Some(done) = self.plain().await?
        {
            return Ok(done);
        }
        let reply = self.attempts(&mut session).await;
        let outcome = match &reply {
            Ok(reply) => reply.throttled().map(|_| FailedWrite::NoCapacity),
            Err(failure) => failure.outcome(),
        };
        if let Some(outcome) = outcome {
            session.failed(outcome);
        }
        if let Err(failure) = &reply {
            tracing::debug!(?failure, operation = self.operation, "a write was not acknowledged");
        }
        reply
    }

    /// A put or a deletion without condition and without a result is the crate's. `None` if it is
    /// something else, or if DynamoDB must say what is wrong with it.
    async fn plain(&self) -> Result<Option<Reply>, Failure> {
        use WriteErrorKind::{Invalid, NotArmed, Table};
        let is_default =
            |name: &str| self.body.get(name).is_none_or(|value| value.as_str() == Some("NONE"));
        let is_plain = self.operation != "UpdateItem"
            && !self.body.contains_key("ConditionExpression")
            && !self.body.contains_key("ExpressionAttributeNames")
            && !self.body.contains_key("ExpressionAttributeValues")
            && ["ReturnValues", "ReturnConsumedCapacity", "ReturnItemCollectionMetrics"]
                .into_iter()
                .all(is_default);
        if !is_plain {
            return Ok(None);
        }
        let engine = &self.table.engine;
        let written = if self.operation == "DeleteItem" {
            engine.delete(self.key, &self.sort_key, self.deadline).await
        } else {
            let item = self.body.get("Item").and_then(Value::as_object);
            let attributes = item.and_then(|item| item::attributes(self.table, item));
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

    async fn attempts(&self, session: &mut KeySession<'_>) -> Result<Reply, Failure> {
        let now = || self.table.engine.now();
        let mut write =
            ExpressedWrite::new(self.operation(), session.waits(), session.tie_breaker());
        let mut view = session.view().await?;
        let (mut pulled, mut last) = (Vec::new(), None);
        let (pause_ends, mut refusals) = (Instant::now() + LONGEST_PAUSE, 0);
        loop {
            let places = session.places(&self.sort_key, &view);
            match write.next(&view, &places, now()) {
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
                    write.read(&copies, &places, &view, now());
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
                    write.answered(&request, answer, &places, &view, now());
                    if waits && !write.is_over() {
                        if !session.pause().await {
                            let reply = reply.filter(|reply| reply.throttled().is_some());
                            return reply.ok_or_else(|| Failure::throttled(OUT_OF_TIME));
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
        session: &mut KeySession<'_>,
        request: &Request,
        (places, view): (&Places, &Arc<View>),
        read: &[(ShardNumber, Members)],
    ) -> Result<(Answer, Option<Reply>), Failure> {
        let (home, width) = (places.home, view.layout.number_of_shards);
        let stored_key = shard_key(session, home)?;
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
                let stored = stored.filter(|it| item::counts(self.table, it, self.key, home));
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
        session: &KeySession<'_>,
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
            item::strip(self.table, &mut shown, self.key);
            if is_shown && !shown.is_empty() {
                body.insert(member.to_owned(), Value::Object(shown));
            }
        }
        let metrics = body.get_mut("ItemCollectionMetrics");
        let key = metrics.and_then(|it| it.get_mut("ItemCollectionKey")?.as_object_mut());
        if let Some(key) = key {
            item::strip(self.table, key, self.key);
        }
        Ok(reply.with_body(&Value::Object(body)))
    }
}
