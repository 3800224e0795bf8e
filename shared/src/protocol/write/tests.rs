//! The steps of single writes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::protocol::applied::{Applied, UpdateId};
use crate::protocol::copies::{Answer, Condition, Copy, Effect};
use crate::protocol::layout::{Layout, Places};
use crate::protocol::view::View;
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
        self.write.next((&self.view, &self.places, now))
    }

    fn sends(&mut self) -> Request {
        let next = self.next();
        let Next::Send(request) = next else { panic!("{next:?}") };
        request
    }

    fn answered(&mut self, request: &Request, answer: Answer) {
        let now = self.now();
        self.write.answered(request, answer, (&self.view, &self.places, now));
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
        self.write.read(copies, (&self.view, &self.places, now));
    }
}

#[test]
fn an_unanswered_update_is_repeated_while_its_base_stands() {
    let once = |id| Once { id: UpdateId([id; 8]), sent_at: 1_000 };
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
fn a_version_of_another_era_is_read_before_it_is_replaced() {
    let update = Update { expects: Some(Version::new(1, 5, 5)), once: None };
    let mut run = Run::new(Kind::Replace(update), one_place());
    run.view = view(0);
    assert_eq!(run.next(), Next::Read);
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
    let mut run = Run::new(Kind::Create(None), two_places());
    run.view.layout.generation = 1;
    run.reads(&[]);
    run.sends();
    run.view.layout.generation = 2;
    assert_eq!(run.next(), Next::Read);
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
    assert_eq!(first.marks.late_until, None);
    let second = run.gets(Answer::Unanswered);
    assert_eq!((second.marks.late_until, &second.effect), (Some(902), &first.effect));
    // The first attempt was applied. The second one was not answered, so it may arrive later.
    let Effect::Put { version, .. } = first.effect else { panic!("{first:?}") };
    run.gets(Answer::Refused(Some(item(version))));
    let marking = run.gets(Answer::Applied);
    assert_eq!(marking.condition, Condition::Unchanged(Some(version)));
    assert_eq!((marking.marks.late_until, &marking.effect), (Some(902), &first.effect));
}

#[test]
fn a_mark_stays_and_a_marked_item_leaves_a_tombstone() {
    let marked = Copy { late_until: Some(100), ..item(Version::LOWEST) };
    for (kind, buries) in [(Kind::Put, false), (Kind::Delete { may_look: true }, true)] {
        let mut run = Run::new(kind, one_place());
        let first = run.gets(Answer::Refused(Some(marked.clone())));
        assert!(!first.marks.allow(Some(&marked)) && first.marks.allow(None), "{first:?}");
        let second = run.sends();
        assert!(second.marks.allow(Some(&marked)));
        assert_eq!(second.marks.late_until, Some(100));
        assert_eq!(matches!(second.effect, Effect::Bury { may_expire: true, .. }), buries);
    }
}
