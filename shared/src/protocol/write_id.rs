//! Write ids. A create-only write recognises its own earlier attempt by the write id that is stored
//! with the item.

use uuid::Builder;

use crate::values::content;
use crate::values::idempotency::IdempotencyKey;
use crate::values::value::Item;

/// The prefix of write ids of requests with an idempotency key. The content's digest, a colon and
/// the key follow.
const REQUEST_PREFIX: &str = "idempotency-key:";

/// The id of one create-only write, the same for all its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WriteId(String);

/// How the stored item relates to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteRelation {
    /// This write stored it, in an earlier attempt or in an earlier request of the same client.
    Same,
    /// A request with the same idempotency key stored it, with a different content.
    OtherContent,
    Other,
}

impl WriteId {
    /// The id of a write that its client does not repeat.
    pub fn random(bytes: [u8; 16]) -> Self {
        Self(Builder::from_random_bytes(bytes).into_uuid().to_string())
    }

    /// The id of a write that its client may repeat under this key.
    pub fn of_request(key: &IdempotencyKey, item: &Item) -> Self {
        Self(format!("{REQUEST_PREFIX}{}:{key}", content::id(&item.attributes).simple()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How an item with this write id relates to the write.
    pub fn relation(&self, stored: Option<&str>) -> WriteRelation {
        let key = |id: &str| Some(id.strip_prefix(REQUEST_PREFIX)?.split_once(':')?.1.to_owned());
        match stored {
            Some(stored) if stored == self.0 => WriteRelation::Same,
            Some(stored) if key(stored).is_some() && key(stored) == key(&self.0) => {
                WriteRelation::OtherContent
            }
            _ => WriteRelation::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::{key, text};
    use crate::values::value::{Attributes, Value};

    #[test]
    fn a_request_is_known_by_its_key_and_its_content() {
        let one = || Value::N("1".into());
        let own = id("a:b", "x", one());
        let random = WriteId::random([1; 16]);
        let rows = [
            (id("a:b", "x", one()), WriteRelation::Same),
            (id("a:b", "x", Value::S("1".into())), WriteRelation::OtherContent),
            (id("a:b", "y", one()), WriteRelation::OtherContent),
            (id("a:b", "x", Value::L(vec![one()])), WriteRelation::OtherContent),
            (id("b", "x", one()), WriteRelation::Other),
            (random.clone(), WriteRelation::Other),
        ];
        for (stored, expected) in rows {
            assert_eq!(own.relation(Some(stored.as_str())), expected, "{stored:?}");
        }
        assert_eq!(own.relation(None), WriteRelation::Other);
        assert_eq!(random.relation(Some(random.as_str())), WriteRelation::Same);
    }

    fn id(idempotency_key: &str, name: &str, value: Value) -> WriteId {
        let attributes = Attributes::from([(name.to_owned(), value)]);
        let item = Item { partition_key: key("p"), sort_key: text("s"), attributes };
        WriteId::of_request(&IdempotencyKey::new(idempotency_key).unwrap(), &item)
    }
}
