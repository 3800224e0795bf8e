//! The scenarios of writes with an expression. Each begins in a row of the table in
//! `docs/protocol.md`, "Expressions".

use sharding::internal::protocol::layout::FIRST_ERA;

use super::beginnings::{
    DELETE, ERASE, GET, TAKE, drainer, drains, just_grown, left_by_a_dead_drainer, one_shard,
    other, put_new, reader, scaler, settled, strip, update, upsert, widths, with_x, writer,
};
use super::invariants::{DRAINED, LATE_REQUEST, OPENED, PURGED};
use super::program::Op::{Create, CreateAgain, Put};
use super::scenario::{Late, MODULO, Scenario};

pub(crate) fn expressing() -> Vec<Scenario> {
    let grows = |name| Scenario::new(name, one_shard()).late_writes_may_lose().showing([OPENED]);
    let late = |name, metadata, request| {
        with_x(name, metadata).in_flight(request).late_writes_may_lose().showing([LATE_REQUEST])
    };
    vec![
        // One place.
        with_x("expressed: update get | take | put", one_shard())
            .cast([writer([update('a'), GET]).sending(2), other([TAKE, Put('b')])]),
        Scenario::new("expressed: put new get | upsert take", one_shard())
            .cast([writer([put_new('a'), GET]), other([upsert('b'), TAKE])]),
        Scenario::new("expressed: a tombstone | update get | strip, put new", settled(2))
            .tombstone(2, 2)
            .cast([writer([update('a'), GET]), other([strip('b'), put_new('c')])]),
        Scenario::new("expressed: put, twice | upsert erase", one_shard())
            .cast([writer([Put('a')]).sending(2), other([upsert('b'), ERASE])])
            .showing([LATE_REQUEST]),
        Scenario::new("expressed: create, create again | take get", widths(&[2]))
            .cast([writer([Create('a'), CreateAgain('a')]), other([TAKE, GET])])
            .late_writes_may_lose()
            .horizon(1),
        // Several places.
        with_x("expressed: at an old place | update | strip get", widths(&[2]))
            .cast([writer([update('a')]), other([strip('b'), GET])]),
        with_x("expressed: at an old place | take | put delete", widths(&[2]))
            .cast([writer([TAKE]), other([Put('b'), DELETE])]),
        Scenario::new("expressed: home has an older copy | update | take get", widths(&[2, 1]))
            .items([(0, 1, FIRST_ERA, 'x'), (0, 2, 2, 'y')])
            .cast([writer([update('a')]), other([TAKE, GET])]),
        with_x("expressed: of an earlier era | update | erase, put new", widths(&[2, 1]))
            .cast([writer([update('a')]), other([ERASE, put_new('b')])]),
        with_x("expressed: an old tombstone over an item | put new | upsert get", widths(&[2, 1]))
            .tombstone(2, 2)
            .cast([writer([put_new('a')]), other([upsert('b'), GET])]),
        Scenario::new("expressed: an old tombstone | put new | strip, upsert", widths(&[2]))
            .tombstone(1, FIRST_ERA)
            .cast([writer([put_new('a')]), other([strip('b'), upsert('c')])]),
        // Growing.
        grows("expressed: grow | update | update take")
            .cast([scaler(2), writer([update('a')]), other([update('b'), TAKE])])
            .items([(0, 1, FIRST_ERA, 'x')]),
        grows("expressed: grow | put new | put new").cast([
            scaler(2),
            writer([put_new('a')]),
            other([put_new('b')]),
        ]),
        // Draining.
        drains("expressed: settle | update take", widths(&[2]))
            .cast([drainer().prompt(), writer([update('a'), TAKE]).prompt()])
            .validity(2)
            .horizon(3)
            .showing([DRAINED, LATE_REQUEST]),
        drains("expressed, adopted: settle | strip get", widths(&[1, 2]))
            .items([(0, 1, 0, 'x')])
            .cast([drainer().prompt(), writer([strip('a'), GET])]),
        drains("expressed: settle, purge | put new", widths(&[2, 1, 2]))
            .items([(0, 2, 2, 'x')])
            .tombstone(1, 3)
            .cast([drainer().prompt(), writer([put_new('a')])])
            .horizon(8)
            .showing([DRAINED, PURGED]),
        drains("expressed: a dead drainer's move | settle | take", left_by_a_dead_drainer())
            .in_flight(Late::copy(2, 'x'))
            .cast([drainer().prompt(), writer([TAKE])])
            .validity(3)
            .horizon(8),
        // Late requests.
        late("expressed: late put | update get | get", just_grown(), Late::put(1, 'l'))
            .cast([writer([update('a'), GET]), reader([GET])]),
        late("expressed: late pull | take | put new get", just_grown(), Late::pull((1, 2), 'x'))
            .cast([writer([TAKE]), other([put_new('a'), GET])]),
        late(
            "expressed: late pull of an earlier era | strip | update get",
            widths(&[2, 3]),
            Late::pull((1, 2), 'x'),
        )
        .homes([MODULO])
        .cast([writer([strip('a')]), other([update('b'), GET])]),
    ]
}
