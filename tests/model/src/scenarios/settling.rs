//! Settling, where no append goes without a view. Leases and the validity of signatures are as short as they can be, so that a whole settling fits.

use super::super::invariants::SETTLED;
use super::super::program::{Cast, Op};
use super::{Scenario, Size, knowing, one_shard, out, three_shards, two_shards};

pub(super) fn scenarios(size: Size) -> Vec<Scenario> {
    let settler = || Cast::new("settler", [Op::Settle]);
    let settling = |validity: u8, longest_read: u8, horizon: u8, scenario: Scenario| Scenario {
        metadata: Some(two_shards()),
        cold_append: false,
        validity,
        longest_read,
        horizon,
        shows: vec![SETTLED],
        ..scenario
    };
    vec![
        settling(
            size.pick(0, 1),
            1,
            size.pick(3, 5),
            Scenario {
                items: vec![(0, 1, 'o')],
                ..Scenario::new(
                    "settling under reads",
                    "a query and a get, while the item that they look for moves home",
                    vec![
                        Cast::new("reader", [Op::query()]).with_view(knowing(two_shards())),
                        Cast::new("second reader", [Op::Look, Op::get()]),
                        settler(),
                    ],
                )
            },
        ),
        settling(
            1,
            0,
            size.pick(4, 5),
            Scenario::new(
                "settling under appends",
                "an append under the view of an older width, and one without a view",
                vec![
                    Cast::new("appender", [Op::append(0, 'x')]).with_view(knowing(one_shard())),
                    Cast::new("appender without a view", [Op::append(0, 'y')]),
                    settler(),
                ],
            ),
        ),
        settling(
            size.pick(0, 1),
            0,
            size.pick(3, 4),
            Scenario {
                items: vec![(0, 1, 'o')],
                ..Scenario::new(
                    "settling under a put and a delete",
                    "the item is put and deleted while it moves home",
                    vec![
                        Cast::new("putter", [Op::Look, Op::put('x')]),
                        Cast::new("deleter", [Op::Look, Op::delete()]),
                        settler(),
                    ],
                )
            },
        ),
        settling(
            size.pick(0, 1),
            0,
            size.pick(3, 4),
            Scenario {
                items: vec![(0, 1, 'o')],
                ..Scenario::new(
                    "settling under a delete",
                    "the item is deleted, and read, while it moves home",
                    vec![
                        Cast::new("deleter", [Op::Look, Op::delete()]),
                        Cast::new("reader", [Op::Look, Op::get()]),
                        settler(),
                    ],
                )
            },
        ),
        settling(
            1,
            0,
            size.pick(4, 5),
            Scenario::new(
                "settling under a creation",
                "a create-only write and an append under the view of an older width, while the key is settled",
                vec![
                    Cast::new("appender", [Op::append(0, 'a')]).with_view(knowing(one_shard())),
                    Cast::new("creator", [Op::Look, Op::create_only('x')]),
                    settler(),
                ],
            ),
        ),
        settling(
            size.pick(0, 1),
            0,
            size.pick(3, 4),
            Scenario {
                items: vec![(0, 1, 'o')],
                ..Scenario::new(
                    "resuming a settling",
                    "a settler may die anywhere, and a second one goes on",
                    vec![
                        Cast::new("putter", [Op::Look, Op::put('x')]),
                        settler().mortal(),
                        Cast::new("second settler", [Op::Settle]),
                    ],
                )
            },
        ),
        settling(
            0,
            0,
            size.pick(4, 5),
            Scenario {
                items: vec![(0, 1, 'o')],
                shards: 4,
                ..Scenario::new(
                    "growing after settling",
                    "the item is put and read, while its key is settled and grows then",
                    vec![
                        Cast::new("putter", [Op::Look, Op::put('x')]),
                        Cast::new("reader", [Op::Look, Op::get()]),
                        Cast::new("settler", [Op::Settle, out(4)]),
                    ],
                )
            },
        ),
        Scenario {
            metadata: Some(three_shards()),
            sort_keys: 2,
            shards: 3,
            ..settling(
                size.pick(0, 1),
                1,
                size.pick(5, 7),
                Scenario {
                    items: vec![(0, 1, 'o'), (1, 1, 'p')],
                    ..Scenario::new(
                        "scanning while settling",
                        "two pages by cursor over two items that both move",
                        vec![Cast::new("reader", [Op::scan()]).with_view(knowing(three_shards())), settler()],
                    )
                },
            )
        },
    ]
}
