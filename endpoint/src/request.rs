//! A client's write of one item of an armed key, and the request that is sent for it: the client's,
//! with our part of its condition, its version, and the key of the item's home.

use serde_json::{Value, json};
use sharding::internal::protocol::expressed::{Action, Base, Request};
use sharding::internal::protocol::names::{
    DELETED, LATE_UNTIL, LOGICAL_KEY, VERSION, WIDTH, WRITE_ID,
};
use sharding::{PartitionKey, ShardCount, ShardNumber, SortKey, Version};
use tokio::time::Instant;

use crate::expression::{self, Clauses, Placeholders, grouped, renamed};
use crate::item::{self, check_members, number, sort_key_value, string};
use crate::reply::{Failure, Members};
use crate::table::{ServedTable, check_is_key};

/// A name that no item has.
const NO_NAME: &str = "_sh:0";

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

impl<'a> ClientWrite<'a> {
    /// Reads a client's request.
    pub(crate) fn read(
        table: &'a ServedTable,
        operation: &'a str,
        key: &'a PartitionKey,
        body: &'a Members,
        deadline: Instant,
    ) -> Result<Self, Failure> {
        check_members(operation, body)?;
        let of = if operation == "PutItem" { "Item" } else { "Key" };
        let item = item::map(body, of);
        item::check_names(item.keys().map(String::as_str))?;
        let sort_key = if of == "Key" {
            check_is_key(&item)?;
            table.sort_key(&item)?
        } else {
            table.sort_key_to_put(&item)?
        };
        let shown = item::text(body, "ReturnValuesOnConditionCheckFailure").unwrap_or("NONE");
        if !["NONE", "ALL_OLD"].contains(&shown) {
            return Err(Failure::validation(format!(
                "1 validation error detected: Value '{shown}' at \
                 'returnValuesOnConditionCheckFailure' failed to satisfy constraint: Member must \
                 satisfy enum value set: [ALL_OLD, NONE]"
            )));
        }
        if operation != "UpdateItem" && body.contains_key("UpdateExpression") {
            return Err(Failure::unsupported(&format!("UpdateExpression of {operation}")));
        }
        let placeholders = Placeholders::of(body);
        for name in ["ConditionExpression", "UpdateExpression"] {
            expression::check(body, name, &placeholders)?;
        }
        let clauses = Clauses::parse(item::text(body, "UpdateExpression").unwrap_or_default())
            .ok_or_else(|| Failure::validation("Invalid UpdateExpression: Syntax error"))?;
        let keys = [table.partition_key_name(), table.sort_key_name()];
        if clauses.read(&placeholders).iter().any(|name| keys.contains(name)) {
            return Err(Failure::unsupported("a key name on the right-hand side of an update"));
        }
        Ok(Self { table, operation, key, sort_key, body, clauses, deadline })
    }
}

/// Where the request goes: the shard, the width under which the item is placed there, and the
/// shard's stored key.
type Home<'a> = (ShardNumber, ShardCount, &'a str);

/// Puts a request together: its operation and its body. A pull takes home one of the copies that
/// were read.
pub(crate) fn compose(
    write: &ClientWrite<'_>,
    request: &Request,
    home: Home<'_>,
    read: &[(ShardNumber, Members)],
) -> Result<(&'static str, Members), Failure> {
    let mut parts = Parts::new(write, home, request);
    let operation = match &request.action {
        Action::Put(version) => {
            parts.put(item::map(write.body, "Item"), *version, request.marks.late_until)
        }
        Action::Bury { version, write_id, may_expire } => {
            let mut item = Members::new();
            item.insert(write.table.sort_key_name().to_owned(), sort_key_value(&write.sort_key));
            item.insert(DELETED.to_owned(), json!({ "BOOL": true }));
            item.extend(write_id.as_ref().map(|id| (WRITE_ID.to_owned(), string(id))));
            let ttl = write.table.engine.config().ttl_attribute.as_deref();
            if let (Some(ttl), Some(until), true) = (ttl, request.marks.late_until, may_expire) {
                item.insert(ttl.to_owned(), number(until));
            }
            parts.body.remove("Key");
            parts.put(item, *version, request.marks.late_until)
        }
        // `Nothing` evaluates the client's condition, and there is nothing to delete.
        Action::Remove | Action::Nothing => {
            parts.set_key();
            if write.operation != "DeleteItem" {
                parts.body.remove("ReturnValues");
            }
            "DeleteItem"
        }
        Action::Update { version, raises } => {
            let is_tombstone = matches!(request.base, Base::Tombstone(_));
            let revives = is_tombstone && !raises;
            // On a tombstone, it may create nothing, and there is no part that it could remove.
            let none = is_tombstone && !revives;
            let clauses = if none { Clauses::default() } else { write.clauses.clone() };
            parts.update(clauses, (*version, *raises), revives)
        }
        Action::Pull(from, version) => {
            let (_, item) = read
                .iter()
                .find(|(shard, _)| shard == from)
                .ok_or_else(|| Failure::internal("sharding-endpoint: nothing was read to pull"))?;
            parts.put(item.clone(), *version, None)
        }
    };
    Ok((operation, parts.finish()))
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
}

impl<'a> Parts<'a> {
    fn new(write: &'a ClientWrite<'a>, home: Home<'a>, request: &Request) -> Self {
        // Nothing of the client's request is in a pull but its table.
        let is_pull = matches!(request.action, Action::Pull(..));
        let mut body = write.body.clone();
        body.retain(|name, _| match name.as_str() {
            "TableName" => true,
            "ConditionExpression" | "UpdateExpression" => false,
            _ => !is_pull,
        });
        let (placeholders, ours) = (Placeholders::of(&body), Vec::new());
        let mut parts = Self { write, home, body, placeholders, ours, condition: None };
        let condition = item::text(write.body, "ConditionExpression").filter(|_| !is_pull);
        parts.condition = condition.map(|text| parts.placed(text, request.base));
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
        let new_name = |name: &str, _| {
            let is_hidden = name == key || name == sort_key || Some(name) == ttl;
            let logical = (name == key && !is_key_itself).then_some(LOGICAL_KEY);
            if is_tombstone && is_hidden { Some(NO_NAME) } else { logical }
        };
        renamed(text, &mut self.placeholders, new_name)
    }

    fn require(&mut self, request: &Request) {
        let proof = self.proof();
        let names = &mut self.placeholders;
        let version = |names: &mut Placeholders, sign: &str, version: Version| {
            names.compared(VERSION, sign, number(version))
        };
        let ours = match request.base {
            Base::Absent => vec![names.absent(proof)],
            Base::AbsentOrItem => vec![names.absent(DELETED)],
            Base::Item => vec![names.exists(proof), names.absent(DELETED)],
            Base::AbsentOrBelow(above) => {
                let (none, below) = (names.absent(VERSION), version(names, "<", above));
                vec![format!("({none} OR {below})"), names.absent(DELETED)]
            }
            Base::OfEra(era, below) => {
                let next = Version::lowest_of(era + 1);
                vec![
                    version(names, ">=", Version::lowest_of(era)),
                    version(names, "<", below.unwrap_or(next)),
                    names.absent(DELETED),
                ]
            }
            Base::Exactly(Version::NONE) => vec![names.exists(proof), names.absent(VERSION)],
            Base::Exactly(exactly) => vec![version(names, "=", exactly), names.absent(DELETED)],
            Base::Tombstone(exactly) => vec![version(names, "=", exactly), names.exists(DELETED)],
        };
        self.ours.extend(ours);
        if request.marks.lost_until < u64::MAX && request.base != Base::Absent {
            let none = names.absent(LATE_UNTIL);
            let is_over = names.compared(LATE_UNTIL, "<=", number(request.marks.lost_until));
            self.ours.push(format!("({none} OR {is_over})"));
        }
        // A tombstone keeps the write id of what it hides.
        if let Action::Bury { write_id, .. } = &request.action {
            self.ours.push(match write_id {
                None => names.absent(WRITE_ID),
                Some(write_id) => {
                    let is_same = names.compared(WRITE_ID, "=", string(write_id));
                    format!("({} OR {is_same})", names.absent(proof))
                }
            });
        }
    }

    /// An attribute that every item at home has, if it counts.
    fn proof(&self) -> &'a str {
        if self.is_key_itself() { self.write.table.partition_key_name() } else { LOGICAL_KEY }
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
        item.insert(VERSION.to_owned(), number(version));
        let logical_key = (!self.is_key_itself()).then(|| string(self.write.key.as_str()));
        let width = (width != ShardCount::ONE).then(|| number(width));
        for (name, value) in [(LOGICAL_KEY, logical_key), (WIDTH, width)] {
            item.remove(name);
            item.extend(value.map(|value| (name.to_owned(), value)));
        }
        item.extend(late_until.map(|until| (LATE_UNTIL.to_owned(), number(until))));
        self.body.insert("Item".to_owned(), Value::Object(item));
        "PutItem"
    }

    fn set_key(&mut self) {
        let key = self.write.table.key(self.home.2, sort_key_value(&self.write.sort_key));
        self.body.insert("Key".to_owned(), Value::Object(key));
    }

    /// An update of these clauses, which also sets what our items have.
    fn update(
        &mut self,
        mut clauses: Clauses,
        (version, raises): (Version, bool),
        revives: bool,
    ) -> &'static str {
        self.set_key();
        let is_key_itself = self.is_key_itself();
        let names = &mut self.placeholders;
        let term = if raises {
            let (name, own) = (names.name(VERSION), names.value(number(version)));
            let step = names.value(number(Version::STEP));
            format!("{name} = if_not_exists({name}, {own}) + {step}")
        } else {
            names.compared(VERSION, "=", number(version))
        };
        clauses.and("SET", &term);
        if !is_key_itself {
            let key = string(self.write.key.as_str());
            clauses.and("SET", &names.compared(LOGICAL_KEY, "=", key));
        }
        let (_, width, _) = self.home;
        if width != ShardCount::ONE {
            clauses.and("SET", &names.compared(WIDTH, "=", number(width)));
        } else if !raises {
            clauses.and("REMOVE", &names.name(WIDTH));
        }
        if revives {
            clauses.and("REMOVE", &names.name(DELETED));
            self.hide_expiry(&mut clauses);
        }
        self.body.insert("UpdateExpression".to_owned(), Value::from(clauses.text()));
        "UpdateItem"
    }

    /// A tombstone's time to live is not the item's: the client's update does not see it.
    fn hide_expiry(&mut self, clauses: &mut Clauses) {
        let Some(ttl) = self.write.table.engine.config().ttl_attribute.clone() else { return };
        clauses.rename_read(&ttl, NO_NAME, &mut self.placeholders);
        if !self.write.clauses.changed(&self.placeholders).contains(&ttl.as_str()) {
            clauses.and("REMOVE", &self.placeholders.name(&ttl));
        }
    }

    fn finish(mut self) -> Members {
        self.ours.extend(self.condition.map(|text| grouped(&text)));
        let (condition, body) = (self.ours.join(" AND "), &mut self.body);
        body.insert("ConditionExpression".to_owned(), Value::from(condition));
        body.insert("ReturnValuesOnConditionCheckFailure".to_owned(), Value::from("ALL_OLD"));
        self.placeholders.into_body(body, self.write.body);
        self.body
    }
}
