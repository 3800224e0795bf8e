//! A create-only write recognises its own earlier attempt by the write id that is stored.

use uuid::Builder;

use crate::values::content;
use crate::values::idempotency::IdempotencyKey;
use crate::values::value::Item;

/// For requests with an idempotency key. The content's digest, a colon and the key follow.
const REQUEST_PREFIX: &str = "idempotency-key:";

/// The same for all attempts of one create-only write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WriteId(String);

/// How the stored item relates to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteRelation {
    /// This write stored it, in an earlier attempt or request of the same client.
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
