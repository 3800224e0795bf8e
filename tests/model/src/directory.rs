//! The scenarios with a directory: actors read one of two copies of the key's page, while another
//! actor first changes the metadata item. An update of the metadata item is applied at once here;
//! only a write to the page may be late or lost.

use std::sync::Arc;

use sharding::ShardCount;
use sharding::internal::protocol::metadata::{Change, ShardMetadata};

use super::beginnings::{
    DELETE, GET, LOOK_AND_DELETE, after, close, drainer, drains, just_grown, marked, one_shard,
    other, reader, scaler, scales_and_drains, widths, writer,
};
use super::invariants::{
    DRAINED, FILLED, LATE_PAGE, MET_LATER, MOVED, OPENED, REPAIRED, TAKEN_OVER,
};
use super::program::Cast;
use super::program::Op::{self, Create, Put};
use super::scenario::{Late, OTHER_JUMP, Scenario};
use super::state::{EPOCH, Page};

/// A complete copy of the page, written when the metadata item was `item`.
fn page(item: &ShardMetadata) -> Page {
    let layout = item.layout();
    let entry = layout.is_listed(ShardCount::ONE).then(|| Arc::new(layout));
    Page { entry, is_complete: true, is_moved: false }
}

const MISSING: Page = Page { entry: None, is_complete: false, is_moved: false };

/// A scenario in which both copies of the page agree with the metadata item.
fn agreed(name: &'static str, metadata: ShardMetadata) -> Scenario {
    let pages = [page(&metadata), page(&metadata)];
    Scenario::new(name, metadata).pages(pages).showing([OPENED])
}

pub(crate) fn listing() -> Vec<Scenario> {
    let grows = |name| agreed(name, one_shard());
    let grows_further = |name| agreed(name, widths(&[2]));
    let mortal = || scaler(2).prompt().mortal();
    let growing = after(one_shard(), EPOCH, &[close(2)]);
    let shrinking = after(widths(&[2]), EPOCH, &[close(1)]);
    let shrunk = after(shrinking.clone(), EPOCH, &[Change::Open]);
    // One copy of the page does not show the mark yet.
    let half_marked =
        |name| drains(name, marked()).pages([page(&marked()), page(&widths(&[2]))]).horizon(4);
    vec![
        grows("pages: grow | put | get").cast([
            scaler(2).prompt(),
            writer([Put('a')]),
            reader([GET]).reads_copy(1),
        ]),
        grows("pages: grow | create | create")
            .cast([scaler(2).prompt(), writer([Create('a')]).reads_copy(1), other([Create('b')])])
            .late_writes_may_lose(),
        grows("pages: grow | put | put, on one shard")
            .homes([OTHER_JUMP])
            .cast([scaler(2).prompt(), writer([Put('a')]).reads_copy(1), other([Put('b')])])
            .showing([OPENED, MET_LATER]),
        grows("pages: grow, crash | put | look put")
            .cast([
                mortal(),
                writer([Put('a')]).prompt(),
                other([Op::Look, Put('b')]).reads_copy(1),
            ])
            .showing([TAKEN_OVER]),
        grows("pages: grow, crash | take over | put get")
            .cast([
                mortal(),
                Cast::new("observer", [Op::TakeOver]).prompt(),
                writer([Put('a'), GET]).prompt().reads_copy(1),
            ])
            .showing([TAKEN_OVER]),
        // A copy of the page is missing or incomplete.
        grows_further("pages: one missing | grow | put | get")
            .pages([MISSING, page(&widths(&[2]))])
            .items([(0, 2, 2, 'x')])
            .cast([scaler(4).prompt(), writer([Put('a')]), reader([GET]).reads_copy(1)]),
        grows_further("pages: add a copy | grow | put | get")
            .pages([page(&widths(&[2]))])
            .cast([
                Cast::new("operator", [Op::AddCopy, Op::Fill]).prompt(),
                scaler(4).prompt(),
                writer([Put('a')]),
                reader([GET]).reads_copy(1),
            ])
            .horizon(1)
            .showing([OPENED, FILLED]),
        grows_further("pages: more pages | grow | put | get")
            .cast([
                Cast::new("operator", [Op::AddCopy, Op::Fill, Op::Move, Op::Move]).prompt(),
                scaler(4).prompt(),
                writer([Put('a')]).reads_copy(2),
                reader([GET]).reads_copy(1),
            ])
            .horizon(1)
            .showing([OPENED, MOVED]),
        // An actor died between writing the metadata item and the page, or between two copies.
        Scenario::new("pages: a late close | put | put", growing.clone())
            .pages([page(&growing), page(&one_shard())])
            .in_flight(Late::page(1, &growing))
            .cast([writer([Put('a')]).prompt(), other([Put('b')]).reads_copy(1)])
            .validity(2)
            .showing([OPENED, LATE_PAGE]),
        Scenario::new("pages: opened in the item | put | put get", just_grown())
            .pages([page(&growing), page(&growing)])
            .cast([writer([Put('a')]), other([Put('b'), GET]).reads_copy(1)])
            .showing([REPAIRED]),
        Scenario::new("pages: a late open | grow again | put | put", just_grown())
            .pages([page(&just_grown()), page(&growing)])
            .in_flight(Late::page(1, &just_grown()))
            .cast([scaler(4).prompt(), writer([Put('a')]).reads_copy(1), other([Put('b')])])
            .horizon(1)
            .showing([OPENED, LATE_PAGE]),
        Scenario::new("pages: shrunk in the item | drain | look append", shrunk.clone())
            .append_only()
            .pages([page(&shrunk), page(&shrinking)])
            .cast([drainer().prompt(), writer([Op::Look, Op::Append('a')]).reads_copy(1)])
            .horizon(8)
            .showing([DRAINED]),
        // Draining.
        half_marked("pages: settle | delete get")
            .cast([drainer().prompt(), writer([DELETE, GET]).reads_copy(1)]),
        half_marked("pages: settle | look and delete, get")
            .cast([drainer().prompt(), writer([LOOK_AND_DELETE, GET]).reads_copy(1)]),
        agreed("pages: shrink to one, drain | look put", widths(&[2]))
            .cast([scales_and_drains(1), writer([Op::Look, Put('a')]).reads_copy(1)])
            .horizon(4)
            .showing([OPENED, DRAINED]),
    ]
}
