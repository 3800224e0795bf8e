//! Shrinking. Leases and the validity of signatures are as short as they can be, so that a whole shrink fits.

use super::super::invariants::DRAINED;
use super::super::program::{Cast, Op};
use super::super::state::{DrainGoal, Metadata};
use super::{Scenario, Size, four_shards, knowing, one_shard, out, shrink, straight_to_four, three_shards, two_shards};

pub(super) fn scenarios(size: Size) -> Vec<Scenario> {
    let shrinker = || Cast::new("shrinker", [shrink(1)]);
    let reader = |ops: [Op; 2]| Cast::new("reader", ops);
    let drain = |validity: u8, longest_read: u8, horizon: u8, scenario: Scenario| Scenario {
        metadata: Some(two_shards()),
        validity,
        longest_read,
        horizon,
        shows: vec![DRAINED],
        ..scenario
    };
    let creator = || Cast::new("creator", [Op::Look, Op::create_only('x')]);
    let second_creator = || Cast::new("second creator", [Op::Look, Op::create_only('y')]);
    let to_two = |horizon: u8, scenario: Scenario| Scenario {
        metadata: Some(straight_to_four()),
        shards: 4,
        ..drain(0, 0, horizon, scenario)
    };
    let early_writer = |ops: [Op; 3]| Cast::new("appender", ops).with_view(knowing(two_shards()));
    vec![
        drain(
            size.pick(0, 1),
            1,
            size.pick(3, 5),
            Scenario {
                items: vec![(0, 2, 'o')],
                ..Scenario::new(
                    "shrinking under reads",
                    "a query and a get, while the item that they look for moves home",
                    vec![
                        Cast::new("reader", [Op::query()]).with_view(knowing(two_shards())),
                        Cast::new("second reader", [Op::Look, Op::get()]),
                        shrinker(),
                    ],
                )
            },
        ),
        drain(
            size.pick(1, 2),
            0,
            size.pick(4, 6),
            Scenario {
                append_lease: size.pick(1, 2),
                ..Scenario::new(
                    "shrinking under appends",
                    "an append under an old view, then a delete; and a scaler that wants more shards",
                    vec![
                        early_writer([Op::append(0, 'x'), Op::Look, Op::delete()]),
                        shrinker(),
                        Cast::new("scaler", [out(2)]),
                    ],
                )
            },
        ),
        drain(
            size.pick(1, 2),
            0,
            size.pick(4, 5),
            Scenario::new(
                "shrinking under repeated appends",
                "an append under an old view is sent twice when its answer is lost",
                vec![early_writer([Op::append(0, 'x'), Op::Look, Op::append(0, 'y')]).sending_twice(), shrinker()],
            ),
        ),
        drain(
            1,
            0,
            size.pick(4, 5),
            Scenario {
                items: vec![(0, 2, 'o')],
                ..Scenario::new(
                    "shrinking under a delete",
                    "the item is deleted while it moves home",
                    vec![Cast::new("deleter", [Op::Look, Op::delete()]), reader([Op::Look, Op::get()]), shrinker()],
                )
            },
        ),
        drain(
            size.pick(0, 1),
            0,
            size.pick(3, 4),
            Scenario {
                items: vec![(0, 2, 'o')],
                ..Scenario::new(
                    "shrinking under a put",
                    "the item is put while it moves home",
                    vec![Cast::new("putter", [Op::Look, Op::put('x')]), reader([Op::Look, Op::query()]), shrinker()],
                )
            },
        ),
        drain(
            size.pick(1, 2),
            0,
            size.pick(4, 5),
            Scenario::new(
                "shrinking under creations",
                "two create-only writes, while the key shrinks",
                vec![creator(), second_creator(), shrinker()],
            ),
        ),
        drain(
            size.pick(0, 1),
            0,
            size.pick(5, 7),
            Scenario {
                cooldown: 2,
                ..Scenario::new(
                    "shrinking beside observers",
                    "an observer of expansions and a scaler meet a drain",
                    vec![
                        Cast::new("writer", [Op::Look, Op::append(0, 'x')]),
                        shrinker(),
                        Cast::new("observer", [Op::TakeOver]),
                        Cast::new("scaler", [out(2)]),
                    ],
                )
            },
        ),
        drain(
            size.pick(0, 1),
            0,
            size.pick(3, 4),
            Scenario {
                items: vec![(0, 2, 'o')],
                ..Scenario::new(
                    "resuming a shrink",
                    "a shrinker may die anywhere, and a second one goes on",
                    vec![
                        Cast::new("putter", [Op::Look, Op::put('x')]),
                        shrinker().mortal(),
                        Cast::new("second shrinker", [shrink(1)]),
                    ],
                )
            },
        ),
        Scenario {
            metadata: Some(three_shards()),
            sort_keys: 2,
            shards: 3,
            ..drain(
                size.pick(0, 1),
                1,
                size.pick(6, 7),
                Scenario {
                    items: vec![(0, 2, 'o'), (1, 3, 'p')],
                    ..Scenario::new(
                        "scanning while shrinking",
                        "two pages by cursor over two items that both move",
                        vec![Cast::new("reader", [Op::scan()]).with_view(knowing(three_shards())), shrinker()],
                    )
                },
            )
        },
        Scenario {
            metadata: Some(four_shards()),
            shards: 4,
            ..drain(
                size.pick(0, 1),
                size.pick(0, 1),
                size.pick(3, 5),
                Scenario {
                    items: vec![(0, 2, 'o')],
                    ..Scenario::new(
                        "shrinking from old homes",
                        "the item is where only the history leads",
                        vec![Cast::new("putter", [Op::Look, Op::put('x')]), shrinker()],
                    )
                },
            )
        },
        to_two(
            size.pick(3, 4),
            Scenario::new(
                "shrinking to a new width",
                "an append at a home that no width before has led to, and a get under an old view",
                vec![
                    Cast::new("appender", [Op::Look, Op::append(0, 'x')]),
                    Cast::new("reader", [Op::Look, Op::get()]),
                    Cast::new("shrinker", [shrink(2)]),
                ],
            ),
        ),
        to_two(
            size.pick(3, 4),
            Scenario::new(
                "shrinking to a new width under creations",
                "two create-only writes, one of them at a home that no width before has led to",
                vec![creator(), second_creator(), Cast::new("shrinker", [shrink(2)])],
            ),
        ),
        to_two(
            size.pick(3, 4),
            Scenario::new(
                "shrinking to a new width under a delete",
                "an item is put at a home that no width before has led to, and deleted",
                vec![
                    Cast::new("putter", [Op::Look, Op::put('x')]),
                    Cast::new("deleter", [Op::Look, Op::delete()]),
                    Cast::new("shrinker", [shrink(2)]),
                ],
            ),
        ),
        Scenario {
            metadata: Some(Metadata { draining: Some(DrainGoal::Settle), generation: 4, ..two_shards() }),
            cold_append: false,
            ..drain(
                0,
                0,
                size.pick(3, 4),
                Scenario {
                    items: vec![(0, 1, 'o')],
                    ..Scenario::new(
                        "shrinking beside a frozen settler",
                        "a settling is stopped, its shard given up and used again, all while its actor may be frozen",
                        vec![
                            Cast::new("settler", [Op::Settle]),
                            Cast::new("scaler", [Op::StopDrain, shrink(1), out(2)]),
                            Cast::new("deleter", [Op::Look, Op::delete()]),
                        ],
                    )
                },
            )
        },
        Scenario {
            metadata: Some(Metadata { read_width: 2, generation: 2, ..one_shard() }),
            second: 99,
            ..drain(
                0,
                0,
                2,
                Scenario::new(
                    "growing, shrinking and growing again",
                    "an observer is frozen through it all; everything happens within one second",
                    vec![
                        Cast::new("writer", [Op::Look, Op::append(0, 'x')]),
                        reader([Op::Look, Op::query()]),
                        Cast::new("frozen observer", [Op::TakeOver]),
                        Cast::new("shrinker", [Op::TakeOver, shrink(1), out(2)]),
                    ],
                ),
            )
        },
    ]
}
