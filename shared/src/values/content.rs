//! Digests of attributes: equal attributes have equal digests, independent of their writer.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::values::value::{Attributes, Value};

/// A SHA-256 over names and values, each with its type and its length.
pub(crate) fn digest(attributes: &Attributes) -> [u8; 32] {
    let mut digest = Sha256::new();
    add_map(&mut digest, attributes);
    digest.finalize().into()
}

pub(crate) fn id(attributes: &Attributes) -> Uuid {
    Uuid::from_bytes(first(&digest(attributes)))
}

pub(crate) fn first<const N: usize>(digest: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| digest.get(at).copied().unwrap_or_default())
}

pub(crate) fn add(digest: &mut Sha256, kind: u8, bytes: &[u8]) {
    digest.update([kind]);
    digest.update((bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

fn add_map(digest: &mut Sha256, map: &Attributes) {
    add(digest, b'm', &(map.len() as u64).to_be_bytes());
    for (name, value) in map {
        add(digest, b'k', name.as_bytes());
        add_value(digest, value);
    }
}

fn add_all<'a>(digest: &mut Sha256, kind: u8, members: impl ExactSizeIterator<Item = &'a [u8]>) {
    add(digest, kind, &(members.len() as u64).to_be_bytes());
    members.for_each(|member| add(digest, kind, member));
}

fn add_value(digest: &mut Sha256, value: &Value) {
    match value {
        Value::S(text) => add(digest, b'S', text.as_bytes()),
        Value::N(number) => add(digest, b'N', number.as_bytes()),
        Value::B(bytes) => add(digest, b'B', bytes),
        Value::Bool(flag) => add(digest, b'b', &[u8::from(*flag)]),
        Value::Null => add(digest, b'0', &[]),
        Value::L(list) => {
            add(digest, b'l', &(list.len() as u64).to_be_bytes());
            list.iter().for_each(|value| add_value(digest, value));
        }
        Value::M(map) => add_map(digest, map),
        Value::Ss(set) => add_all(digest, b's', set.iter().map(String::as_bytes)),
        Value::Ns(set) => add_all(digest, b'n', set.iter().map(String::as_bytes)),
        Value::Bs(set) => add_all(digest, b'y', set.iter().map(Vec::as_slice)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_type_or_nesting_is_another_content() {
        let one = || Value::N("1".into());
        let values = [("x", one()), ("y", one()), ("x", Value::S("1".into()))];
        let contents = values.into_iter().chain([("x", Value::L(vec![one()]))]);
        let digests: Vec<_> =
            contents.map(|content| digest(&Attributes::from([content]))).collect();
        assert!(digests.iter().enumerate().all(|(at, one)| !digests[..at].contains(one)));
    }
}
