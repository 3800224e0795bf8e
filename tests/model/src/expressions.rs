//! The scenarios of writes with an expression. Each begins in a row of the table in
//! `docs/protocol.md`, "Expressions".

use sharding::internal::protocol::layout::FIRST_ERA;

use super::beginnings::{
    DELETE, ERASE, GET, TAKE, create, create_again, drainer, drains, just_grown,
    left_by_a_dead_drainer, one_shard, other, put, put_new, reader, scaler, settled, strip, update,
    upsert, widths, with_x, writer,
};
use super::invariants::{DRAINED, LATE_REQUEST, OPENED, PURGED};
use super::scenario::{Late, MODULO, Scenario};

/// Writes with an expression.
pub(crate) fn expressing() -> Vec<Scenario> {
    [with_one_place(), with_several_places(), growing(), draining(), with_late_requests()].concat()
}

fn with_one_place() -> Vec<Scenario> {
    vec![
        with_x(
            "expressed: update get | take | put",
            one_shard(),
            vec![writer([update('a'), GET]).sending_twice(), other([TAKE, put('b')])],
        ),
        Scenario::new(
            "expressed: put new get | upsert take",
            one_shard(),
            vec![writer([put_new('a'), GET]), other([upsert('b'), TAKE])],
        ),
        Scenario {
            tombstones: vec![(0, 2, 2)],
            ..Scenario::new(
                "expressed: a tombstone | update get | strip, put new",
                settled(2),
                vec![writer([update('a'), GET]), other([strip('b'), put_new('c')])],
            )
        },
        Scenario {
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "expressed: put, twice | upsert erase",
                one_shard(),
                vec![writer([put('a')]).sending_twice(), other([upsert('b'), ERASE])],
            )
        },
        Scenario {
            late_writes_may_lose: true,
            horizon: 1,
            ..Scenario::new(
                "expressed: create, create again | take get",
                widths(&[2]),
                vec![writer([create('a'), create_again('a')]), other([TAKE, GET])],
            )
        },
    ]
}

fn with_several_places() -> Vec<Scenario> {
    vec![
        with_x(
            "expressed: at an old place | update | strip get",
            widths(&[2]),
            vec![writer([update('a')]), other([strip('b'), GET])],
        ),
        with_x(
            "expressed: at an old place | take | put delete",
            widths(&[2]),
            vec![writer([TAKE]), other([put('b'), DELETE])],
        ),
        Scenario {
            items: vec![(0, 1, FIRST_ERA, 'x'), (0, 2, 2, 'y')],
            ..Scenario::new(
                "expressed: home has an older copy | update | take get",
                widths(&[2, 1]),
                vec![writer([update('a')]), other([TAKE, GET])],
            )
        },
        with_x(
            "expressed: of an earlier era | update | erase, put new",
            widths(&[2, 1]),
            vec![writer([update('a')]), other([ERASE, put_new('b')])],
        ),
        Scenario {
            tombstones: vec![(0, 2, 2)],
            ..with_x(
                "expressed: an old tombstone over an item | put new | upsert get",
                widths(&[2, 1]),
                vec![writer([put_new('a')]), other([upsert('b'), GET])],
            )
        },
        Scenario {
            tombstones: vec![(0, 1, FIRST_ERA)],
            ..Scenario::new(
                "expressed: an old tombstone | put new | strip, upsert",
                widths(&[2]),
                vec![writer([put_new('a')]), other([strip('b'), upsert('c')])],
            )
        },
    ]
}

fn growing() -> Vec<Scenario> {
    let grows = |name, cast| Scenario {
        shows: vec![OPENED],
        late_writes_may_lose: true,
        ..with_x(name, one_shard(), cast)
    };
    vec![
        grows(
            "expressed: grow | update | update take",
            vec![scaler(2), writer([update('a')]), other([update('b'), TAKE])],
        ),
        Scenario {
            items: Vec::new(),
            ..grows(
                "expressed: grow | put new | put new",
                vec![scaler(2), writer([put_new('a')]), other([put_new('b')])],
            )
        },
    ]
}

fn draining() -> Vec<Scenario> {
    vec![
        Scenario {
            validity: 2,
            horizon: 3,
            shows: vec![DRAINED, LATE_REQUEST],
            ..drains(
                "expressed: settle | update take",
                vec![drainer().prompt(), writer([update('a'), TAKE]).prompt()],
            )
        },
        Scenario {
            items: vec![(0, 1, 0, 'x')],
            metadata: widths(&[1, 2]),
            ..drains(
                "expressed, adopted: settle | strip get",
                vec![drainer().prompt(), writer([strip('a'), GET])],
            )
        },
        Scenario {
            items: vec![(0, 2, 2, 'x')],
            tombstones: vec![(0, 1, 3)],
            metadata: widths(&[2, 1, 2]),
            horizon: 8,
            shows: vec![DRAINED, PURGED],
            ..drains(
                "expressed: settle, purge | put new",
                vec![drainer().prompt(), writer([put_new('a')])],
            )
        },
        Scenario {
            metadata: left_by_a_dead_drainer(),
            in_flight: vec![Late::copy(0, 2, FIRST_ERA, 'x')],
            validity: 3,
            horizon: 8,
            ..drains(
                "expressed: a dead drainer's move | settle | take",
                vec![drainer().prompt(), writer([TAKE])],
            )
        },
    ]
}

fn with_late_requests() -> Vec<Scenario> {
    let late = |name, metadata, request, cast| Scenario {
        in_flight: vec![request],
        shows: vec![LATE_REQUEST],
        late_writes_may_lose: true,
        ..with_x(name, metadata, cast)
    };
    vec![
        late(
            "expressed: late put | update get | get",
            just_grown(),
            Late::put(0, 1, FIRST_ERA, 'l'),
            vec![writer([update('a'), GET]), reader([GET])],
        ),
        late(
            "expressed: late pull | take | put new get",
            just_grown(),
            Late::pull(0, (1, 2), 2, 'x'),
            vec![writer([TAKE]), other([put_new('a'), GET])],
        ),
        Scenario {
            homes: vec![MODULO],
            ..late(
                "expressed: late pull of an earlier era | strip | update get",
                widths(&[2, 3]),
                Late::pull(0, (1, 2), 2, 'x'),
                vec![writer([strip('a')]), other([update('b'), GET])],
            )
        },
    ]
}
