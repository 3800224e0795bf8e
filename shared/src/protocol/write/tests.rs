//! The steps of single writes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::protocol::applied::{Applied, UpdateId};
use crate::protocol::copies::{Answer, Condition, Copy, Effect, Marks};
use crate::protocol::layout::Layout;
use crate::protocol::view::tests::at;
use crate::values::key::tests::shard;
use crate::values::key::{ShardCount, ShardNumber};

pub(crate) const WAITS: Waits = Waits {
    lease: Duration::from_secs(1),
    reads: Duration::from_secs(60),
    signatures: Duration::from_secs(900),
};

pub(crate) fn view(era: u64) -> View {
    View { layout: Layout { era, ..Layout::unlisted(ShardCount::ONE) }, asked_at: at(0) }
}

pub(crate) fn one_place() -> Places {
    Places { home: ShardNumber::FIRST, old: BTreeSet::new() }
}

pub(crate) fn two_places() -> Places {
    Places { home: ShardNumber::FIRST, old: BTreeSet::from([shard(2)]) }
}

pub(crate) fn item(version: Version) -> Copy {
    Copy { version, is_tombstone: false, write_id: None, applied: None, late_until: None }
}

/// A write whose steps are 10 ms apart.
#[derive(Debug, Clone)]
struct Run {
    write: Write,
    places: Places,
    view: View,
    millis: u64,
}

impl Run {
    fn new(kind: Kind, places: Places) -> Self {
        Self { write: Write::new(kind, WAITS, 7), places, view: view(1), millis: 0 }
    }

    fn now(&mut self) -> Moment {
        self.millis += 10;
        at(self.millis)
    }

    fn next(&mut self) -> Next {
        let now = self.now();
        self.write.next(&self.view, &self.places, now)
    }

    fn sends(&mut self) -> Request {
        let next = self.next();
        let Next::Send(request) = next else { panic!("{next:?}") };
        request
    }

    fn answered(&mut self, request: &Request, answer: Answer) {
        let now = self.now();
        self.write.answered(request, answer, &self.places, &self.view, now);
    }

    /// Sends the next request, which gets this answer.
    fn gets(&mut self, answer: Answer) -> Request {
        let request = self.sends();
        self.answered(&request, answer);
        request
    }

    fn reads(&mut self, copies: &[(ShardNumber, Copy)]) {
        assert_eq!(self.next(), Next::Read);
        let now = self.now();
        self.write.read(copies, &self.places, &self.view, now);
    }
}

#[test]
fn an_addition_is_made_in_place_only_on_a_surely_newest_copy() {
    for (places, from) in [(one_place(), Version::LOWEST), (two_places(), Version::lowest_of(3))] {
        let mut refused = Run::new(Kind::Add(Update::default()), places);
        refused.view = view(3);
        let mut unanswered = refused.clone();
        let request = refused.gets(Answer::Refused(None));
        assert_eq!(request.condition, Condition::AtLeast { from, once: None });
        assert_eq!(refused.next(), Next::Read);
        unanswered.gets(Answer::Unanswered);
        assert_eq!(unanswered.next(), Next::Done(Outcome::Unknown(UNANSWERED_ADDITION)));
    }
}

#[test]
fn an_unanswered_update_is_repeated_while_its_base_stands() {
    let once = |id| Once { id: UpdateId::from_bytes([id; 8]), sent_at: 1_000 };
    let remembers = |id, known_since| Copy {
        applied: Some(Box::new(Applied { known_since, ..Applied::with(None, once(id), 1_000) })),
        ..item(Version::new(1, 9, 9))
    };
    let (base, other) = (item(Version::new(1, 5, 5)), item(Version::new(1, 9, 9)));
    let unknown = Some(Outcome::Unknown(REPETITION_REFUSED));
    // What is found at home: `None` for what the write has sent.
    let rows = [
        ("the same", None, Some(base.clone()), None),
        ("its own", None, None, Some(Outcome::Done)),
        ("another", None, Some(other), unknown),
        ("another, which would know", Some(once(1)), Some(remembers(2, 1_000)), None),
        ("another, which would not", Some(once(1)), Some(remembers(2, 1_001)), unknown),
        ("another, which knows", Some(once(1)), Some(remembers(1, 1_001)), Some(Outcome::Done)),
    ];
    for (about, once, found, expected) in rows {
        let mut run = Run::new(Kind::Replace(Update { expects: None, once }), two_places());
        run.reads(&[(ShardNumber::FIRST, base.clone())]);
        let request = run.gets(Answer::Unanswered);
        let repeated = run.gets(Answer::Refused(Some(item(Version::LOWEST))));
        assert_eq!(repeated, request, "{about}");
        let Effect::Put { version, .. } = request.effect else { panic!("{request:?}") };
        run.reads(&[(ShardNumber::FIRST, found.unwrap_or_else(|| item(version)))]);
        match (run.next(), expected) {
            (Next::Done(outcome), Some(expected)) => assert_eq!(outcome, expected, "{about}"),
            (Next::Send(_), None) => {}
            other => panic!("{about}: {other:?}"),
        }
    }
}

#[test]
fn one_place_and_one_version_need_no_read() {
    let expected = Version::new(1, 5, 5);
    let update = Update { expects: Some(expected), once: None };
    for (kind, era, reads) in [
        (Kind::Replace(update), 1, false),
        (Kind::DeleteIf { update, may_look: false }, 1, false),
        (Kind::Replace(update), 0, true),
    ] {
        let mut run = Run::new(kind, one_place());
        run.view = view(era);
        let next = run.next();
        assert_eq!(next == Next::Read, reads, "{run:?} {next:?}");
        if let Next::Send(request) = next {
            assert_eq!(request.condition, Condition::Unchanged(Some(expected)));
        }
    }
}

/// The page may show only the closing of a change that has ended.
#[test]
fn a_late_response_counts_only_where_the_era_certainly_lasts() {
    for (era, closing, outcome) in [
        (1, None, Outcome::Done),
        (2, None, Outcome::Unknown(LATE_RESPONSE)),
        (1, Some(ShardCount::ONE), Outcome::Unknown(LATE_RESPONSE)),
    ] {
        let mut run = Run::new(Kind::Put, one_place());
        let request = run.sends();
        run.millis = 1_490;
        run.answered(&request, Answer::Applied);
        assert_eq!(run.next(), Next::Look(Some(at(1_500))));
        let layout = Layout { closing, ..view(era).layout };
        run.view = View { layout, asked_at: at(1_500) };
        assert_eq!(run.next(), Next::Done(outcome), "{:?}", run.view);
    }
}

/// An instance can learn of a change within the instant in which it read the page that does not
/// have it.
#[test]
fn what_one_view_found_says_nothing_under_another_as_old() {
    let mut run = Run::new(Kind::CreateOnce, two_places());
    run.view.layout.generation = 1;
    run.reads(&[]);
    run.sends();
    run.view.layout.generation = 2;
    assert_eq!(run.next(), Next::Read);
}

/// A page that is behind the key's item must not make a write fail. If the item is behind, too,
/// the metadata is lost.
#[test]
fn a_copy_of_a_later_era_sends_a_write_to_the_keys_item_once() {
    for (era_of_item, is_lost) in [(1, true), (2, false)] {
        let mut run = Run::new(Kind::Put, one_place());
        run.gets(Answer::Refused(Some(item(Version::new(2, 1, 1)))));
        assert_eq!(run.next(), Next::Verify(at(20)));
        run.view = View { asked_at: at(30), ..view(era_of_item) };
        let next = run.next();
        assert_eq!(next == Next::Done(Outcome::Lost), is_lost, "{next:?}");
        assert_eq!(matches!(next, Next::Send(_)), !is_lost, "{next:?}");
    }
}

/// Meanwhile the item may be put and deleted. A late attempt of that put would replace an older
/// version.
#[test]
fn a_throttled_write_takes_a_new_version_if_all_is_answered() {
    for (answers, is_new) in [
        (&[Answer::Rejected][..], true),
        (&[Answer::Unanswered], false),
        (&[Answer::Unanswered, Answer::Rejected], false),
    ] {
        let mut run = Run::new(Kind::Put, one_place());
        let first = run.sends();
        for answer in answers {
            run.answered(&first, answer.clone());
        }
        let next = run.sends();
        assert_eq!(next.effect != first.effect, is_new, "{answers:?}: {next:?}");
    }
}

/// A first attempt may arrive after the item was deleted.
#[test]
fn an_item_that_a_repetition_stored_is_marked() {
    let mut run = Run::new(Kind::Put, one_place());
    let first = run.gets(Answer::Unanswered);
    assert_eq!(first.marks, Marks { late_until: None, lost_until: 0 });
    let second = run.sends();
    assert_eq!((second.marks.late_until, &second.effect), (Some(902), &first.effect));
    // The first attempt was applied. If the second one was not answered, it may arrive later.
    let Effect::Put { version, .. } = first.effect else { panic!("{first:?}") };
    let own = Answer::Refused(Some(item(version)));
    let mut known = run.clone();
    known.answered(&second, own.clone());
    assert_eq!(known.next(), Next::Done(Outcome::Done));
    run.answered(&second, Answer::Unanswered);
    run.gets(own);
    let marking = run.gets(Answer::Applied);
    assert_eq!(marking.condition, Condition::Unchanged(Some(version)));
    assert_eq!(marking.marks.late_until, Some(902));
    assert_eq!((run.write.stored(), &marking.effect), (Some(version), &first.effect));
}

#[test]
fn a_mark_stays_and_a_marked_item_leaves_a_tombstone() {
    let marked = Copy { late_until: Some(100), ..item(Version::LOWEST) };
    for (kind, buries) in [(Kind::Put, false), (Kind::Delete { may_look: true }, true)] {
        let mut run = Run::new(kind, one_place());
        let first = run.gets(Answer::Refused(Some(marked.clone())));
        assert!(!first.is_applied_to(Some(&marked)) && first.is_applied_to(None));
        let second = run.sends();
        assert!(second.is_applied_to(Some(&marked)), "{second:?}");
        assert_eq!(second.marks.late_until, Some(100));
        assert_eq!(matches!(second.effect, Effect::Bury { may_expire: true, .. }), buries);
    }
    let passed = Copy { late_until: Some(0), ..marked };
    let mut run = Run::new(Kind::Delete { may_look: true }, one_place());
    assert!(run.sends().is_applied_to(Some(&passed)));
}
