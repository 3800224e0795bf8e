//! Idempotency keys. A client that repeats a request after a timeout stores one item.

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::values::content;
use crate::values::key::PartitionKey;
use crate::values::value::Attributes;

const MAX_CHARS: usize = 255;

/// The client's own name for one request, the same in every repetition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

/// The text is not an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it has {chars} characters, or one that is not visible ASCII; allowed: 1 to {MAX_CHARS} visible ASCII characters"
)]
pub struct IdempotencyKeyError {
    chars: usize,
}

impl IdempotencyKey {
    /// Accepts 1 to 255 visible ASCII characters.
    ///
    /// # Errors
    /// [`IdempotencyKeyError`] for anything else.
    pub fn new(text: &str) -> Result<Self, IdempotencyKeyError> {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_good = is_visible && (1..=MAX_CHARS).contains(&text.len());
        let wrong = || IdempotencyKeyError { chars: text.chars().count() };
        is_good.then(|| Self(text.to_owned())).ok_or_else(wrong)
    }

    /// The sort key of an item without one, from the partition key, the content, and the number of
    /// equal items before it in the request. So a client may repeat only the failed items, and
    /// another item replaces nothing.
    ///
    /// A UUID of version 8, which is not ordered by time; if the idempotency key is a UUID of
    /// version 7, one with the same time.
    pub fn sort_key(
        &self,
        partition_key: &PartitionKey,
        attributes: &Attributes,
        equals_before: usize,
    ) -> String {
        let (mut digest, of_item) = (Sha256::new(), content::digest(attributes));
        for part in
            [b"sort key".as_slice(), self.0.as_bytes(), partition_key.as_str().as_bytes(), &of_item]
        {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.update((equals_before as u64).to_be_bytes());
        let mut bytes: [u8; 16] = content::first(&digest.finalize());
        let own_time = Uuid::try_parse(&self.0).ok().filter(|own| own.get_version_num() == 7);
        match own_time {
            Some(own) => {
                bytes[..6].copy_from_slice(&own.as_bytes()[..6]);
                Builder::from_bytes(bytes)
                    .with_version(uuid::Version::SortRand)
                    .with_variant(uuid::Variant::RFC4122)
            }
            None => Builder::from_custom_bytes(bytes),
        }
        .into_uuid()
        .to_string()
    }

    /// The id by which a create-only write recognises its own earlier attempt.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::key;

    #[test]
    fn a_derived_sort_key_keeps_the_time_of_its_request() {
        let derived = |idempotency_key| {
            let idempotency_key = IdempotencyKey::new(idempotency_key).unwrap();
            idempotency_key.sort_key(&key("p"), &Attributes::new(), 0)
        };
        let version = |sort_key: &str| Uuid::parse_str(sort_key).unwrap().get_version_num();
        assert_eq!(version(&derived("a")), 8);
        let timed = derived("01912d68-783e-7a03-8467-5661c1243ad4");
        assert!(timed.starts_with("01912d68-783e-7") && version(&timed) == 7, "{timed}");
    }
}
