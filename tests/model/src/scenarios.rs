//! The scenarios: two or three actors each. Each scenario can show one kind of fault, and is small
//! enough to be explored completely.

use sharding::internal::protocol::armed::Armed;
use sharding::internal::protocol::layout::FIRST_ERA;
use sharding::maintenance::KeyPattern;

use super::beginnings::{
    DELETE, GET, LOOK_AND_DELETE, add, add_once, drainer, drains, just_grown,
    left_by_a_dead_drainer, one_shard, other, reader, scaler, scales_and_drains, settled, widths,
    with_x, writer,
};
use super::directory::listing;
use super::expressions::expressing;
use super::invariants::{DRAINED, LATE_REQUEST, OPENED, PURGED, TAKEN_OVER};
use super::program::Cast;
use super::program::Op::{self, Create, CreateAgain, Put, Swap};
use super::scenario::{JUMP, Late, MODULO, OTHER_JUMP, Scenario};
use super::state::EPOCH;

/// All scenarios in which every invariant holds.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    [updating(), growing(), draining(), repeating(), adopting(), arming(), listing(), expressing()]
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
    let grows = |name| Scenario::new(name, one_shard()).showing([OPENED]);
    vec![
        grows("grow | put | put get").cast([
            scaler(2),
            writer([Put('a')]),
            other([Put('b'), GET]).ahead_by(2),
        ]),
        grows("grow | put | look query").cast([
            scaler(2),
            writer([Put('a')]),
            reader([Op::Look, Op::Query]),
        ]),
        grows("grow | delete get | look get")
            .cast([scaler(2), writer([DELETE, GET]), reader([Op::Look, GET])])
            .items([(0, 1, FIRST_ERA, 'x')]),
        grows("grow | create delete | create")
            .cast([scaler(2), writer([Create('a'), DELETE]), other([Create('b')])])
            .late_writes_may_lose(),
        grows("grow, crash | take over | put get")
            .cast([
                scaler(2).mortal(),
                Cast::new("observer", [Op::TakeOver]),
                writer([Put('a'), GET]),
            ])
            .showing([OPENED, TAKEN_OVER]),
        grows("grow to 2 | grow to 4 | put get")
            .cast([scaler(2), Cast::new("second scaler", [Op::Scale(4)]), writer([Put('a'), GET])])
            .horizon(3),
        grows("grow | put | scan")
            .homes([JUMP, OTHER_JUMP])
            .items([(0, 1, FIRST_ERA, 'x'), (1, 1, FIRST_ERA, 'y')])
            .cast([scaler(3), Cast { key: 1, ..writer([Put('a')]) }, reader([Op::Scan])]),
        grows("grow to 2 and 4 | take over | put | look get")
            .cast([
                Cast::new("scaler", [Op::Scale(2), Op::Scale(4)]).prompt(),
                Cast::new("observer", [Op::TakeOver]),
                writer([Put('a')]),
                reader([Op::Look, GET]),
            ])
            .horizon(1),
        // Keys that have changed their width before.
        with_x("shrink by modulo | put | get", widths(&[2, 3]))
            .cast([scaler(2), writer([Put('a')]), reader([GET])])
            .homes([MODULO]),
        Scenario::new("an item where it has no place | put | query", settled(2))
            .items([(0, 1, FIRST_ERA, 'o')])
            .cast([writer([Put('a')]), reader([Op::Query, Op::Query])]),
        with_x("late put | put get | query", widths(&[2]))
            .in_flight(Late::put(1, 'l'))
            .cast([writer([Put('a'), GET]), reader([Op::Query])])
            .showing([LATE_REQUEST]),
    ]
}

fn draining() -> Vec<Scenario> {
    let settles = |name| drains(name, widths(&[2]));
    let second_drainer = || Cast::new("second drainer", [Op::Drain]).prompt();
    let drains_late =
        |name, metadata, late| drains(name, metadata).in_flight(late).validity(3).horizon(8);
    vec![
        settles("settle | get").cast([drainer(), reader([GET])]),
        settles("settle | put get").cast([drainer(), writer([Put('a'), GET])]),
        settles("settle | delete get").cast([drainer(), writer([DELETE, GET])]),
        settles("settle | look and delete, get").cast([drainer(), writer([LOOK_AND_DELETE, GET])]),
        settles("settle | delete create")
            .cast([drainer().prompt(), writer([DELETE, Create('a')])])
            .late_writes_may_lose(),
        settles("settle, crash | settle | get")
            .cast([drainer().prompt().mortal(), second_drainer(), reader([GET])])
            .horizon(6),
        settles("settle, crash | settle | delete")
            .cast([drainer().prompt().mortal(), second_drainer(), writer([DELETE])])
            .horizon(6),
        drains("settle | scan", widths(&[3]))
            .homes([JUMP, OTHER_JUMP])
            .items([(0, 1, FIRST_ERA, 'x'), (1, 1, FIRST_ERA, 'y')])
            .cast([drainer(), reader([Op::Scan])]),
        // A request that is late, or that gets no response.
        drains_late("settle | late put | get", just_grown(), Late::put(1, 'l'))
            .cast([drainer().prompt(), reader([GET])]),
        drains_late(
            "a dead drainer's move | settle | delete get",
            left_by_a_dead_drainer(),
            Late::copy(2, 'x'),
        )
        .cast([drainer().prompt(), writer([DELETE, GET])]),
        drains("settle, a move unanswered | delete", widths(&[2]))
            .cast([Cast { gives_up: true, ..drainer().prompt() }, writer([DELETE])])
            .validity(2)
            .horizon(7),
        drains_late("settle | late delete | get get", just_grown(), Late::delete(1))
            .cast([drainer().prompt(), reader([GET, GET])]),
        drains_late("settle | late put | look and delete, get", just_grown(), Late::put(1, 'l'))
            .items([(0, 2, 2, 'x')])
            .cast([drainer().prompt(), writer([LOOK_AND_DELETE, GET])]),
        // Before or after a change of the width.
        drains("shrink, drain | put get", widths(&[2]))
            .items([(0, 2, 2, 'x')])
            .cast([scales_and_drains(1), writer([Put('a'), GET])])
            .horizon(9)
            .showing([OPENED, DRAINED]),
        drains("grow, drain | look and delete", one_shard())
            .cast([scales_and_drains(2), writer([LOOK_AND_DELETE])])
            .horizon(9)
            .showing([OPENED]),
        drains("settle | shrink, drain", widths(&[2]))
            .cast([drainer().prompt(), scales_and_drains(1)])
            .validity(2)
            .horizon(10)
            .showing([OPENED, DRAINED]),
        Scenario::new("grow, drain | append", widths(&[2]))
            .append_only()
            .cast([scales_and_drains(3), writer([Op::Look, Op::Append('a'), Op::Query])])
            .horizon(9)
            .showing([OPENED, DRAINED]),
    ]
}

fn repeating() -> Vec<Scenario> {
    let of_one_shard = |name| Scenario::new(name, one_shard());
    vec![
        of_one_shard("put, twice | put get")
            .cast([writer([Put('a')]).sending(2), other([GET, Put('b'), GET]).ahead_by(-1)])
            .showing([LATE_REQUEST]),
        of_one_shard("put, twice | delete get")
            .cast([writer([Put('a')]).sending(2), other([DELETE, GET])])
            .showing([LATE_REQUEST]),
        of_one_shard("put, twice | put delete")
            .cast([writer([Put('a')]).sending(2), other([Put('b'), DELETE]).ahead_by(1)]),
        of_one_shard("put, thrice | delete").cast([writer([Put('a')]).sending(3), other([DELETE])]),
        of_one_shard("create, twice | delete get")
            .cast([writer([Create('a')]).sending(2), other([DELETE, GET])])
            .late_writes_may_lose(),
        with_x("delete, twice | put", one_shard())
            .cast([writer([DELETE]).sending(2), other([Put('a'), GET]).ahead_by(-1)]),
        Scenario::new("create, twice | create | delete", widths(&[2]))
            .cast([writer([Create('a'), GET]).sending(2), other([Create('b'), DELETE])])
            .late_writes_may_lose()
            .horizon(1),
        Scenario::new("late create | create again | create", just_grown())
            .in_flight(Late::create(1, 'a'))
            .cast([writer([CreateAgain('a')]), other([Create('b')])])
            .late_writes_may_lose()
            .horizon(1)
            .showing([LATE_REQUEST]),
        Scenario::new("create, create again | get delete", widths(&[2]))
            .cast([writer([Create('a'), CreateAgain('a')]), other([GET, DELETE, GET])])
            .late_writes_may_lose()
            .horizon(1),
    ]
}

/// Updates: read-modify-write and in place.
fn updating() -> Vec<Scenario> {
    let grows = |name| with_x(name, one_shard()).late_writes_may_lose().showing([OPENED]);
    let drains = |name| drains(name, widths(&[2]));
    vec![
        with_x("swap | swap", one_shard())
            .cast([writer([Swap('a'), GET]), other([Swap('b'), GET])]),
        with_x("swap | swap, at an old place", widths(&[2]))
            .cast([writer([Swap('a'), GET]), other([Swap('b'), GET])]),
        with_x("add | put get", one_shard())
            .cast([writer([add('a')]), other([Put('b'), GET]).ahead_by(1)]),
        with_x("add | swap get, at an old place", widths(&[2]))
            .cast([writer([add('a')]), other([Swap('b'), GET])]),
        with_x("add | delete get", widths(&[2])).cast([writer([add('a')]), other([DELETE, GET])]),
        with_x("add, home has an older copy | get", widths(&[2, 1]))
            .items([(0, 1, FIRST_ERA, 'x'), (0, 2, 2, 'y')])
            .cast([writer([add('a'), GET]), reader([GET])]),
        grows("grow | swap | swap get").cast([
            scaler(2),
            writer([Swap('a')]),
            other([Swap('b'), GET]),
        ]),
        grows("grow | add | put get").cast([scaler(2), writer([add('a')]), other([Put('b'), GET])]),
        drains("settle | swap get").cast([drainer(), writer([Swap('a'), GET])]),
        drains("settle | add get").cast([drainer(), writer([add('a'), GET])]),
        drains("settle, purge | swap, twice, delete")
            .cast([drainer().prompt(), writer([Swap('a'), DELETE]).prompt().sending(2)])
            .validity(2)
            .horizon(9)
            .showing([DRAINED, LATE_REQUEST, PURGED]),
        with_x("add, twice | put get", one_shard())
            .cast([writer([add_once('a')]).sending(2), other([GET, Swap('b'), GET])])
            .showing([LATE_REQUEST]),
        with_x("add, add again | swap get", one_shard())
            .cast([writer([add_once('a'), Op::AddAgain('a'), GET]), other([Swap('b'), GET])]),
        grows("grow | add, add again | get")
            .cast([scaler(2), writer([add_once('a'), Op::AddAgain('a')]), reader([GET])])
            .showing([OPENED, LATE_REQUEST]),
    ]
}

/// Keys with an item that another program stored before.
fn adopting() -> Vec<Scenario> {
    let adopts = |name, metadata| {
        Scenario::new(name, metadata).items([(0, 1, 0, 'x')]).horizon(5).showing([DRAINED])
    };
    vec![
        adopts("adopted: grow | put get", one_shard())
            .cast([scaler(2), writer([Put('a'), GET])])
            .horizon(2)
            .showing([OPENED]),
        adopts("adopted: grow, settle | delete get", one_shard())
            .cast([scales_and_drains(2), writer([DELETE, GET])]),
        adopts("adopted: grow again, settle | delete get", widths(&[1, 2]))
            .cast([scales_and_drains(4), writer([DELETE, GET])])
            .horizon(8),
        adopts("adopted: settle | swap get", widths(&[1, 2]))
            .cast([drainer(), writer([Swap('a'), GET])]),
        adopts("adopted: settle | create query", widths(&[1, 2]))
            .cast([drainer(), writer([Create('a'), Op::Query])]),
    ]
}

/// A key that another program writes until it is armed.
fn arming() -> Vec<Scenario> {
    let plain = || Cast::new("another program", [Op::Plain('n')]);
    vec![
        Scenario::new("arm | grow, put | plain", one_shard())
            .armed(Armed::default())
            .cast([
                Cast::new("operator", [Op::Arm]).prompt(),
                writer([Op::Scale(2), Put('a')]).prompt(),
                plain(),
            ])
            .horizon(7)
            .showing([OPENED]),
        Scenario::new("disarm | put get | plain", widths(&[2]))
            .armed(Armed::default().with(KeyPattern::All, Some(EPOCH)))
            .cast([Cast::new("operator", [Op::Disarm]), writer([Put('a'), GET]).prompt(), plain()]),
    ]
}

/// The protocol's limits: each of these scenarios violates an invariant with all rules kept.
/// `docs/protocol.md` describes them.
#[must_use]
pub fn limits() -> Vec<Scenario> {
    vec![
        Scenario::new("limit: put, twice | get delete get", one_shard())
            .cast([writer([Put('a')]).sending(2), other([GET, DELETE, GET])]),
        Scenario::new("limit: late put | create get | get", widths(&[2]))
            .in_flight(Late::put(1, 'l'))
            .cast([writer([Create('a'), GET]), reader([GET])]),
    ]
}
