//! The states of an item in the sharded table, each with the item that a plain table has.

use serde_json::{Value, json};
use sharding::{PartitionKey, Placement, ShardCount, ShardNumber, SortKey, Version};

use crate::world::{PLAIN, SHARDED, World};

/// A key that never grew, and one that had 1, 4 and 8 shards.
pub(crate) const ONE: &str = "one";
pub(crate) const GROWN: &str = "grown";
const ERA: u64 = 3;

#[derive(Debug, Clone, Copy)]
pub(crate) enum At {
    First,
    Home,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Stored {
    Item(u64),
    /// Of another program.
    Plain,
    Tombstone(u64),
    /// With a time at which it expires.
    Expiring(u64),
    /// At a further shard, and not ours.
    Foreign,
}

impl Stored {
    const fn era(self) -> Option<u64> {
        match self {
            Self::Item(era) | Self::Tombstone(era) | Self::Expiring(era) => Some(era),
            Self::Plain | Self::Foreign => None,
        }
    }
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) key: &'static str,
    copies: &'static [(At, Stored)],
    pub(crate) has_item: bool,
}

pub(crate) const CASES: [Case; 15] = {
    use At::{First, Home};
    use Stored::{Expiring, Foreign, Item, Plain, Tombstone};
    const fn case(
        name: &'static str,
        key: &'static str,
        copies: &'static [(At, Stored)],
        has_item: bool,
    ) -> Case {
        Case { name, key, copies, has_item }
    }
    [
        case("one place, nothing", ONE, &[], false),
        case("one place, an item", ONE, &[(First, Item(1))], true),
        case("one place, another program's item", ONE, &[(First, Plain)], true),
        case("one place, a tombstone", ONE, &[(First, Tombstone(1))], false),
        case("one place, a tombstone that expires", ONE, &[(First, Expiring(1))], false),
        case("nothing", GROWN, &[], false),
        case("an item of this era at home", GROWN, &[(Home, Item(ERA)), (First, Item(1))], true),
        case("an item of an earlier era", GROWN, &[(Home, Item(2)), (First, Item(1))], true),
        case("an item at the old place", GROWN, &[(First, Item(1))], true),
        case("the newest item at the old place", GROWN, &[(Home, Item(1)), (First, Item(2))], true),
        case("another program's item at the old place", GROWN, &[(First, Plain)], true),
        case("a tombstone at the old place", GROWN, &[(First, Tombstone(2))], false),
        case("an older item at home", GROWN, &[(Home, Item(1)), (First, Tombstone(2))], false),
        case("a tombstone at home", GROWN, &[(Home, Tombstone(ERA)), (First, Item(1))], false),
        case("a foreign item at home", GROWN, &[(Home, Foreign), (First, Item(1))], true),
    ]
};

fn homes(key: &str, sort_key: &str) -> impl Fn(u32) -> u32 {
    let key = PartitionKey::new(key).expect("a key");
    let sort_key = SortKey::try_from(sort_key).expect("a sort key");
    move |width| {
        let width = ShardCount::new(width).expect("a width");
        let home = Placement::Calculated.home(&key, &sort_key, width);
        home.unwrap_or(ShardNumber::FIRST).get()
    }
}

/// Sort keys whose home is the same under 4 and 8 shards, and not the first.
pub(crate) fn sort_keys() -> impl Iterator<Item = String> {
    (0..).map(|number| format!("s{number}")).filter(|sort_key| {
        let home = homes(GROWN, sort_key);
        home(8) != 1 && home(8) == home(4)
    })
}

pub(crate) fn attributes() -> Value {
    json!({
        "n": {"N": "1"},
        "s": {"S": "text"},
        "m": {"M": {"x": {"N": "1"}}},
        "l": {"L": [{"N": "1"}, {"N": "2"}]},
        "ss": {"SS": ["a", "b"]},
    })
}

pub(crate) fn keyed(key: &str, sort_key: &str, attributes: &Value) -> Value {
    let mut item = attributes.clone();
    item["pk"] = json!({ "S": key });
    item["sk"] = json!({ "S": sort_key });
    item
}

impl Case {
    pub(crate) fn store(&self, world: &World, sort_key: &str) {
        let home = if self.key == ONE { 1 } else { homes(self.key, sort_key)(8) };
        for (at, stored) in self.copies {
            let shard = match at {
                At::First => 1,
                At::Home => home,
            };
            world.store(SHARDED, &self.copy(sort_key, shard, *stored));
        }
        if self.has_item {
            world.store(PLAIN, &keyed(self.key, sort_key, &attributes()));
        }
    }

    fn copy(&self, sort_key: &str, shard: u32, stored: Stored) -> Value {
        let shard_key = match shard {
            1 => self.key.to_owned(),
            shard => format!("{}\u{1f}s{shard}", self.key),
        };
        let newest = self.copies.iter().filter_map(|(_, copy)| copy.era()).max();
        let attributes = match stored {
            Stored::Item(_) if stored.era() == newest => attributes(),
            Stored::Plain => attributes(),
            Stored::Item(_) | Stored::Foreign => {
                json!({ "stale": {"BOOL": true}, "n": {"N": "77"} })
            }
            Stored::Tombstone(_) => json!({ "_sh:d": {"BOOL": true} }),
            Stored::Expiring(_) => {
                let expires = json!({ "N": "99999999999" });
                json!({ "_sh:d": {"BOOL": true}, "ttl": expires, "_sh:l": expires })
            }
        };
        let mut item = keyed(&shard_key, sort_key, &attributes);
        if let Some(era) = stored.era() {
            item["_sh:v"] = json!({ "N": Version::new(era, 1_000_000, 5).to_string() });
            if shard != 1 {
                item["_sh:k"] = json!({ "S": self.key });
            }
        }
        item
    }
}

/// Whether an answer shows something that only the product stores.
pub(crate) fn leaks(answer: &Value) -> bool {
    let text = answer.to_string();
    text.contains("_sh:") || text.contains('\u{1f}') || text.contains("\\u001f")
}

/// An answer in which sets and lists of attributes have one order.
pub(crate) fn comparable(mut answer: Value) -> Value {
    sort_sets(&mut answer);
    answer
}

fn sort_sets(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if let ("SS" | "NS" | "BS", Value::Array(members)) = (name.as_str(), &mut *value) {
                    members.sort_by_key(ToString::to_string);
                } else {
                    sort_sets(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(sort_sets),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
