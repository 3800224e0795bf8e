//! The scenarios with a directory: actors read one of two copies of the key's page, while another
//! actor first changes the metadata item. An update of the metadata item is applied at once here;
//! only a write to the page may be late or lost.

use std::sync::Arc;

use sharding::ShardCount;
use sharding::internal::protocol::metadata::{Change, ShardMetadata};

use super::beginnings::{
    DELETE, GET, LOOK_AND_DELETE, after, close, create, drainer, drains, just_grown, marked,
    one_shard, other, put, reader, scaler, widths, writer,
};
use super::invariants::{
    DRAINED, FILLED, LATE_PAGE, MET_LATER, MOVED, OPENED, REPAIRED, TAKEN_OVER,
};
use super::program::{Cast, Op};
use super::scenario::{OTHER_JUMP, OWN_SHARDS, Scenario};
use super::state::{EPOCH, Page};

/// A complete copy of the page, written when the metadata item was `item`.
fn page(item: &ShardMetadata) -> Page {
    let layout = item.layout();
    let entry = layout.is_listed(ShardCount::ONE).then(|| Arc::new(layout));
    Page { entry, is_complete: true, is_moved: false }
}

const MISSING: Page = Page { entry: None, is_complete: false, is_moved: false };

/// A key of two shards that is marked for a drain. One copy of its page does not show the mark yet.
fn half_marked(name: &'static str, cast: Vec<Cast>) -> Scenario {
    Scenario {
        metadata: marked(),
        pages: vec![page(&marked()), page(&widths(&[2]))],
        horizon: 4,
        ..drains(name, cast)
    }
}

/// A scenario in which both copies of the page agree with the metadata item.
fn agreed(name: &'static str, metadata: ShardMetadata, cast: Vec<Cast>) -> Scenario {
    Scenario {
        pages: vec![page(&metadata), page(&metadata)],
        shows: vec![OPENED],
        ..Scenario::new(name, metadata, cast)
    }
}

pub(crate) fn listing() -> Vec<Scenario> {
    [growing(), growing_with_incomplete_pages(), left_behind(), draining()].concat()
}

fn growing() -> Vec<Scenario> {
    let mortal = || scaler(2).prompt().mortal();
    vec![
        agreed(
            "pages: grow | put | get",
            one_shard(),
            vec![scaler(2).prompt(), writer([put('a')]), reader([GET]).reads_copy(1)],
        ),
        Scenario {
            late_writes_may_lose: true,
            ..agreed(
                "pages: grow | create | create",
                one_shard(),
                vec![scaler(2).prompt(), writer([create('a')]).reads_copy(1), other([create('b')])],
            )
        },
        Scenario {
            homes: vec![OTHER_JUMP],
            shows: vec![OPENED, MET_LATER],
            ..agreed(
                "pages: grow | put | put, on one shard",
                one_shard(),
                vec![scaler(2).prompt(), writer([put('a')]).reads_copy(1), other([put('b')])],
            )
        },
        Scenario {
            shows: vec![TAKEN_OVER],
            ..agreed(
                "pages: grow, crash | put | look put",
                one_shard(),
                vec![
                    mortal(),
                    writer([put('a')]).prompt(),
                    other([Op::Look, put('b')]).reads_copy(1),
                ],
            )
        },
        Scenario {
            shows: vec![TAKEN_OVER],
            ..agreed(
                "pages: grow, crash | take over | put get",
                one_shard(),
                vec![
                    mortal(),
                    Cast::new("observer", [Op::TakeOver]).prompt(),
                    writer([put('a'), GET]).prompt().reads_copy(1),
                ],
            )
        },
    ]
}

/// A copy of the page is missing or incomplete.
fn growing_with_incomplete_pages() -> Vec<Scenario> {
    vec![
        Scenario {
            pages: vec![MISSING, page(&widths(&[2]))],
            items: vec![(0, 2, 2, 'x')],
            ..agreed(
                "pages: one missing | grow | put | get",
                widths(&[2]),
                vec![scaler(4).prompt(), writer([put('a')]), reader([GET]).reads_copy(1)],
            )
        },
        Scenario {
            pages: vec![page(&widths(&[2]))],
            horizon: 1,
            shows: vec![OPENED, FILLED],
            ..agreed(
                "pages: add a copy | grow | put | get",
                widths(&[2]),
                vec![
                    Cast::new("operator", [Op::AddCopy, Op::Fill]).prompt(),
                    scaler(4).prompt(),
                    writer([put('a')]),
                    reader([GET]).reads_copy(1),
                ],
            )
        },
        Scenario {
            horizon: 1,
            shows: vec![OPENED, MOVED],
            ..agreed(
                "pages: more pages | grow | put | get",
                widths(&[2]),
                vec![
                    Cast::new("operator", [Op::AddCopy, Op::Fill, Op::Move, Op::Move]).prompt(),
                    scaler(4).prompt(),
                    writer([put('a')]).reads_copy(2),
                    reader([GET]).reads_copy(1),
                ],
            )
        },
    ]
}

/// Scenarios after an actor died between writing the metadata item and the page, or between two
/// copies.
fn left_behind() -> Vec<Scenario> {
    let growing = after(one_shard(), EPOCH, &[close(2)]);
    let shrinking = after(widths(&[2]), EPOCH, &[close(1)]);
    let shrunk = after(shrinking.clone(), EPOCH, &[Change::Open]);
    vec![
        Scenario {
            pages: vec![page(&growing), page(&one_shard())],
            late_page: Some((1, growing.layout())),
            validity: 2,
            shows: vec![OPENED, LATE_PAGE],
            ..agreed(
                "pages: a late close | put | put",
                growing.clone(),
                vec![writer([put('a')]).prompt(), other([put('b')]).reads_copy(1)],
            )
        },
        Scenario {
            pages: vec![page(&growing), page(&growing)],
            shows: vec![REPAIRED],
            ..agreed(
                "pages: opened in the item | put | put get",
                just_grown(),
                vec![writer([put('a')]), other([put('b'), GET]).reads_copy(1)],
            )
        },
        Scenario {
            pages: vec![page(&just_grown()), page(&growing)],
            late_page: Some((1, just_grown().layout())),
            horizon: 1,
            shows: vec![OPENED, LATE_PAGE],
            ..agreed(
                "pages: a late open | grow again | put | put",
                just_grown(),
                vec![scaler(4).prompt(), writer([put('a')]).reads_copy(1), other([put('b')])],
            )
        },
        Scenario {
            append_only: true,
            homes: vec![OWN_SHARDS],
            pages: vec![page(&shrunk), page(&shrinking)],
            horizon: 8,
            shows: vec![DRAINED],
            ..agreed(
                "pages: shrunk in the item | drain | look append",
                shrunk,
                vec![drainer().prompt(), writer([Op::Look, Op::Append(0, 'a')]).reads_copy(1)],
            )
        },
    ]
}

fn draining() -> Vec<Scenario> {
    vec![
        half_marked(
            "pages: settle | delete get",
            vec![drainer().prompt(), writer([DELETE, GET]).reads_copy(1)],
        ),
        half_marked(
            "pages: settle | look and delete, get",
            vec![drainer().prompt(), writer([LOOK_AND_DELETE, GET]).reads_copy(1)],
        ),
        Scenario {
            horizon: 4,
            shows: vec![OPENED, DRAINED],
            ..agreed(
                "pages: shrink to one, drain | look put",
                widths(&[2]),
                vec![
                    Cast::new("scaler", [Op::Scale(1), Op::Drain]).prompt(),
                    writer([Op::Look, put('a')]).reads_copy(1),
                ],
            )
        },
    ]
}
