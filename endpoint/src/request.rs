//! The request that is sent for a client's write: the client's, with our part of its condition, its
//! version, and the key of the item's home.

use serde_json::{Value, json};
use sharding::internal::protocol::expressed::{Action, Base, NewVersion, Request};
use sharding::internal::protocol::names::{
    DELETED, LATE_UNTIL, LOGICAL_KEY, VERSION, WIDTH, WRITE_ID,
};
use sharding::{ShardCount, ShardNumber, Version};

use crate::expression::{Clauses, Placeholders, changed_by, grouped, placeholders, renamed};
use crate::item::{number, sort_key_value, string};
use crate::reply::{Failure, Members};
use crate::write::ClientWrite;

/// A name that no item has.
const NO_NAME: &str = "_sh:0";

/// A request to DynamoDB.
#[derive(Debug)]
pub(crate) struct Composed {
    pub(crate) operation: &'static str,
    pub(crate) body: Members,
}

/// Where the request goes: the shard, the width under which the item is placed there, and the
/// shard's stored key.
type Home<'a> = (ShardNumber, ShardCount, &'a str);

/// Puts a request together. For a pull, `pulled` is the copy that goes home.
pub(crate) fn compose(
    write: &ClientWrite<'_>,
    request: &Request,
    home: Home<'_>,
    pulled: Option<&Members>,
) -> Result<Composed, Failure> {
    let mut parts = Parts::new(write, home, request);
    let operation = match &request.action {
        Action::Put(version) => {
            let item = write.body.get("Item").and_then(Value::as_object).cloned();
            parts.put(item.unwrap_or_default(), *version, request.late_until)
        }
        Action::Bury { version, write_id, may_expire } => {
            let mut item = Members::new();
            item.insert(write.table.sort_key_name().to_owned(), sort_key_value(&write.sort_key));
            item.insert(DELETED.to_owned(), json!({ "BOOL": true }));
            if let Some(write_id) = write_id {
                item.insert(WRITE_ID.to_owned(), string(write_id));
            }
            let ttl = write.table.engine.config().ttl_attribute.as_deref();
            if let (Some(ttl), Some(until), true) = (ttl, request.late_until, may_expire) {
                item.insert(ttl.to_owned(), number(until));
            }
            parts.require_write_id(write_id.as_deref());
            parts.body.remove("Key");
            parts.put(item, *version, request.late_until)
        }
        Action::Remove => {
            parts.set_key();
            "DeleteItem"
        }
        // It evaluates the client's condition, and there is nothing to delete.
        Action::Nothing => {
            parts.set_key();
            if write.operation != "DeleteItem" {
                parts.body.remove("ReturnValues");
                parts.replaced.extend(
                    parts.update.as_deref().map(|text| placeholders(&[text])).unwrap_or_default(),
                );
            }
            "DeleteItem"
        }
        Action::Update(version) => {
            let (clauses, revives) = match (request.base, version) {
                // It creates nothing, and there is nothing of which it could remove a part.
                (Base::Tombstone(_), NewVersion::StepAbove(_)) => {
                    let update = parts.update.as_deref();
                    parts
                        .replaced
                        .extend(update.map(|text| placeholders(&[text])).unwrap_or_default());
                    (Clauses::default(), false)
                }
                (Base::Tombstone(_), NewVersion::Is(_)) => (write.clauses.clone(), true),
                _ => (write.clauses.clone(), false),
            };
            parts.update(clauses, *version, revives)
        }
        Action::Pull(_, version) => {
            let item = pulled
                .cloned()
                .ok_or_else(|| Failure::internal("sharding-endpoint: nothing was read to pull"))?;
            parts.pull(item, *version)
        }
    };
    Ok(Composed { operation, body: parts.finish(request) })
}

struct Parts<'a> {
    write: &'a ClientWrite<'a>,
    home: Home<'a>,
    body: Members,
    placeholders: Placeholders,
    /// Our parts of the condition.
    ours: Vec<String>,
    /// The client's part, if it is its request.
    condition: Option<String>,
    update: Option<String>,
    /// The client's placeholders that were replaced in an expression.
    replaced: Vec<String>,
}

impl<'a> Parts<'a> {
    fn new(write: &'a ClientWrite<'a>, home: Home<'a>, request: &Request) -> Self {
        let mut body = write.body.clone();
        for member in ["ConditionExpression", "UpdateExpression"] {
            body.remove(member);
        }
        // Nothing of the client's request is in a pull.
        let is_clients = !matches!(request.action, Action::Pull(..));
        let text = |member: &str| {
            let text = write.body.get(member).and_then(Value::as_str);
            text.filter(|_| is_clients).map(str::to_owned)
        };
        let of = if is_clients { write.body } else { &Members::new() };
        let mut parts = Self {
            write,
            home,
            body,
            placeholders: Placeholders::of(of),
            ours: Vec::new(),
            condition: None,
            update: text("UpdateExpression"),
            replaced: Vec::new(),
        };
        parts.condition = text("ConditionExpression").map(|text| parts.placed(&text, request.base));
        parts.require(request);
        parts
    }

    fn is_key_itself(&self) -> bool {
        self.write.table.is_key_itself(self.home.0)
    }

    /// The client's condition at this place. On a shard whose stored key is not the client's, its
    /// partition key is our logical key. On a tombstone, it must not see the keys, and the time at
    /// which the tombstone expires.
    fn placed(&mut self, text: &str, base: Base) -> String {
        let config = self.write.table.engine.config();
        let (key, sort_key) = (&config.partition_key_name, &config.sort_key_name);
        let ttl = config.ttl_attribute.as_deref();
        let is_tombstone = matches!(base, Base::Tombstone(_));
        let is_key_itself = self.is_key_itself();
        let new_name = |name: &str| {
            let is_hidden = name == key || name == sort_key || Some(name) == ttl;
            match (is_tombstone && is_hidden, name == key && !is_key_itself) {
                (true, _) => Some(NO_NAME),
                (false, true) => Some(LOGICAL_KEY),
                (false, false) => None,
            }
        };
        let (text, replaced) = renamed(text, &mut self.placeholders, new_name);
        self.replaced.extend(replaced);
        text
    }

    /// Our part of the condition.
    fn require(&mut self, request: &Request) {
        let proof = self.proof();
        let names = &mut self.placeholders;
        let exists = |names: &mut Placeholders, name: &str| {
            format!("attribute_exists({})", names.name(name))
        };
        let absent = |names: &mut Placeholders, name: &str| {
            format!("attribute_not_exists({})", names.name(name))
        };
        let version = |names: &mut Placeholders, sign: &str, version: Version| {
            format!("{} {sign} {}", names.name(VERSION), names.value(number(version)))
        };
        let ours = match request.base {
            Base::Absent => vec![absent(names, &proof)],
            Base::AbsentOrItem => vec![absent(names, DELETED)],
            Base::Item => vec![exists(names, &proof), absent(names, DELETED)],
            Base::AbsentOrBelow(above) => {
                let (none, below) = (absent(names, VERSION), version(names, "<", above));
                vec![format!("({none} OR {below})"), absent(names, DELETED)]
            }
            Base::OfEra(era, below) => {
                let next = Version::lowest_of(era + 1);
                vec![
                    version(names, ">=", Version::lowest_of(era)),
                    version(names, "<", below.unwrap_or(next)),
                    absent(names, DELETED),
                ]
            }
            Base::Exactly(Version::NONE) => vec![exists(names, &proof), absent(names, VERSION)],
            Base::Exactly(exactly) => {
                vec![version(names, "=", exactly), absent(names, DELETED)]
            }
            Base::Tombstone(exactly) => vec![version(names, "=", exactly), exists(names, DELETED)],
        };
        self.ours.extend(ours);
        if request.lost_until < u64::MAX && request.base != Base::Absent {
            let mark = self.placeholders.name(LATE_UNTIL);
            let until = self.placeholders.value(number(request.lost_until));
            self.ours.push(format!("(attribute_not_exists({mark}) OR {mark} <= {until})"));
        }
    }

    /// A tombstone keeps the write id of what it hides.
    fn require_write_id(&mut self, write_id: Option<&str>) {
        let name = self.placeholders.name(WRITE_ID);
        self.ours.push(match write_id {
            None => format!("attribute_not_exists({name})"),
            Some(write_id) => {
                let proof = self.proof();
                let proof = self.placeholders.name(&proof);
                let value = self.placeholders.value(string(write_id));
                format!("(attribute_not_exists({proof}) OR {name} = {value})")
            }
        });
    }

    /// An attribute that every item at home has, if it counts.
    fn proof(&self) -> String {
        if self.is_key_itself() {
            self.write.table.partition_key_name().to_owned()
        } else {
            LOGICAL_KEY.to_owned()
        }
    }

    /// The item as it is stored at home.
    fn put(
        &mut self,
        mut item: Members,
        version: Version,
        late_until: Option<u64>,
    ) -> &'static str {
        let (_, width, stored_key) = self.home;
        item.insert(self.write.table.partition_key_name().to_owned(), string(stored_key));
        if self.is_key_itself() {
            item.remove(LOGICAL_KEY);
        } else {
            item.insert(LOGICAL_KEY.to_owned(), string(self.write.key.as_str()));
        }
        item.insert(VERSION.to_owned(), number(version));
        if width == ShardCount::ONE {
            item.remove(WIDTH);
        } else {
            item.insert(WIDTH.to_owned(), number(width));
        }
        if let Some(until) = late_until {
            item.insert(LATE_UNTIL.to_owned(), number(until));
        }
        self.body.insert("Item".to_owned(), Value::Object(item));
        "PutItem"
    }

    /// A copy of another place goes home.
    fn pull(&mut self, item: Members, version: Version) -> &'static str {
        let table = self.body.remove("TableName");
        self.body = Members::new();
        self.body.extend(table.map(|table| ("TableName".to_owned(), table)));
        self.put(item, version, None)
    }

    fn set_key(&mut self) {
        let table = self.write.table;
        let key = json!({
            table.partition_key_name(): string(self.home.2),
            table.sort_key_name(): sort_key_value(&self.write.sort_key),
        });
        // What else the client's key has, DynamoDB refuses.
        let mut whole =
            self.body.get("Key").and_then(Value::as_object).cloned().unwrap_or_default();
        whole.extend(key.as_object().cloned().unwrap_or_default());
        self.body.insert("Key".to_owned(), Value::Object(whole));
    }

    /// An update of these clauses, which also sets what our items have.
    fn update(&mut self, mut clauses: Clauses, version: NewVersion, revives: bool) -> &'static str {
        self.set_key();
        let name = self.placeholders.name(VERSION);
        let new = match version {
            NewVersion::Is(version) => self.placeholders.value(number(version)),
            NewVersion::StepAbove(own) => {
                let own = self.placeholders.value(number(own));
                let step = self.placeholders.value(number(Version::STEP));
                format!("if_not_exists({name}, {own}) + {step}")
            }
        };
        clauses.and_set(&format!("{name} = {new}"));
        let (_, width, _) = self.home;
        if !self.is_key_itself() {
            let logical = self.placeholders.name(LOGICAL_KEY);
            let key = self.placeholders.value(string(self.write.key.as_str()));
            clauses.and_set(&format!("{logical} = {key}"));
        }
        if width != ShardCount::ONE {
            let (name, width) =
                (self.placeholders.name(WIDTH), self.placeholders.value(number(width)));
            clauses.and_set(&format!("{name} = {width}"));
        } else if matches!(version, NewVersion::Is(_)) {
            clauses.and_remove(&self.placeholders.name(WIDTH));
        }
        if revives {
            clauses.and_remove(&self.placeholders.name(DELETED));
            self.hide_expiry(&mut clauses);
        }
        self.update = Some(clauses.text());
        "UpdateItem"
    }

    /// A tombstone's time to live is not the item's: the client's update does not see it.
    fn hide_expiry(&mut self, clauses: &mut Clauses) {
        let Some(ttl) = self.write.table.engine.config().ttl_attribute.clone() else { return };
        if let Some(set) = &clauses.set {
            let (set, replaced) =
                crate::expression::renamed_on_the_right(set, &mut self.placeholders, |name| {
                    (name == ttl).then_some(NO_NAME)
                });
            clauses.set = Some(set);
            self.replaced.extend(replaced);
        }
        if !changed_by(&self.write.clauses, &self.placeholders).contains(&ttl) {
            clauses.and_remove(&self.placeholders.name(&ttl));
        }
    }

    fn finish(mut self, request: &Request) -> Members {
        let mut condition = self.ours.join(" AND ");
        if let Some(text) = &self.condition {
            condition = format!("{condition} AND {}", grouped(text));
        }
        let body = &mut self.body;
        let is_update = !matches!(
            request.action,
            Action::Put(_)
                | Action::Bury { .. }
                | Action::Remove
                | Action::Nothing
                | Action::Pull(..)
        );
        let update = self.update.filter(|_| is_update);
        let used: Vec<&str> =
            [Some(condition.as_str()), update.as_deref()].into_iter().flatten().collect();
        self.placeholders.into_body(body, &self.replaced, &used);
        if let Some(update) = update {
            body.insert("UpdateExpression".to_owned(), Value::from(update));
        }
        body.insert("ConditionExpression".to_owned(), Value::from(condition));
        body.insert("ReturnValuesOnConditionCheckFailure".to_owned(), Value::from("ALL_OLD"));
        self.body
    }
}
