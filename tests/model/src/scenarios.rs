//! The scenarios: two or three actors each. Each scenario can show one kind of fault, and is small
//! enough to be explored completely.

use sharding::internal::protocol::armed::Armed;
use sharding::internal::protocol::layout::FIRST_ERA;
use sharding::maintenance::KeyPattern;

use super::beginnings::{
    DELETE, GET, LOOK_AND_DELETE, add, add_once, create, create_again, drainer, drains, just_grown,
    left_by_a_dead_drainer, one_shard, other, put, reader, scaler, settled, swap, widths, with_x,
    writer,
};
use super::directory::listing;
use super::expressions::expressing;
use super::invariants::{DRAINED, LATE_REQUEST, OPENED, PURGED, TAKEN_OVER};
use super::program::{Cast, Op};
use super::scenario::{JUMP, Late, MODULO, OTHER_JUMP, OWN_SHARDS, Scenario};
use super::state::EPOCH;

/// All scenarios in which every invariant holds.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    [
        updating(),
        growing(),
        having_changed(),
        draining(),
        draining_with_late_requests(),
        draining_and_changing(),
        repeating(),
        adopting(),
        arming(),
        appending(),
        listing(),
        expressing(),
    ]
    .concat()
}

/// The scenario with this name.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn scenario(name: &str) -> Scenario {
    let mut all = scenarios().into_iter().chain(limits());
    all.find(|scenario| scenario.name == name).expect("a test names a scenario that exists")
}

fn growing() -> Vec<Scenario> {
    let grows =
        |name, cast| Scenario { shows: vec![OPENED], ..Scenario::new(name, one_shard(), cast) };
    vec![
        grows(
            "grow | put | put get",
            vec![scaler(2), writer([put('a')]), other([put('b'), GET]).ahead_by(2)],
        ),
        grows(
            "grow | put | look query",
            vec![scaler(2), writer([put('a')]), reader([Op::Look, Op::Query])],
        ),
        Scenario {
            items: vec![(0, 1, FIRST_ERA, 'x')],
            ..grows(
                "grow | delete get | look get",
                vec![scaler(2), writer([DELETE, GET]), reader([Op::Look, GET])],
            )
        },
        Scenario {
            late_writes_may_lose: true,
            ..grows(
                "grow | create delete | create",
                vec![scaler(2), writer([create('a'), DELETE]), other([create('b')])],
            )
        },
        Scenario {
            horizon: 2,
            shows: vec![OPENED, TAKEN_OVER],
            ..grows(
                "grow, crash | take over | put get",
                vec![
                    scaler(2).mortal(),
                    Cast::new("observer", [Op::TakeOver]),
                    writer([put('a'), GET]),
                ],
            )
        },
        Scenario {
            horizon: 3,
            ..grows(
                "grow to 2 | grow to 4 | put get",
                vec![
                    scaler(2),
                    Cast::new("second scaler", [Op::Scale(4)]),
                    writer([put('a'), GET]),
                ],
            )
        },
        Scenario {
            homes: vec![JUMP, OTHER_JUMP],
            items: vec![(0, 1, FIRST_ERA, 'x'), (1, 1, FIRST_ERA, 'y')],
            ..grows(
                "grow | put | scan",
                vec![scaler(3), writer([Op::Put(1, 'a')]), reader([Op::Scan])],
            )
        },
        Scenario {
            horizon: 1,
            shows: vec![OPENED],
            ..Scenario::new(
                "grow to 2 and 4 | take over | put | look get",
                one_shard(),
                vec![
                    Cast::new("scaler", [Op::Scale(2), Op::Scale(4)]).prompt(),
                    Cast::new("observer", [Op::TakeOver]),
                    writer([put('a')]),
                    reader([Op::Look, GET]),
                ],
            )
        },
    ]
}

/// Keys that have changed their width before.
fn having_changed() -> Vec<Scenario> {
    vec![
        Scenario {
            homes: vec![MODULO],
            ..with_x(
                "shrink by modulo | put | get",
                widths(&[2, 3]),
                vec![scaler(2), writer([put('a')]), reader([GET])],
            )
        },
        Scenario {
            items: vec![(0, 1, FIRST_ERA, 'o')],
            ..Scenario::new(
                "an item where it has no place | put | query",
                settled(2),
                vec![writer([put('a')]), reader([Op::Query, Op::Query])],
            )
        },
        Scenario {
            in_flight: vec![Late::put(0, 1, FIRST_ERA, 'l')],
            shows: vec![LATE_REQUEST],
            ..with_x(
                "late put | put get | query",
                widths(&[2]),
                vec![writer([put('a'), GET]), reader([Op::Query])],
            )
        },
    ]
}

fn draining() -> Vec<Scenario> {
    vec![
        drains("settle | get", vec![drainer(), reader([GET])]),
        drains("settle | query", vec![drainer(), reader([Op::Query])]),
        drains("settle | put get", vec![drainer(), writer([put('a'), GET])]),
        drains("settle | delete get", vec![drainer(), writer([DELETE, GET])]),
        drains("settle | look and delete, get", vec![drainer(), writer([LOOK_AND_DELETE, GET])]),
        Scenario {
            late_writes_may_lose: true,
            ..drains(
                "settle | delete create",
                vec![drainer().prompt(), writer([DELETE, create('a')])],
            )
        },
        Scenario {
            horizon: 6,
            ..drains(
                "settle, crash | settle | get",
                vec![
                    drainer().prompt().mortal(),
                    Cast::new("second drainer", [Op::Drain]).prompt(),
                    reader([GET]),
                ],
            )
        },
        Scenario {
            horizon: 6,
            ..drains(
                "settle, crash | settle | delete",
                vec![
                    drainer().prompt().mortal(),
                    Cast::new("second drainer", [Op::Drain]).prompt(),
                    writer([DELETE]),
                ],
            )
        },
        Scenario {
            homes: vec![JUMP, OTHER_JUMP],
            metadata: widths(&[3]),
            items: vec![(0, 1, FIRST_ERA, 'x'), (1, 1, FIRST_ERA, 'y')],
            ..drains("settle | scan", vec![drainer(), reader([Op::Scan])])
        },
    ]
}

/// Drains with a request that is late, or that gets no response.
fn draining_with_late_requests() -> Vec<Scenario> {
    vec![
        Scenario {
            metadata: just_grown(),
            in_flight: vec![Late::put(0, 1, FIRST_ERA, 'l')],
            validity: 3,
            horizon: 8,
            ..drains("settle | late put | get", vec![drainer().prompt(), reader([GET])])
        },
        Scenario {
            metadata: left_by_a_dead_drainer(),
            in_flight: vec![Late::copy(0, 2, FIRST_ERA, 'x')],
            validity: 3,
            horizon: 8,
            ..drains(
                "a dead drainer's move | settle | delete get",
                vec![drainer().prompt(), writer([DELETE, GET])],
            )
        },
        Scenario {
            validity: 2,
            horizon: 7,
            ..drains(
                "settle, a move unanswered | delete",
                vec![drainer().prompt().impatient(), writer([DELETE])],
            )
        },
        Scenario {
            metadata: just_grown(),
            in_flight: vec![Late::delete(0, 1, FIRST_ERA)],
            validity: 3,
            horizon: 8,
            ..drains("settle | late delete | get get", vec![drainer().prompt(), reader([GET, GET])])
        },
        Scenario {
            metadata: just_grown(),
            items: vec![(0, 2, 2, 'x')],
            in_flight: vec![Late::put(0, 1, FIRST_ERA, 'l')],
            validity: 3,
            horizon: 8,
            ..drains(
                "settle | late put | look and delete, get",
                vec![drainer().prompt(), writer([LOOK_AND_DELETE, GET])],
            )
        },
    ]
}

/// Drains before or after a change of the width.
fn draining_and_changing() -> Vec<Scenario> {
    vec![
        Scenario {
            items: vec![(0, 2, 2, 'x')],
            horizon: 9,
            shows: vec![OPENED, DRAINED],
            ..drains(
                "shrink, drain | put get",
                vec![
                    Cast::new("scaler", [Op::Scale(1), Op::Drain]).prompt(),
                    writer([put('a'), GET]),
                ],
            )
        },
        Scenario {
            metadata: one_shard(),
            horizon: 9,
            shows: vec![OPENED],
            ..drains(
                "grow, drain | look and delete",
                vec![
                    Cast::new("scaler", [Op::Scale(2), Op::Drain]).prompt(),
                    writer([LOOK_AND_DELETE]),
                ],
            )
        },
        Scenario {
            horizon: 10,
            validity: 2,
            shows: vec![OPENED, DRAINED],
            ..drains(
                "settle | shrink, drain",
                vec![drainer().prompt(), Cast::new("scaler", [Op::Scale(1), Op::Drain]).prompt()],
            )
        },
    ]
}

fn repeating() -> Vec<Scenario> {
    vec![
        Scenario {
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "put, twice | put get",
                one_shard(),
                vec![writer([put('a')]).sending_twice(), other([GET, put('b'), GET]).ahead_by(-1)],
            )
        },
        Scenario {
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "put, twice | delete get",
                one_shard(),
                vec![writer([put('a')]).sending_twice(), other([DELETE, GET])],
            )
        },
        Scenario::new(
            "put, twice | put delete",
            one_shard(),
            vec![writer([put('a')]).sending_twice(), other([put('b'), DELETE]).ahead_by(1)],
        ),
        Scenario::new(
            "put, thrice | delete",
            one_shard(),
            vec![writer([put('a')]).sending_thrice(), other([DELETE])],
        ),
        Scenario {
            late_writes_may_lose: true,
            ..Scenario::new(
                "create, twice | delete get",
                one_shard(),
                vec![writer([create('a')]).sending_twice(), other([DELETE, GET])],
            )
        },
        with_x(
            "delete, twice | put",
            one_shard(),
            vec![writer([DELETE]).sending_twice(), other([put('a'), GET]).ahead_by(-1)],
        ),
        Scenario {
            late_writes_may_lose: true,
            horizon: 1,
            ..Scenario::new(
                "create, twice | create | delete",
                widths(&[2]),
                vec![writer([create('a'), GET]).sending_twice(), other([create('b'), DELETE])],
            )
        },
        Scenario {
            late_writes_may_lose: true,
            in_flight: vec![Late::create(0, 1, FIRST_ERA, 'a')],
            horizon: 1,
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "late create | create again | create",
                just_grown(),
                vec![writer([create_again('a')]), other([create('b')])],
            )
        },
        Scenario {
            late_writes_may_lose: true,
            horizon: 1,
            ..Scenario::new(
                "create, create again | get delete",
                widths(&[2]),
                vec![writer([create('a'), create_again('a')]), other([GET, DELETE, GET])],
            )
        },
    ]
}

/// Updates: read-modify-write and in place.
fn updating() -> Vec<Scenario> {
    let with_x =
        |name, metadata, cast| Scenario { remembers: true, ..with_x(name, metadata, cast) };
    let grows = |name, cast| Scenario {
        shows: vec![OPENED],
        late_writes_may_lose: true,
        ..with_x(name, one_shard(), cast)
    };
    let drains = |name, cast| Scenario { remembers: true, ..drains(name, cast) };
    vec![
        with_x("swap | swap", one_shard(), vec![writer([swap('a'), GET]), other([swap('b'), GET])]),
        with_x(
            "swap | swap, at an old place",
            widths(&[2]),
            vec![writer([swap('a'), GET]), other([swap('b'), GET])],
        ),
        with_x(
            "add | put get",
            one_shard(),
            vec![writer([add('a')]), other([put('b'), GET]).ahead_by(1)],
        ),
        with_x(
            "add | swap get, at an old place",
            widths(&[2]),
            vec![writer([add('a')]), other([swap('b'), GET])],
        ),
        with_x("add | delete get", widths(&[2]), vec![writer([add('a')]), other([DELETE, GET])]),
        Scenario {
            items: vec![(0, 1, FIRST_ERA, 'x'), (0, 2, 2, 'y')],
            ..with_x(
                "add, home has an older copy | get",
                widths(&[2, 1]),
                vec![writer([add('a'), GET]), reader([GET])],
            )
        },
        grows(
            "grow | swap | swap get",
            vec![scaler(2), writer([swap('a')]), other([swap('b'), GET])],
        ),
        grows("grow | add | put get", vec![scaler(2), writer([add('a')]), other([put('b'), GET])]),
        drains("settle | swap get", vec![drainer(), writer([swap('a'), GET])]),
        drains("settle | add get", vec![drainer(), writer([add('a'), GET])]),
        Scenario {
            validity: 2,
            horizon: 9,
            shows: vec![DRAINED, LATE_REQUEST, PURGED],
            ..drains(
                "settle, purge | swap, twice, delete",
                vec![drainer().prompt(), writer([swap('a'), DELETE]).prompt().sending_twice()],
            )
        },
        Scenario {
            shows: vec![LATE_REQUEST],
            ..with_x(
                "add, twice | put get",
                one_shard(),
                vec![writer([add_once('a')]).sending_twice(), other([GET, swap('b'), GET])],
            )
        },
        with_x(
            "add, add again | swap get",
            one_shard(),
            vec![writer([add_once('a'), Op::AddAgain(0, 'a'), GET]), other([swap('b'), GET])],
        ),
        Scenario {
            shows: vec![OPENED, LATE_REQUEST],
            ..grows(
                "grow | add, add again | get",
                vec![scaler(2), writer([add_once('a'), Op::AddAgain(0, 'a')]), reader([GET])],
            )
        },
    ]
}

/// Keys with an item that another program stored before.
fn adopting() -> Vec<Scenario> {
    let adopts = |name, metadata, cast| Scenario {
        items: vec![(0, 1, 0, 'x')],
        horizon: 5,
        shows: vec![DRAINED],
        ..Scenario::new(name, metadata, cast)
    };
    let grows_and_drains = |to| Cast::new("scaler", [Op::Scale(to), Op::Drain]).prompt();
    vec![
        Scenario {
            shows: vec![OPENED],
            horizon: 2,
            ..adopts(
                "adopted: grow | put get",
                one_shard(),
                vec![scaler(2), writer([put('a'), GET])],
            )
        },
        adopts(
            "adopted: grow, settle | delete get",
            one_shard(),
            vec![grows_and_drains(2), writer([DELETE, GET])],
        ),
        Scenario {
            horizon: 8,
            ..adopts(
                "adopted: grow again, settle | delete get",
                widths(&[1, 2]),
                vec![grows_and_drains(4), writer([DELETE, GET])],
            )
        },
        adopts(
            "adopted: settle | swap get",
            widths(&[1, 2]),
            vec![drainer(), writer([swap('a'), GET])],
        ),
        adopts(
            "adopted: settle | create query",
            widths(&[1, 2]),
            vec![drainer(), writer([create('a'), Op::Query])],
        ),
    ]
}

/// A key that another program writes until it is armed.
fn arming() -> Vec<Scenario> {
    let arms = |name, metadata, cast| Scenario {
        armed: Armed::default(),
        horizon: 4,
        ..Scenario::new(name, metadata, cast)
    };
    let plain = || Cast::new("another program", [Op::Plain(0, 'n')]);
    vec![
        Scenario {
            shows: vec![OPENED],
            horizon: 7,
            ..arms(
                "arm | grow, put | plain",
                one_shard(),
                vec![
                    Cast::new("operator", [Op::Arm]).prompt(),
                    writer([Op::Scale(2), put('a')]).prompt(),
                    plain(),
                ],
            )
        },
        Scenario {
            armed: Armed::default().with(KeyPattern::All, Some(EPOCH)),
            horizon: 2,
            ..arms(
                "disarm | put get | plain",
                widths(&[2]),
                vec![
                    Cast::new("operator", [Op::Disarm]),
                    writer([put('a'), GET]).prompt(),
                    plain(),
                ],
            )
        },
    ]
}

fn appending() -> Vec<Scenario> {
    vec![Scenario {
        append_only: true,
        homes: vec![OWN_SHARDS],
        horizon: 9,
        shows: vec![OPENED, DRAINED],
        ..Scenario::new(
            "grow, drain | append",
            widths(&[2]),
            vec![
                Cast::new("scaler", [Op::Scale(3), Op::Drain]).prompt(),
                writer([Op::Look, Op::Append(0, 'a'), Op::Query]),
            ],
        )
    }]
}

/// The protocol's limits: each of these scenarios violates an invariant with all rules kept.
/// `docs/protocol.md` describes them.
#[must_use]
pub fn limits() -> Vec<Scenario> {
    let twice = Scenario::new(
        "limit: put, twice | get delete get",
        one_shard(),
        vec![writer([put('a')]).sending_twice(), other([GET, DELETE, GET])],
    );
    let late = Scenario {
        metadata: widths(&[2]),
        in_flight: vec![Late::put(0, 1, FIRST_ERA, 'l')],
        ..Scenario::new(
            "limit: late put | create get | get",
            one_shard(),
            vec![writer([create('a'), GET]), reader([GET])],
        )
    };
    vec![twice, late]
}
