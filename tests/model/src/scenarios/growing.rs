//! Growing, with appends and reads.

use super::super::invariants::{NEW_SHARD, TAKEN_OVER};
use super::super::program::{Cast, Op};
use super::super::state::Metadata;
use super::{Scenario, Size, knowing, one_shard, out, two_shards};

pub(super) fn scenarios(size: Size) -> Vec<Scenario> {
    let writer = || Cast::new("writer", [Op::Look, Op::append(0, 'x')]);
    vec![
        Scenario {
            lease: 2,
            append_lease: 4,
            horizon: size.pick(4, 6),
            shows: vec![NEW_SHARD],
            ..Scenario::new(
                "growing",
                "an append and two reads, while the key grows",
                vec![
                    writer(),
                    Cast::new("reader", [Op::query(), Op::get()]).with_view(knowing(one_shard())),
                    Cast::new("scaler", [out(2)]),
                ],
            )
        },
        Scenario {
            append_lease: 4,
            horizon: size.pick(2, 3),
            shows: vec![NEW_SHARD, TAKEN_OVER],
            ..Scenario::new(
                "taking over",
                "the scaler may die, and an observer takes over",
                vec![
                    writer(),
                    Cast::new("reader", [Op::query()]).with_view(knowing(one_shard())),
                    Cast::new("scaler", [out(2)]).mortal(),
                    Cast::new("observer", [Op::TakeOver]),
                ],
            )
        },
        Scenario {
            metadata: Some(Metadata { read_width: 2, generation: 2, ..one_shard() }),
            append_lease: 4,
            shards: 4,
            horizon: size.pick(1, 2),
            shows: vec![NEW_SHARD],
            ..Scenario::new(
                "overtaken observer",
                "an observer watches one expansion while the next one follows it",
                vec![
                    writer(),
                    Cast::new("reader", [Op::Look, Op::query()]),
                    Cast::new("scaler", [Op::TakeOver, out(4)]),
                    Cast::new("observer", [Op::TakeOver]),
                ],
            )
        },
        Scenario {
            append_lease: 4,
            sort_keys: 2,
            shards: 3,
            horizon: size.pick(2, 3),
            shows: vec![NEW_SHARD],
            ..Scenario::new(
                "scanning while growing",
                "two pages by cursor over two sort keys that are appended meanwhile",
                vec![
                    Cast::new("writer", [Op::Look, Op::append(0, 'x'), Op::append(1, 'y')]),
                    Cast::new("reader", [Op::scan()]).with_view(knowing(one_shard())),
                    Cast::new("scaler", [out(3)]),
                ],
            )
        },
        Scenario {
            metadata: None,
            append_lease: 3,
            horizon: size.pick(3, 5),
            shows: vec![NEW_SHARD],
            ..Scenario::new(
                "registering",
                "a late registration meets a scale-out of the same new key",
                vec![writer(), Cast::new("registrar", [Op::Register]), Cast::new("scaler", [out(2)])],
            )
        },
        Scenario {
            append_lease: 3,
            shards: 4,
            metadata: Some(two_shards()),
            horizon: size.pick(2, 3),
            ..Scenario::new(
                "old homes",
                "an item is appended at a home that only the history leads to afterwards",
                vec![
                    Cast::new("writer", [Op::append(0, 'x')]).with_view(knowing(two_shards())),
                    Cast::new("reader", [Op::Look, Op::get()]),
                    Cast::new("scaler", [out(4)]),
                ],
            )
        },
        Scenario {
            shards: 4,
            horizon: size.pick(5, 7),
            cooldown: 2,
            ..Scenario::new(
                "crowd",
                "three actors see one overload",
                vec![
                    Cast::new("scaler", [out(2), out(3)]),
                    Cast::new("second scaler", [out(3)]),
                    Cast::new("third scaler", [out(4)]),
                ],
            )
        },
    ]
}
