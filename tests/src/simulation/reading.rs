//! Readers: scans by cursor, with various limits and orders, and point reads.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{Deadline, PageQuery, TableEngine};
use sharding::{Order, ReadError};
use tokio::time::{Instant, sleep};

use super::failure::Finding;
use super::linearizability::Tick;
use super::updating::COUNTER;
use super::world::{Actor, World};
use super::writing::{ONLY_CREATED, REGISTERS};
use super::{HOT, READ_DEADLINE, key, sort_key, value_of};
use crate::OneItem;

pub(super) async fn read(actor: Actor, seed: u64) {
    let Actor { table, world, .. } = &actor;
    let (mut rng, plan) = (StdRng::seed_from_u64(seed), world.plan);
    while actor.goes_on() {
        sleep(world.pause(&mut rng, 20..250)).await;
        let which = world.draw_key(&mut rng);
        let (began, tick) = (Instant::now(), world.registers(which).now());
        let wanted = if !plan.appends && rng.random_range(0..6) == 0 {
            let window = world.window();
            Some(match rng.random_range(0..4) {
                0 => format!("~only-created-{window}-{}", rng.random_range(0..ONLY_CREATED)),
                1 => format!("~once-{window}"),
                _ => world.register("register", rng.random_range(0..REGISTERS)),
            })
        } else if rng.random_range(0..3) == 0 {
            let pick = rng.random_range(0..10_000);
            let known = world.history(which).some_acknowledged(began, pick);
            let Some(wanted) = known else { continue };
            Some(wanted)
        } else {
            None
        };
        let read = if let Some(wanted) = wanted {
            let deadline = Deadline::now() + READ_DEADLINE;
            let got = table.get(&key(which), &sort_key(&wanted), true, deadline).await;
            got.map(|item| {
                let value = item.as_ref().and_then(|item| value_of(&item.attributes));
                if wanted.starts_with('~') {
                    world.registers(which).read(&wanted, value, tick);
                } else {
                    let checked = world.history(which).check_get(&wanted, value);
                    world.check(which, checked.map_err(|finding| finding.during("get")));
                }
                true
            })
        } else {
            let descending = rng.random();
            // Many small pages of a grown key cost too much to read them all the time.
            let limits = if world.age() < HOT { [7, 60, 1_000] } else { [200, 1_000, 1_000] };
            let limit = limits[rng.random_range(0..3)];
            scan(table, which, limit, descending).await.map(|seen| {
                let Some(seen) = seen else { return false };
                let scanned = Scanned { descending, ..Scanned::all(seen, began, tick) };
                let checked = scanned.check(world, which);
                world.check(which, checked.map_err(|finding| finding.during("scan")));
                true
            })
        };
        if let Err(error) = &read {
            world.check_error(which, "a read", error);
        }
        if read.unwrap_or(false) {
            world.count(|totals| totals.reads += 1);
        }
    }
}

/// Checks the order of a scan: I2 and I4.
fn in_order(seen: &[(String, u64)], descending: bool) -> Result<(), Finding> {
    let fits = |pair: &[(String, u64)]| {
        if descending { pair[0].0 > pair[1].0 } else { pair[0].0 < pair[1].0 }
    };
    let Some(pair) = seen.windows(2).find(|pair| !fits(pair)) else { return Ok(()) };
    let what = if pair[0].0 == pair[1].0 { "I2: returned twice" } else { "I4: out of order" };
    Err(Finding::of(&pair[1].0, format!("{what}: {} then {}", pair[0].0, pair[1].0)))
}

/// What a scan of a whole key has seen.
pub(super) struct Scanned {
    pub(super) seen: Vec<(String, u64)>,
    pub(super) descending: bool,
    pub(super) began: Instant,
    pub(super) tick: Tick,
    /// Lower values are hidden.
    pub(super) least: u64,
    /// A register that it does not show has no value.
    pub(super) shows_all: bool,
}

impl Scanned {
    pub(super) const fn all(seen: Vec<(String, u64)>, began: Instant, tick: Tick) -> Self {
        Self { seen, descending: false, began, tick, least: 0, shows_all: true }
    }

    /// Checks it, and records its registers.
    pub(super) fn check(self, world: &World, which: usize) -> Result<(), Finding> {
        let Self { seen, descending, began, tick, least, shows_all } = self;
        let ordered = in_order(&seen, descending);
        // Counters have their own check.
        let of_others = seen.into_iter().filter(|(sort_key, _)| !sort_key.starts_with(COUNTER));
        let (registers, plain): (Vec<_>, Vec<_>) =
            of_others.partition(|(sort_key, _)| sort_key.starts_with('~'));
        let registers: BTreeMap<_, _> = registers.into_iter().collect();
        world.registers(which).read_all(&registers, tick, shows_all);
        ordered.and(world.history(which).check_scan(&plain, began, least))
    }
}

/// Scans a whole key; `None` if that takes too many pages.
pub(super) async fn scan(
    table: &TableEngine,
    which: usize,
    limit: usize,
    descending: bool,
) -> Result<Option<Vec<(String, u64)>>, ReadError> {
    let mut query = PageQuery { limit, consistent: true, ..PageQuery::new(key(which)) };
    query.order = if descending { Order::Descending } else { Order::Ascending };
    let mut seen = Vec::new();
    // A long scan in small pages lasts longer than the run, and its first pages prove as much.
    for _ in 0..30 {
        let page = table.query(&query, Deadline::now() + READ_DEADLINE).await?;
        seen.extend(page.items.iter().map(|item| {
            (item.sort_key.to_string(), value_of(&item.attributes).unwrap_or(u64::MAX))
        }));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(Some(seen)),
        }
    }
    Ok(None)
}
