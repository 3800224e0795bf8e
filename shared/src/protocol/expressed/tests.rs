//! The steps of single writes. `tests/model` and `endpoint/tests` have the outcome of each row of the
//! table in docs/protocol.md, "Expressions".

use super::*;
use crate::protocol::layout::Places;
use crate::protocol::view::tests::at;
use crate::protocol::write::tests::{WAITS, item, one_place, two_places, view};

const UPDATE: Operation = Operation::Update { creates: true };
const REMOVING: Operation = Operation::Update { creates: false };

/// A write under a view of era 2.
struct Run {
    write: ExpressedWrite,
    places: Places,
    view: View,
}

impl Run {
    fn new(operation: Operation, places: Places) -> Self {
        Self { write: ExpressedWrite::new(operation, WAITS, 7), places, view: view(2) }
    }

    fn next(&mut self) -> Next {
        self.write.next((&self.view, &self.places, at(10)))
    }

    fn sends(&mut self) -> Request {
        let Next::Send(request) = self.next() else { panic!("{:?}", self.write) };
        request
    }

    /// Sends the next request, which gets this answer.
    fn gets(&mut self, answer: Answer) -> Request {
        let request = self.sends();
        self.write.answered(&request, answer, (&self.view, &self.places, at(10)));
        request
    }

    fn is_refused(&mut self, stored: Option<Copy>) -> Request {
        self.gets(Answer::Refused(stored))
    }

    fn ends(&mut self) -> Outcome {
        let Next::Done(outcome) = self.next() else { panic!("{:?}", self.write) };
        outcome
    }
}

const OLD: Version = Version::new(1, 5, 5);

#[test]
fn an_item_with_one_place_takes_one_request() {
    for (operation, base) in [
        (UPDATE, Base::AbsentOrItem),
        (REMOVING, Base::Item),
        (Operation::Put, Base::AbsentOrBelow(Version::new(2, 10_000, 7))),
        (Operation::Delete, Base::AbsentOrBelow(Version::new(2, 10_000, 7))),
    ] {
        let mut run = Run::new(operation, one_place());
        assert_eq!(run.gets(Answer::Applied).base, base);
        assert_eq!(run.ends(), Outcome::Applied { on_item: true });
    }
}

#[test]
fn a_put_goes_above_an_item_of_a_clock_that_is_ahead() {
    let ahead = Version::new(2, 99_000_000, 1);
    for places in [one_place(), two_places()] {
        let mut run = Run::new(Operation::Put, places);
        run.is_refused(Some(item(ahead)));
        let Action::Put(version) = run.sends().action else { panic!("{:?}", run.write) };
        assert!(version > ahead && version.era() == 2);
    }
}

#[test]
fn a_deletion_leaves_a_tombstone_where_something_may_come_back() {
    let mut run = Run::new(Operation::Delete, two_places());
    assert!(matches!(run.sends().action, Action::Bury { .. }));
    // A mark: a duplicate of a put may arrive.
    let marked = Copy { late_until: Some(999), ..item(OLD) };
    let mut run = Run::new(Operation::Delete, one_place());
    assert!(!run.is_refused(Some(marked.clone())).holds(Some(&marked)));
    let request = run.sends();
    assert!(matches!(request.action, Action::Bury { may_expire: true, .. }), "{request:?}");
    assert_eq!((request.marks.late_until, request.holds(Some(&marked))), (Some(999), true));
    // The key was settled a moment ago.
    let mut run = Run::new(Operation::Delete, one_place());
    run.view.layout.drained_at = Some(0);
    assert!(matches!(run.sends().action, Action::Bury { may_expire: false, .. }));
}

#[test]
fn a_copy_of_a_later_era_makes_it_verify() {
    let mut run = Run::new(UPDATE, one_place());
    run.is_refused(Some(item(Version::new(5, 1, 1))));
    assert_eq!(run.next(), Next::Verify(at(10)));
    let later = View { asked_at: at(20), ..view(2) };
    assert_eq!(run.write.next((&later, &run.places, at(20))), Next::Done(Outcome::Lost));
}
