//! The log of the clients' requests, and its comparison with the changes that a consumer has taken.

use std::collections::{BTreeMap, BTreeSet};

use sharding_stream::ChangeKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Put(u64),
    Delete,
}

/// A client's knowledge of the outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    Acknowledged,
    Unknown,
}

/// All requests of clients, by sort key. Those of one client are in order.
pub(super) type Log = BTreeMap<String, Vec<(Asked, Heard)>>;

/// The changes that the consumer has taken, without the product's own attributes.
pub(super) type Taken = BTreeMap<String, Vec<(String, ChangeKind, Option<u64>)>>;

/// The errors in the taken changes, compared with the log of requests.
pub(super) fn compare(log: &Log, taken: &Taken) -> Vec<String> {
    let mut wrong = Vec::new();
    for text in log.keys().chain(taken.keys()).collect::<BTreeSet<_>>() {
        let asked = log.get(text).map_or(&[][..], Vec::as_slice);
        let mut changes = taken.get(text).cloned().unwrap_or_default();
        changes.sort_by(|one, other| one.0.cmp(&other.0));
        let mut puts = BTreeMap::<u64, u32>::new();
        for (_, _, value) in &changes {
            value.iter().for_each(|value| *puts.entry(*value).or_default() += 1);
        }
        for (put, times) in &puts {
            if *times > 1 {
                wrong.push(format!("{text}: {put} came {times} times"));
            }
            if !asked.iter().any(|(one, _)| *one == Asked::Put(*put)) {
                wrong.push(format!("{text}: {put} was never requested"));
            }
        }
        for (one, heard) in asked {
            if let (Asked::Put(put), Heard::Acknowledged) = (one, heard)
                && !puts.contains_key(put)
            {
                wrong.push(format!("{text}: {put} is missing"));
            }
        }
        let ends = changes.iter().filter(|(_, kind, _)| *kind != ChangeKind::Put).count();
        if text.starts_with("fleeting") {
            // Each item is put once, and expires: no client deletes it.
            let is_whole = puts.len() == ends
                && changes.last().is_none_or(|(_, kind, _)| *kind == ChangeKind::Expiry);
            if !is_whole {
                wrong.push(format!("{text}: {changes:?}"));
            }
        } else if text.starts_with("shared") {
            let deletions = asked.iter().filter(|(one, _)| *one == Asked::Delete).count();
            if ends > deletions {
                wrong.push(format!("{text}: {ends} deletions of {deletions}"));
            }
        } else if let Some(problem) = out_of_order(asked, &changes) {
            wrong.push(format!("{text}: {problem}: {asked:?} and {changes:?}"));
        }
    }
    wrong
}

/// Checks the changes of an item with one writer. They are in the order of its requests. Changes
/// with an unknown outcome may be missing, and so may deletions of a missing item.
fn out_of_order(
    asked: &[(Asked, Heard)],
    changes: &[(String, ChangeKind, Option<u64>)],
) -> Option<String> {
    let mut steps = Vec::new();
    // Whether the item exists before each step; `None` if that is unknown.
    let mut exists = Some(false);
    for (one, heard) in asked {
        let is_needed =
            *heard == Heard::Acknowledged && (matches!(one, Asked::Put(_)) || exists == Some(true));
        steps.push((*one, is_needed));
        exists = if *heard == Heard::Unknown { None } else { Some(matches!(one, Asked::Put(_))) };
    }
    let mut steps = steps.into_iter();
    for (_, kind, value) in changes {
        let this = match (kind, value) {
            (ChangeKind::Put, Some(put)) => Asked::Put(*put),
            (ChangeKind::Put, None) => return Some("a put without a value".into()),
            (ChangeKind::Delete | ChangeKind::Expiry | _, _) => Asked::Delete,
        };
        loop {
            match steps.next() {
                Some((one, _)) if one == this => break,
                Some((one, true)) => return Some(format!("{one:?} is missing before {this:?}")),
                Some((_, false)) => {}
                None => return Some(format!("no client requested {this:?}")),
            }
        }
    }
    steps.find(|(_, is_needed)| *is_needed).map(|(one, _)| format!("{one:?} is missing at the end"))
}
