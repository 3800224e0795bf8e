//! The steps of single writes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::protocol::applied::{Applied, UpdateId};
use crate::protocol::copies::{Answer, Condition, Copy, Effect, Marks};
use crate::protocol::layout::Layout;
use crate::values::key::tests::shard;
use crate::values::key::{ShardCount, ShardNumber};

const WAITS: Waits = Waits {
    lease: Duration::from_secs(1),
    reads: Duration::from_secs(60),
    signatures: Duration::from_secs(900),
};

fn at(millis: u64) -> Moment {
    Moment { monotonic: Duration::from_millis(millis), wall: Duration::from_millis(millis) }
}

fn view(era: u64, asked_at: u64) -> View {
    View { layout: Layout { era, ..Layout::unlisted(ShardCount::ONE) }, asked_at: at(asked_at) }
}

fn stored(version: Version) -> Copy {
    Copy { version, is_tombstone: false, write_id: None, applied: None, late_until: None }
}

fn replacement(once: Option<Once>) -> Write {
    Write::new(Kind::Replace(Update { expects: None, once }), WAITS, 7)
}

fn addition() -> Write {
    Write::new(Kind::Add(Update::default()), WAITS, 7)
}

fn two_places() -> Places {
    Places { home: ShardNumber::FIRST, old: BTreeSet::from([shard(2)]) }
}

#[test]
fn an_update_pulls_what_stands_at_an_old_place() {
    let (places, seen, old) = (two_places(), view(2, 0), Version::new(1, 5, 5));
    let mut write = replacement(None);
    assert_eq!(write.next(&seen, &places, at(10)), Next::Read);
    write.read(&[(shard(2), stored(old))], &places, &seen, at(10));
    let Next::Send(request) = write.next(&seen, &places, at(10)) else { panic!("{write:?}") };
    assert_eq!(request.condition, Condition::Unchanged(None));
    let Effect::Put { version, .. } = request.effect else { panic!("{request:?}") };
    assert!(version > old && version.era() == 2);
}

#[test]
fn an_addition_is_made_in_place_only_on_a_surely_newest_copy() {
    let one = Places { home: ShardNumber::FIRST, old: BTreeSet::new() };
    for (places, from) in [(one, Version::LOWEST), (two_places(), Version::lowest_of(3))] {
        let mut write = addition();
        let Next::Send(request) = write.next(&view(3, 0), &places, at(10)) else {
            panic!("{write:?}")
        };
        assert_eq!(request.condition, Condition::AtLeast { from, once: None });
        write.answered(&request, Answer::Refused(None), &places, &view(3, 0), at(20));
        assert_eq!(write.next(&view(3, 0), &places, at(20)), Next::Read);
        let mut unanswered = addition();
        drop(unanswered.next(&view(3, 0), &places, at(10)));
        unanswered.answered(&request, Answer::Unanswered, &places, &view(3, 0), at(20));
        assert_eq!(
            unanswered.next(&view(3, 0), &places, at(20)),
            Next::Done(Outcome::Unknown(UNANSWERED_ADDITION))
        );
    }
}

#[test]
fn an_unanswered_update_is_repeated_while_its_base_stands() {
    let once = |id| Once { id: UpdateId::from_bytes([id; 8]), sent_at: 1_000 };
    let remembers = |id, known_since| Copy {
        applied: Some(Box::new(Applied { known_since, ..Applied::with(None, once(id), 1_000) })),
        ..stored(Version::new(1, 9, 9))
    };
    let (base, places, seen) = (stored(Version::new(1, 5, 5)), two_places(), view(1, 0));
    let own = |sent: &Request| match sent.effect {
        Effect::Put { version, .. } => stored(version),
        Effect::Bury { .. } | Effect::Remove | Effect::Add { .. } => panic!("{sent:?}"),
    };
    type Row<'a> = (&'a str, Option<Once>, &'a dyn Fn(&Request) -> Copy, Option<Outcome>);
    let unknown = Some(Outcome::Unknown(REPETITION_REFUSED));
    let rows: [Row<'_>; 6] = [
        ("the same", None, &|_| base.clone(), None),
        ("its own", None, &own, Some(Outcome::Done)),
        ("another", None, &|_| stored(Version::new(1, 9, 9)), unknown),
        ("another, which would know", Some(once(1)), &|_| remembers(2, 1_000), None),
        ("another, which would not", Some(once(1)), &|_| remembers(2, 1_001), unknown),
        ("another, which knows", Some(once(1)), &|_| remembers(1, 1_001), Some(Outcome::Done)),
    ];
    for (about, once, found, expected) in rows {
        let mut write = replacement(once);
        assert_eq!(write.next(&seen, &places, at(10)), Next::Read);
        write.read(&[(places.home, base.clone())], &places, &seen, at(10));
        let Next::Send(request) = write.next(&seen, &places, at(10)) else {
            panic!("{about}: {write:?}")
        };
        write.answered(&request, Answer::Unanswered, &places, &seen, at(20));
        assert_eq!(write.next(&seen, &places, at(30)), Next::Send(request.clone()), "{about}");
        write.answered(
            &request,
            Answer::Refused(Some(stored(Version::LOWEST))),
            &places,
            &seen,
            at(40),
        );
        assert_eq!(write.next(&seen, &places, at(40)), Next::Read, "{about}");
        write.read(&[(places.home, found(&request))], &places, &seen, at(50));
        match (write.next(&seen, &places, at(50)), expected) {
            (Next::Done(outcome), Some(expected)) => assert_eq!(outcome, expected, "{about}"),
            (Next::Send(_), None) => {}
            other => panic!("{about}: {other:?}"),
        }
    }
}

#[test]
fn one_place_and_one_version_need_no_read() {
    let (one, expected) =
        (Places { home: ShardNumber::FIRST, old: BTreeSet::new() }, Version::new(1, 5, 5));
    let update = Update { expects: Some(expected), once: None };
    for (kind, era, reads) in [
        (Kind::Replace(update), 1, false),
        (Kind::DeleteIf { update, may_look: false }, 1, false),
        (Kind::Replace(update), 0, true),
    ] {
        let next = Write::new(kind.clone(), WAITS, 7).next(&view(era, 0), &one, at(10));
        assert_eq!(next == Next::Read, reads, "{kind:?} {next:?}");
        if let Next::Send(request) = next {
            assert_eq!(request.condition, Condition::Unchanged(Some(expected)));
        }
    }
}

/// The page may show only the closing of a change that has ended.
#[test]
fn a_late_response_counts_only_where_the_era_certainly_lasts() {
    let places = Places { home: ShardNumber::FIRST, old: BTreeSet::new() };
    let closing = View {
        layout: Layout { closing: Some(ShardCount::ONE), ..view(1, 1_600).layout },
        ..view(1, 1_600)
    };
    for (newer, outcome) in [
        (view(1, 1_600), Outcome::Done),
        (view(2, 1_600), Outcome::Unknown(LATE_RESPONSE)),
        (closing, Outcome::Unknown(LATE_RESPONSE)),
    ] {
        let mut write = Write::new(Kind::Put, WAITS, 7);
        let Next::Send(request) = write.next(&view(1, 0), &places, at(10)) else {
            panic!("{write:?}")
        };
        write.answered(&request, Answer::Applied, &places, &view(1, 0), at(1_500));
        assert_eq!(write.next(&view(1, 0), &places, at(1_500)), Next::Look(Some(at(1_500))));
        assert_eq!(write.next(&newer, &places, at(1_700)), Next::Done(outcome), "{newer:?}");
    }
}

/// An instance can learn of a change within the instant in which it read the page that does not
/// have it.
#[test]
fn what_one_view_found_says_nothing_under_another_as_old() {
    let places = Places { home: ShardNumber::FIRST, old: BTreeSet::from([shard(2)]) };
    let of =
        |generation| View { layout: Layout { generation, ..view(1, 0).layout }, asked_at: at(0) };
    let mut write = Write::new(Kind::CreateOnce, WAITS, 7);
    assert_eq!(write.next(&of(1), &places, at(10)), Next::Read);
    write.read(&[], &places, &of(1), at(10));
    assert!(matches!(write.next(&of(1), &places, at(10)), Next::Send(_)), "{write:?}");
    assert_eq!(write.next(&of(2), &places, at(10)), Next::Read);
}

/// A page that is behind the key's item must not make a write fail. If the item is behind, too,
/// the metadata is lost.
#[test]
fn a_copy_of_a_later_era_sends_a_write_to_the_keys_item_once() {
    let places = Places { home: ShardNumber::FIRST, old: BTreeSet::new() };
    for (era_of_item, is_lost) in [(1, true), (2, false)] {
        let mut write = Write::new(Kind::Put, WAITS, 7);
        let Next::Send(request) = write.next(&view(1, 0), &places, at(10)) else {
            panic!("{write:?}")
        };
        let later = stored(Version::new(2, 1, 1));
        write.answered(&request, Answer::Refused(Some(later)), &places, &view(1, 0), at(20));
        assert_eq!(write.next(&view(1, 0), &places, at(20)), Next::Verify(at(20)));
        let next = write.next(&view(era_of_item, 25), &places, at(30));
        assert_eq!(next == Next::Done(Outcome::Lost), is_lost, "{next:?}");
        assert_eq!(matches!(next, Next::Send(_)), !is_lost, "{next:?}");
    }
}

/// Meanwhile the item may be put and deleted. A late attempt of that put would replace an older
/// version.
#[test]
fn a_throttled_write_takes_a_new_version_if_all_is_answered() {
    let places = Places { home: ShardNumber::FIRST, old: BTreeSet::new() };
    let rows = [
        (&[Answer::Rejected][..], true),
        (&[Answer::Unanswered], false),
        (&[Answer::Unanswered, Answer::Rejected], false),
    ];
    for (answers, is_new) in rows {
        let mut write = Write::new(Kind::Put, WAITS, 7);
        let Next::Send(first) = write.next(&view(1, 0), &places, at(10)) else {
            panic!("{write:?}")
        };
        for answer in answers {
            write.answered(&first, answer.clone(), &places, &view(1, 0), at(20));
        }
        let next = write.next(&view(1, 0), &places, at(30));
        let Next::Send(next) = next else { panic!("{next:?}") };
        assert_eq!(next.effect != first.effect, is_new, "{answers:?}: {next:?}");
    }
}

/// The next request, which must be one, of a write to a single place.
fn sent(write: &mut Write, places: &Places, millis: u64) -> Request {
    let next = write.next(&view(1, 0), places, at(millis));
    let Next::Send(request) = next else { panic!("{next:?}") };
    request
}

/// A first attempt may arrive after the item was deleted.
#[test]
fn an_item_that_a_repetition_stored_is_marked() {
    let places = Places { home: ShardNumber::FIRST, old: BTreeSet::new() };
    let seen = view(1, 0);
    let mut write = Write::new(Kind::Put, WAITS, 7);
    let first = sent(&mut write, &places, 10);
    assert_eq!(first.marks, Marks { late_until: None, lost_until: 0 });
    write.answered(&first, Answer::Unanswered, &places, &seen, at(20));
    let second = sent(&mut write, &places, 30);
    assert_eq!((second.marks.late_until, &second.effect), (Some(902), &first.effect));
    // The first attempt was applied. If the second one was not answered, it may arrive later.
    let Effect::Put { version, .. } = first.effect else { panic!("{first:?}") };
    let own = Answer::Refused(Some(stored(version)));
    let mut known = write.clone();
    known.answered(&second, own.clone(), &places, &seen, at(40));
    assert_eq!(known.next(&seen, &places, at(40)), Next::Done(Outcome::Done));
    write.answered(&second, Answer::Unanswered, &places, &seen, at(40));
    let third = sent(&mut write, &places, 50);
    write.answered(&third, own, &places, &seen, at(60));
    let marking = sent(&mut write, &places, 70);
    assert_eq!(marking.condition, Condition::Unchanged(Some(version)));
    assert_eq!(marking.marks.late_until, Some(902));
    write.answered(&marking, Answer::Applied, &places, &seen, at(80));
    assert_eq!((write.stored(), &marking.effect), (Some(version), &first.effect));
}

#[test]
fn a_mark_stays_and_a_marked_item_leaves_a_tombstone() {
    let places = Places { home: ShardNumber::FIRST, old: BTreeSet::new() };
    let marked = Copy { late_until: Some(100), ..stored(Version::LOWEST) };
    for (kind, buries) in [(Kind::Put, false), (Kind::Delete { may_look: true }, true)] {
        let mut write = Write::new(kind, WAITS, 7);
        let first = sent(&mut write, &places, 10);
        assert!(!first.is_applied_to(Some(&marked)) && first.is_applied_to(None));
        write.answered(&first, Answer::Refused(Some(marked.clone())), &places, &view(1, 0), at(20));
        let second = sent(&mut write, &places, 30);
        assert!(second.is_applied_to(Some(&marked)), "{second:?}");
        assert_eq!(second.marks.late_until, Some(100));
        assert_eq!(matches!(second.effect, Effect::Bury { may_expire: true, .. }), buries);
    }
    let passed = Copy { late_until: Some(0), ..marked };
    let mut write = Write::new(Kind::Delete { may_look: true }, WAITS, 7);
    assert!(sent(&mut write, &places, 10).is_applied_to(Some(&passed)));
}
