//! Point writes, alone and while the key grows.

use super::super::invariants::LATE_REQUEST;
use super::super::program::{Cast, Op};
use super::{Scenario, Size, knowing, out, two_shards};

pub(super) fn scenarios(size: Size) -> Vec<Scenario> {
    vec![
        Scenario {
            metadata: None,
            append_lease: 3,
            horizon: size.pick(2, 3),
            ..Scenario::new(
                "absent item",
                "an append without a view and a delete, while a key without metadata grows",
                vec![
                    Cast::new("appender", [Op::append(0, 'x')]),
                    Cast::new("deleter", [Op::Look, Op::delete()]),
                    Cast::new("scaler", [out(2)]),
                ],
            )
        },
        Scenario {
            horizon: size.pick(3, 4),
            ..Scenario::new(
                "creating",
                "two create-only writes, one with a clock that is ahead, while the key grows",
                vec![
                    Cast::new("creator", [Op::Look, Op::create_only('x')]).with_clock_ahead(5),
                    Cast::new("second creator", [Op::Look, Op::create_only('y')]),
                    Cast::new("scaler", [out(2)]),
                ],
            )
        },
        Scenario {
            items: vec![(0, 1, 'o')],
            horizon: size.pick(1, 2),
            ..Scenario::new(
                "deleting",
                "a delete, an append without a view and a get, while the key grows",
                vec![
                    Cast::new("deleter", [Op::Look, Op::delete()]),
                    Cast::new("appender", [Op::append(0, 'x')]),
                    Cast::new("reader", [Op::Look, Op::get()]),
                    Cast::new("scaler", [out(2)]),
                ],
            )
        },
        Scenario {
            horizon: size.pick(1, 2),
            ..Scenario::new(
                "putting and creating",
                "a put, a create-only write and a query, while the key grows",
                vec![
                    Cast::new("putter", [Op::Look, Op::put('x')]),
                    Cast::new("creator", [Op::Look, Op::create_only('y')]),
                    Cast::new("reader", [Op::Look, Op::query()]),
                    Cast::new("scaler", [out(2)]),
                ],
            )
        },
        Scenario {
            metadata: Some(two_shards()),
            items: vec![(0, 1, 'o')],
            horizon: size.pick(1, 2),
            ..Scenario::new(
                "putting in place",
                "puts and a delete of an item that is not at home, while it is read",
                vec![
                    Cast::new("putter", [Op::Look, Op::put('x'), Op::delete()]),
                    Cast::new("second putter", [Op::Look, Op::put('y')]),
                    Cast::new("reader", [Op::Look, Op::get(), Op::query()]),
                ],
            )
        },
        Scenario {
            shards: 1,
            append_lease: 3,
            lease: size.pick(1, 2),
            horizon: size.pick(1, 2),
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "repeating",
                "a put and an append are sent twice when their answers are lost, while they are read",
                vec![
                    Cast::new("putter", [Op::Look, Op::put('x')]).sending_twice(),
                    Cast::new("appender", [Op::Look, Op::append(0, 'y')]).sending_twice(),
                    Cast::new("reader", [Op::Look, Op::query(), Op::query()]),
                ],
            )
        },
        Scenario {
            append_lease: 3,
            lease: 2,
            horizon: size.pick(2, 4),
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "repeating a creation",
                "a create-only write is sent twice when its answer is lost",
                vec![
                    Cast::new("creator", [Op::Look, Op::create_only('x')]).sending_twice(),
                    Cast::new("second creator", [Op::Look, Op::create_only('y')]),
                ],
            )
        },
        Scenario {
            horizon: size.pick(3, 4),
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "repeating a creation while growing",
                "a create-only write is sent twice when its answer is lost, beside another, while the key grows",
                vec![
                    Cast::new("creator", [Op::Look, Op::create_only('x')]).sending_twice(),
                    Cast::new("second creator", [Op::Look, Op::create_only('y')]),
                    Cast::new("scaler", [out(2)]),
                ],
            )
        },
        Scenario {
            items: vec![(0, 1, 'o')],
            append_lease: 3,
            lease: 2,
            horizon: size.pick(1, 3),
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "giving a delete up",
                "a delete has no answer, and a put follows",
                vec![
                    Cast::new("deleter", [Op::Look, Op::delete(), Op::Look]).sending_twice(),
                    Cast::new("putter", [Op::Look, Op::put('y')]),
                    Cast::new("reader", [Op::Look, Op::get()]),
                ],
            )
        },
        Scenario {
            metadata: Some(two_shards()),
            horizon: size.pick(1, 3),
            ..Scenario::new(
                "skewed clocks",
                "a put meets an append from a clock that is ahead",
                vec![
                    Cast::new("appender", [Op::append(0, 'x')]).with_clock_ahead(5),
                    Cast::new("putter", [Op::Look, Op::put('y')]),
                    Cast::new("reader", [Op::Look, Op::query(), Op::get()]),
                ],
            )
        },
        Scenario {
            metadata: Some(two_shards()),
            horizon: size.pick(1, 3),
            ..Scenario::new(
                "one instant",
                "two appends of one sort key on two shards",
                vec![
                    Cast::new("appender", [Op::Look, Op::append(0, 'x')]),
                    Cast::new("appender without a view", [Op::append(0, 'y')]),
                    Cast::new("reader", [Op::query()]).with_view(knowing(two_shards())),
                ],
            )
        },
    ]
}
