//! One write of a register with DynamoDB's own request: its operation, its condition, and what its
//! answer shows.

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::linearizability::Kind;
use super::native::{Answer, Client, stored, value_in};
use super::registers::{Outcome, Sent};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Put,
    Update,
    Delete,
}

/// What the request requires of the item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    Absent,
    Exists,
    /// The item has the value that the client has read.
    AsRead(u64),
}

/// A write of a register.
#[derive(Debug)]
pub(super) struct Write {
    sort_key: String,
    deed: Deed,
    /// The value that a put or an update stores.
    value: u64,
    condition: Condition,
    /// Whether the client wants the values from before.
    returns_old: bool,
    /// Whether a refusal shows the item.
    shows_refusal: bool,
    /// Whether it is a put or a deletion that asks for nothing.
    is_plain: bool,
}

impl Write {
    pub(super) fn draw(rng: &mut StdRng, sort_key: String, value: u64) -> Self {
        let deed = match rng.random_range(0..10) {
            0..3 => Deed::Put,
            3..8 => Deed::Update,
            _ => Deed::Delete,
        };
        let condition = match rng.random_range(0..8) {
            0 | 1 => Condition::Absent,
            2 => Condition::Exists,
            3 | 4 => Condition::AsRead(0),
            _ => Condition::None,
        };
        let is_plain =
            condition == Condition::None && deed != Deed::Update && rng.random_range(0..3) > 0;
        let returns_old = !is_plain && rng.random_range(0..3) > 0;
        Self {
            sort_key,
            deed,
            value,
            condition,
            returns_old,
            shows_refusal: rng.random(),
            is_plain,
        }
    }

    fn leaves(&self) -> Option<u64> {
        (self.deed != Deed::Delete).then_some(self.value)
    }

    /// What it does if it takes effect.
    fn kind(&self) -> Kind {
        match self.condition {
            Condition::None => Kind::Set(self.leaves()),
            Condition::Absent => Kind::Swap(None, self.leaves()),
            Condition::Exists => Kind::Over(self.leaves()),
            Condition::AsRead(read) => Kind::Swap(Some(read), self.leaves()),
        }
    }

    /// Sends it. A change of a value reads the item first.
    pub(super) async fn send(mut self, client: &Client, rng: &mut StdRng) {
        if matches!(self.condition, Condition::AsRead(_)) {
            let tick = client.world.registers(client.which).now();
            let get = json!({
                "Key": stored(client.which, &self.sort_key, None),
                "ConsistentRead": true,
            });
            let Answer::Done(answer) = client.request("GetItem", get).await else { return };
            let read = value_in(&answer["Item"]);
            client.world.registers(client.which).read(&self.sort_key, read, tick);
            self.condition = read.map_or(Condition::Absent, Condition::AsRead);
        }
        let (operation, body) = self.request(client, rng);
        let sent = client.world.registers(client.which).sent(&self.sort_key, self.kind(), None);
        match client.request(operation, body).await {
            Answer::Done(answer) => self.applied(client, &sent, &answer),
            Answer::Refused(answer) => self.refused(client, &sent, &answer),
            Answer::Failed => client.ended(&sent, Outcome::Refused),
            Answer::Unknown if self.is_plain => client.unknown_plain(&sent),
            Answer::Unknown => client.ended(&sent, Outcome::Unknown),
        }
    }

    fn request(&self, client: &Client, rng: &mut StdRng) -> (&'static str, Value) {
        let (which, sort_key) = (client.which, self.sort_key.as_str());
        let number = |value: u64| json!({ "N": value.to_string() });
        let (operation, mut body) = match self.deed {
            Deed::Put => ("PutItem", json!({ "Item": stored(which, sort_key, Some(self.value)) })),
            Deed::Update => (
                "UpdateItem",
                json!({
                    "Key": stored(which, sort_key, None),
                    "UpdateExpression": "SET #v = :to",
                    "ExpressionAttributeNames": { "#v": "value" },
                    "ExpressionAttributeValues": { ":to": number(self.value) },
                }),
            ),
            Deed::Delete => ("DeleteItem", json!({ "Key": stored(which, sort_key, None) })),
        };
        if self.is_plain {
            return (operation, body);
        }
        body["ReturnConsumedCapacity"] = json!("TOTAL");
        let shown = if self.returns_old { "ALL_OLD" } else { "NONE" };
        body["ReturnValues"] = json!(shown);
        // Several conditions mean the same.
        let name = if rng.random() { "partition_key" } else { "sort_key" };
        let condition = match self.condition {
            Condition::None => return (operation, body),
            Condition::Absent => format!("attribute_not_exists({name})"),
            Condition::Exists => format!("attribute_exists({name})"),
            Condition::AsRead(read) => {
                body["ExpressionAttributeNames"]["#v"] = json!("value");
                body["ExpressionAttributeValues"][":from"] = number(read);
                "#v = :from".to_owned()
            }
        };
        body["ConditionExpression"] = json!(condition);
        if self.shows_refusal {
            body["ReturnValuesOnConditionCheckFailure"] = json!("ALL_OLD");
        }
        (operation, body)
    }

    fn applied(&self, client: &Client, sent: &Sent, answer: &Value) {
        if !self.returns_old {
            return client.ended(sent, Outcome::Done);
        }
        let old = value_in(&answer["Attributes"]);
        if self.kind().applied(old).is_none() {
            client.odd(&format!("{self:?} was applied to {old:?}"));
        }
        client.showed(sent, Kind::Swap(old, self.leaves()));
    }

    fn refused(&self, client: &Client, sent: &Sent, answer: &Value) {
        let shown = value_in(&answer["Item"]);
        let kind = match self.condition {
            Condition::None => return client.odd(&format!("{self:?} has no condition: {answer}")),
            _ if self.shows_refusal => {
                if self.kind().applied(shown).is_some() {
                    client.odd(&format!("{self:?} was refused on {shown:?}"));
                }
                Kind::Read(shown)
            }
            // No value is 0.
            Condition::Absent => Kind::Exists(0),
            Condition::Exists => Kind::Read(None),
            Condition::AsRead(read) => Kind::Differs(read),
        };
        client.showed(sent, kind);
    }
}
