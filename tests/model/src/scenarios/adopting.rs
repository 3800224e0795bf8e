//! Adopting a table that was not sharded: an item stands under the bare key, and is migrated.

use super::super::invariants::{DRAINED, MIGRATED};
use super::super::program::{Cast, Op};
use super::super::state::{BARE, DrainGoal, Metadata};
use super::{Scenario, Size, knowing, one_shard, out, shrink, two_shards};

pub(super) fn scenarios(size: Size) -> Vec<Scenario> {
    let migrator = || Cast::new("migrator", [Op::Migrate]);
    let putter = || Cast::new("putter", [Op::Look, Op::put('x')]);
    let deleter = || Cast::new("deleter", [Op::Look, Op::delete()]);
    let getter = || Cast::new("reader", [Op::Look, Op::get()]);
    let adopting = |longest_read: u8, horizon: u8, scenario: Scenario| Scenario {
        adopting: true,
        items: vec![(0, BARE, 'o')],
        validity: 0,
        longest_read,
        horizon,
        shows: vec![MIGRATED],
        ..scenario
    };
    let late = |validity: u8, horizon: u8, scenario: Scenario| Scenario { validity, ..adopting(0, horizon, scenario) };
    vec![
        adopting(
            1,
            size.pick(3, 4),
            Scenario::new(
                "migrating under reads",
                "a query and a get, while the item that they look for moves home",
                vec![Cast::new("reader", [Op::query()]).with_view(knowing(one_shard())), getter(), migrator()],
            ),
        ),
        adopting(
            0,
            size.pick(3, 4),
            Scenario::new(
                "migrating under a put",
                "the item is put, twice where the answer is lost, and read while it moves home",
                vec![putter().sending_twice(), getter(), migrator()],
            ),
        ),
        adopting(
            0,
            size.pick(3, 4),
            Scenario::new(
                "migrating under a delete",
                "the item is deleted and read while it moves home",
                vec![deleter(), getter(), migrator()],
            ),
        ),
        adopting(
            0,
            size.pick(3, 4),
            Scenario::new(
                "migrating under a put and a delete",
                "the item is put and deleted while it moves home",
                vec![putter(), deleter(), migrator()],
            ),
        ),
        adopting(
            0,
            size.pick(3, 4),
            Scenario::new(
                "migrating under a creation",
                "a create-only write meets the item, or its deletion, while it moves home",
                vec![Cast::new("creator", [Op::Look, Op::create_only('x')]), deleter(), migrator()],
            ),
        ),
        adopting(
            0,
            size.pick(3, 4),
            Scenario::new(
                "migrating under an append",
                "an append without a view leaves a newer copy, while the item moves home and is read",
                vec![
                    Cast::new("appender", [Op::append(0, 'x')]),
                    Cast::new("reader", [Op::Look, Op::query()]),
                    migrator(),
                ],
            ),
        ),
        adopting(
            0,
            size.pick(3, 4),
            Scenario {
                metadata: None,
                ..Scenario::new(
                    "growing while adopting",
                    "the item is put and read while its key, which has no metadata yet, grows, and is migrated then",
                    vec![putter(), getter(), Cast::new("scaler", [out(2), Op::Migrate])],
                )
            },
        ),
        late(
            2,
            size.pick(5, 6),
            Scenario::new(
                "creating while adopting",
                "a create-only write under an old view, while its key grows and is migrated then",
                vec![
                    Cast::new("creator", [Op::Look, Op::create_only('x'), Op::Look]),
                    Cast::new("scaler", [out(2), Op::Migrate]),
                ],
            ),
        ),
        late(
            1,
            size.pick(4, 5),
            Scenario::new(
                "deleting while adopting",
                "a delete under an old view, while its key grows and is migrated then; and a get",
                vec![deleter(), getter(), Cast::new("scaler", [out(2), Op::Migrate])],
            ),
        ),
        adopting(
            0,
            size.pick(3, 4),
            Scenario::new(
                "growing while migrating",
                "a migration is stopped for a growth, and begun again",
                vec![
                    putter(),
                    Cast::new("migrator", [Op::Migrate, Op::Migrate]),
                    Cast::new("scaler", [Op::StopDrain, out(2)]),
                ],
            ),
        ),
        adopting(
            0,
            size.pick(3, 4),
            Scenario::new(
                "resuming a migration",
                "a migrator may die anywhere, and a second one goes on",
                vec![putter(), migrator().mortal(), Cast::new("second migrator", [Op::Migrate])],
            ),
        ),
        Scenario {
            items: vec![(0, BARE, 'o'), (1, BARE, 'p')],
            sort_keys: 2,
            ..adopting(
                1,
                size.pick(3, 4),
                Scenario::new(
                    "scanning while migrating",
                    "two pages by cursor over two items that both move",
                    vec![Cast::new("reader", [Op::scan()]).with_view(knowing(one_shard())), migrator()],
                ),
            )
        },
        Scenario {
            metadata: Some(Metadata { draining: Some(DrainGoal::Settle), generation: 4, ..two_shards() }),
            cold_append: false,
            items: vec![(0, BARE, 'o'), (0, 1, 'p')],
            shows: Vec::new(),
            ..adopting(
                0,
                size.pick(3, 4),
                Scenario::new(
                    "migrating beside a frozen settler",
                    "a settling is stopped and a migration begun, all while the settler may be frozen",
                    vec![
                        getter(),
                        Cast::new("settler", [Op::Settle]),
                        Cast::new("migrator", [Op::StopDrain, Op::Migrate]),
                    ],
                ),
            )
        },
        Scenario {
            metadata: Some(Metadata { draining: Some(DrainGoal::Migrate), generation: 4, ..two_shards() }),
            shows: vec![DRAINED],
            ..adopting(
                0,
                size.pick(3, 4),
                Scenario::new(
                    "shrinking beside a frozen migrator",
                    "a migration is stopped and the home that it copies to given up, all while its actor may be frozen",
                    vec![migrator(), deleter(), Cast::new("scaler", [Op::StopDrain, shrink(1)])],
                ),
            )
        },
    ]
}
